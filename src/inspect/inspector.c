/*
 * The inspector: see inspector.h.
 */
#include "inspect/inspector.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/own_user.h"
#include "context/service.h"
#include "inspect/dump.h"
#include "inspect/dump_signal.h"
#include "inspect/job_state.h"
#include "inspect/metrics.h"

enum { CLIENTS = 4, ACCEPTS_PER_CALL = 8, CONTEXTS = 1024, STATE_OPERATIONS = 16 };

struct client {
	int fd; /* -1: free */
	uint64_t since_ns;
	char request[16];
	size_t got;
	struct coll_text answer; /* empty until asked */
	size_t sent;
	struct coll_job_state job; /* begun: the answer waits for it */
};

struct coll_inspector {
	struct coll_context *ctx;
	struct coll_service_client client;
	int epoll, listener, signal_fd;
	uint64_t shut_ns;    /* since then the listener is not polled; 0: it is */
	uint64_t metrics_ns; /* of the last metrics */
	uint64_t blamed_ns;  /* a dump is asked for since then; 0: none is */
	bool signal_taken;
	struct client clients[CLIENTS];
};

static void dismiss(struct client *c)
{
	coll_fd_close(c->fd);
	c->fd = -1;
	c->got = c->sent = 0;
	coll_job_state_end(&c->job);
	coll_text_free(&c->answer);
}

static bool watch(const struct coll_inspector *in, int fd, uint32_t events, void *ptr)
{
	struct epoll_event e = {.events = events, .data.ptr = ptr};

	return epoll_ctl(in->epoll, EPOLL_CTL_ADD, fd, &e) == 0 || epoll_ctl(in->epoll, EPOLL_CTL_MOD, fd, &e) == 0;
}

/* ---- Clients ---- */

static void send_some(struct coll_inspector *in, struct client *c)
{
	while (c->sent < c->answer.len_bytes) {
		const ssize_t n =
		        send(c->fd, c->answer.p + c->sent, c->answer.len_bytes - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && watch(in, c->fd, EPOLLOUT, c))
			return;
		if (n < 0)
			break;
		c->sent += (size_t)n;
	}
	dismiss(c);
}

/* The dump is made last, so that it has which of the others do not answer. */
static void go_on(struct coll_inspector *in, struct client *c)
{
	if (!coll_job_state_step(&c->job, in->ctx))
		return;
	if (c->job.about == COLL_ABOUT_SLOW)
		coll_job_state_add_own_slow(in->ctx, &c->answer);
	else
		coll_dump_build(in->ctx, COLL_DUMP_ASKED, "", STATE_OPERATIONS, &c->answer);
	coll_text_add(&c->answer, "%s", c->job.heard.p ? c->job.heard.p : "");
	coll_job_state_end(&c->job);
	if (c->answer.failed)
		dismiss(c);
	else
		send_some(in, c);
}

static void serve(struct coll_inspector *in, struct client *c)
{
	ssize_t n;

	if (c->answer.len_bytes > 0) {
		send_some(in, c);
		return;
	}
	if (c->job.begun_ns) {
		if (recv(c->fd, c->request, sizeof(c->request), MSG_DONTWAIT) == 0)
			dismiss(c);
		return;
	}
	n = recv(c->fd, c->request + c->got, sizeof(c->request) - 1 - c->got, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	c->got += n > 0 ? (size_t)n : 0;
	c->request[c->got] = 0;
	if (n > 0 && !strchr(c->request, '\n') && c->got < sizeof(c->request) - 1)
		return;
	if (strcmp(c->request, "state\n") == 0)
		coll_dump_build(in->ctx, COLL_DUMP_ASKED, "", STATE_OPERATIONS, &c->answer);
	else if (strcmp(c->request, "dump\n") == 0)
		coll_dump_build(in->ctx, COLL_DUMP_ASKED, "", COLL_RECORDER_SHOWN, &c->answer);
	else if ((strcmp(c->request, "job\n") == 0 || strcmp(c->request, "slow\n") == 0) && in->ctx->control) {
		coll_job_state_begin(&c->job, c->request[0] == 's' ? COLL_ABOUT_SLOW : COLL_ABOUT_JOB);
		go_on(in, c);
		return;
	}
	if (c->answer.failed || c->answer.len_bytes == 0)
		dismiss(c);
	else
		send_some(in, c);
}

/* A free place, or that of the client that has been silent longest; NULL: all are being answered. */
static struct client *place(struct coll_inspector *in)
{
	struct client *best = NULL;

	for (int i = 0; i < CLIENTS; i++) {
		struct client *c = &in->clients[i];

		if (c->fd < 0)
			return c;
		if (c->answer.len_bytes == 0 && !c->job.begun_ns && (!best || c->since_ns < best->since_ns))
			best = c;
	}
	if (best)
		dismiss(best);
	return best;
}

static bool welcome(int fd)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
	       (coll_user_of(who.uid) == COLL_USER_OWN || who.uid == 0);
}

static void accept_some(struct coll_inspector *in)
{
	for (int i = 0; i < ACCEPTS_PER_CALL; i++) {
		const int fd = COLL_FD(accept4(in->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
		struct client *c = NULL;

		if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED &&
		    watch(in, in->listener, 0, &in->listener))
			in->shut_ns = coll_clock_ns(); /* no descriptor is free: pending connections must not keep this
			                                  thread busy */
		if (fd < 0)
			return;
		if (welcome(fd))
			c = place(in);
		if (!c || !watch(in, fd, EPOLLIN, c)) {
			coll_fd_close(fd);
			continue;
		}
		c->fd = fd;
		c->since_ns = coll_clock_ns();
		serve(in, c);
	}
}

static void on_events(struct coll_inspector *in)
{
	struct epoll_event events[CLIENTS + 2];
	const int n = epoll_wait(in->epoll, events, CLIENTS + 2, 0);
	uint64_t count;

	for (int i = 0; i < n; i++) {
		struct client *c = events[i].data.ptr;

		if (events[i].data.ptr == &in->listener)
			accept_some(in);
		else if (events[i].data.ptr == &in->signal_fd) {
			if (read(in->signal_fd, &count, sizeof(count)) == sizeof(count))
				coll_dump_keep(in->ctx, COLL_DUMP_SIGNALLED, "");
		} else if (c->fd >= 0) /* else its place was taken above */
			serve(in, c);
	}
}

static void service(void *arg, bool ready)
{
	struct coll_inspector *in = arg;

	if (ready)
		on_events(in);
	coll_dump_blamed(in->ctx, &in->blamed_ns);
	coll_metrics_keep(in->ctx, &in->metrics_ns);
	if (in->shut_ns && coll_clock_ns() - in->shut_ns > COLL_DELAY_NS(INSPECT_LISTEN_AGAIN) &&
	    watch(in, in->listener, EPOLLIN, &in->listener))
		in->shut_ns = 0;
	for (int i = 0; i < CLIENTS; i++)
		if (in->clients[i].fd >= 0 && in->clients[i].job.begun_ns)
			go_on(in, &in->clients[i]);
	for (int i = 0; i < CLIENTS; i++)
		if (in->clients[i].fd >= 0 && coll_clock_ns() - in->clients[i].since_ns > COLL_DELAY_NS(INSPECT_CLIENT))
			dismiss(&in->clients[i]);
}

static int epoll_fd(void *arg)
{
	return ((const struct coll_inspector *)arg)->epoll;
}

const struct coll_service_client *coll_inspector_client(const struct coll_inspector *in)
{
	return in ? &in->client : NULL;
}

/* ---- Life ---- */

static int open_listener(int rank)
{
	const int fd = COLL_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

	/* Names of contexts that are gone are free again. The rank is for those who find that it does not answer. */
	for (int k = 0; fd >= 0 && k < CONTEXTS; k++) {
		struct sockaddr_un a = {.sun_family = AF_UNIX};
		const int n =
		        snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, COLL_INSPECTOR_NAME, (int)getpid(), k, rank);

		if (bind(fd, (struct sockaddr *)&a,
		         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0) {
			if (listen(fd, 1024) == 0)
				return fd;
			break;
		}
		if (errno != EADDRINUSE)
			break;
	}
	if (fd >= 0)
		coll_fd_close(fd);
	return -1;
}

static void open_signal(struct coll_inspector *in)
{
	const struct coll_settings *s = &in->ctx->settings;
	const int sig = coll_dump_signal_parse(s->dump_signal);

	if (sig <= 0)
		return;
	in->signal_fd = COLL_FD(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (in->signal_fd >= 0 && watch(in, in->signal_fd, EPOLLIN, &in->signal_fd))
		coll_dump_signal_add(sig, in->signal_fd, &in->signal_taken);
	if (!in->signal_taken)
		coll_log(&in->ctx->logger, COLL_LOG_INFO,
		         "COLL_DUMP_SIGNAL=%s: the program handles this signal itself, so the signal writes no dump",
		         s->dump_signal);
}

struct coll_inspector *coll_inspector_open(struct coll_context *ctx)
{
	struct coll_inspector *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->ctx = ctx;
	in->client = (struct coll_service_client){.fd = epoll_fd, .service = service, .arg = in};
	in->signal_fd = -1;
	for (int i = 0; i < CLIENTS; i++)
		in->clients[i].fd = -1;
	in->epoll = COLL_FD(epoll_create1(EPOLL_CLOEXEC));
	in->listener = open_listener(ctx->rank);
	if (in->listener >= 0)
		watch(in, in->listener, EPOLLIN, &in->listener);
	else
		coll_log(&ctx->logger, COLL_LOG_INFO, "coll-info --pid will not reach this process: %s",
		         coll_errno_text(errno).text);
	open_signal(in);
	return in;
}

void coll_inspector_close(struct coll_inspector **inspector)
{
	struct coll_inspector *in = *inspector;

	if (!in)
		return;
	*inspector = NULL;
	if (in->signal_taken)
		coll_dump_signal_remove(in->signal_fd);
	for (int i = 0; i < CLIENTS; i++)
		if (in->clients[i].fd >= 0)
			dismiss(&in->clients[i]);
	if (in->signal_fd >= 0)
		coll_fd_close(in->signal_fd);
	if (in->listener >= 0)
		coll_fd_close(in->listener);
	if (in->epoll >= 0)
		coll_fd_close(in->epoll);
	free(in);
}
