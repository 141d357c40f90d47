/*
 * Operations in flight in a context, and the progress thread, which drives them when
 * no other thread does. The thread costs nothing while nothing is pending: it then waits on a
 * condition. It polls while operations move and sleeps like any waiter when they do not.
 * Threads that wait drive operations themselves, and the progress thread pauses for them: two
 * threads would do the same work twice.
 */
#include "progress/async.h"
#include "progress/drive.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Sleeps end with what they wait for; the time limit is for deadlines, which have 250 ms and more. */
enum { STACK_BYTES = 256 * 1024, YIELDS = 100, NAP_MS = 50 };

coll_status coll_async_open(struct coll_context *ctx, struct coll_error_box *err)
{
	struct coll_async *a = calloc(1, sizeof(*a));

	if (!a)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for a context");
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->work, NULL);
	coll_list_init(&a->comms);
	a->ready_tail = &a->ready;
	ctx->async = a;
	return COLL_OK;
}

void coll_async_close(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	if (!a)
		return;
	if (a->running) {
		coll_async_lock(ctx);
		a->stopping = true;
		pthread_cond_signal(&a->work);
		pthread_mutex_unlock(&a->lock);
		coll_context_wake(ctx);
		pthread_join(a->thread, NULL);
	}
	while (a->spare_events) {
		struct coll_request *r = a->spare_events;

		a->spare_events = r->next;
		free(r);
	}
	pthread_cond_destroy(&a->work);
	pthread_mutex_destroy(&a->lock);
	free(a);
	ctx->async = NULL;
}

/* ---- The progress thread ---- */

static bool stirs(void *arg)
{
	struct coll_context *ctx = arg;
	struct coll_async *a = ctx->async;
	bool stay;

	if (pthread_mutex_trylock(&a->lock) != 0)
		return true;
	stay = a->stopping || coll_drive(ctx);
	coll_async_unlock(ctx);
	return stay;
}

/* Nothing moved at this look. since_ns: the first one of them. Nobody waits, or he would drive: so where
 * the application has no core but this one, the next look would only keep it from computing. (2 ranks
 * on 1 Gb/s: looking on for 50 us took 4 % of the core that computed.) */
static void pause_between(struct coll_context *ctx, uint64_t *since_ns, unsigned *polls)
{
	bool tired = !ctx->spare_core;
	uint64_t now;

	if (!tired && !coll_context_pause(ctx, ctx->dedicated_cores, polls, &tired))
		return;
	now = coll_clock_ns();
	if (!*since_ns)
		*since_ns = now;
	if (tired || coll_context_spun(ctx, now - *since_ns))
		coll_context_sleep(ctx, NAP_MS, stirs, ctx);
}

/* A lock given back and taken again at once is nobody else's: one that sleeps for it wakes up
 * too late, every time. */
static void let_in(struct coll_async *a)
{
	for (int i = 0; i < YIELDS && atomic_load_explicit(&a->wanting, memory_order_relaxed) > 0; i++)
		sched_yield();
}

static void *progress(void *arg)
{
	struct coll_context *ctx = arg;
	struct coll_async *a = ctx->async;
	uint64_t since_ns = 0;
	unsigned polls = 0;

	pthread_mutex_lock(&a->lock);
	while (!a->stopping) {
		bool moved;

		if (atomic_load(&a->pending) == 0 || atomic_load(&a->drivers) > 0) {
			pthread_cond_wait(&a->work, &a->lock);
			since_ns = 0;
			continue;
		}
		moved = coll_drive(ctx);
		coll_async_unlock(ctx);
		if (moved)
			since_ns = 0;
		else
			pause_between(ctx, &since_ns, &polls);
		let_in(a);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static bool wanted(const struct coll_context *ctx)
{
	if (strcmp(ctx->settings.progress, "auto") == 0)
		return ctx->dedicated_cores && ctx->size > 1;
	return strcmp(ctx->settings.progress, "on") == 0;
}

void coll_async_thread(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	pthread_attr_t attr;
	sigset_t all, old;
	int e = 0;

	if (!wanted(ctx))
		return;
	coll_async_lock(ctx);
	if (!a->running) {
		/* Signals belong to the application's threads. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		pthread_attr_init(&attr);
		pthread_attr_setstacksize(&attr, STACK_BYTES);
		e = pthread_create(&a->thread, &attr, progress, ctx);
		pthread_attr_destroy(&attr);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		a->running = e == 0;
	}
	pthread_mutex_unlock(&a->lock);
	/* Not an error: the work is done in calls. */
	if (e)
		coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-5107] cannot start the progress thread: %s", strerror(e));
}
