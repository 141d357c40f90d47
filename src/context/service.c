/*
 * The service thread: see service.h.
 */
#include "context/service.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/delay.h"
#include "base/errno_text.h"
#include "base/thread.h"
#include "context/other_jobs.h"
#include "net/net.h"

enum { OWN_FDS = 2 };

void coll_service_once(struct coll_context *ctx)
{
	coll_control_service(ctx->control);
	for (int i = 0; i < ctx->ntransports; i++)
		if (ctx->transports[i].table.service_fd(ctx->transports[i].inst) >= 0)
			ctx->transports[i].table.service(ctx->transports[i].inst);
}

/* poll() failed: the kernel lacks memory, or a new limit allows fewer descriptors. All waits depend
 * on this thread, so it continues at fixed intervals. */
static void without_poll(struct coll_context *ctx, int error, bool *complained)
{
	const struct timespec pause = {.tv_nsec = COLL_DELAY_NS(SERVICE_BLIND)};

	/* EINVAL: more descriptors than the limit allows. */
	if (!*complained)
		coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-4103] the service thread cannot use poll(): %s",
		         coll_errno_text(error == EINVAL ? EMFILE : error).text);
	*complained = true;
	coll_net->sleep(&pause, NULL);
}

static void *loop(void *arg)
{
	struct coll_context *ctx = arg;
	bool complained = false;

	while (!atomic_load_explicit(&ctx->stopping, memory_order_acquire)) {
		struct pollfd p[OWN_FDS + COLL_SERVICE_CLIENTS_MAX + COLL_TRANSPORTS] = {
		        {.fd = ctx->service_wake_fd, .events = POLLIN},
		        {.fd = coll_control_fd(ctx->control), .events = POLLIN},
		};
		struct pollfd *clients = p + OWN_FDS, *transports = clients + ctx->nclients;
		const nfds_t n = (nfds_t)(OWN_FDS + ctx->nclients + ctx->ntransports);
		uint64_t count;
		bool blind;

		for (int i = 0; i < ctx->nclients; i++)
			clients[i] = (struct pollfd){.fd = ctx->clients[i]->fd(ctx->clients[i]->arg), .events = POLLIN};
		for (int i = 0; i < ctx->ntransports; i++)
			transports[i] = (struct pollfd){
			        .fd = ctx->transports[i].table.service_fd(ctx->transports[i].inst), .events = POLLIN};
		blind = coll_net->poll(p, n, coll_control_timeout_ms(ctx->control)) < 0 && errno != EINTR;
		if (blind)
			without_poll(ctx, errno, &complained);
		if ((p[0].revents & POLLIN) && coll_net->read(ctx->service_wake_fd, &count, sizeof(count)) < 0) {
			/* Another thread has emptied it. */
		}
		/* Serve the control plane first: a gossip note that names a culprit was sent before
		 * its sender's sockets closed. */
		coll_control_service(ctx->control);
		for (int i = 0; i < ctx->ntransports; i++)
			if (transports[i].revents || (blind && transports[i].fd >= 0))
				ctx->transports[i].table.service(ctx->transports[i].inst);
		for (int i = 0; i < ctx->nclients; i++)
			ctx->clients[i]->service(ctx->clients[i]->arg, blind || clients[i].revents != 0);
		coll_other_jobs_look(ctx);
	}
	return NULL;
}

void coll_service_add(struct coll_context *ctx, const struct coll_service_client *client)
{
	assert(ctx->nclients < COLL_SERVICE_CLIENTS_MAX);
	assert(!ctx->service_running);
	ctx->clients[ctx->nclients++] = client;
}

coll_status coll_service_start(struct coll_context *ctx, struct coll_error_box *err)
{
	const int e = coll_net->thread_start(&ctx->service, COLL_THREAD_STACK_BYTES, loop, ctx);

	if (e)
		return coll_error_set(err, COLL_ERR_SYSTEM, "[COLL-4101] cannot start the service thread: %s",
		                      coll_errno_thread(e).text);
	ctx->service_running = true;
	return COLL_OK;
}

void coll_service_kick(struct coll_context *ctx)
{
	uint64_t one = 1;

	if (coll_net->write(ctx->service_wake_fd, &one, sizeof(one)) < 0) {
		/* The counter is full, so the thread is awake already. */
	}
}

void coll_service_stop(struct coll_context *ctx)
{
	atomic_store_explicit(&ctx->stopping, true, memory_order_release);
	if (!ctx->service_running)
		return;
	coll_service_kick(ctx);
	coll_net->thread_join(ctx->service, NULL);
	ctx->service_running = false;
}
