/*
 * The operations in flight in a context, and the progress thread.
 *
 * The progress thread drives operations while no other thread does. It costs nothing while nothing
 * is pending: it sleeps on a timer that is not set. While operations move it polls. When they stop
 * moving it sleeps like any other waiting thread. A waiting thread drives the operations itself.
 * Then the progress thread stands aside, because two drivers would only do the same work twice.
 *
 * A call on a stream sends what it can send itself, and then its caller often waits at once. So the
 * caller does not wake the progress thread. It sets the timer, if it is not set, and the thread
 * takes over when it expires and nobody waits. (2 pinned ranks, 2026-11: a wake-up for each call
 * cost 6 us, most of the call.)
 */
#include "inflight/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/delay.h"
#include "base/errno_text.h"
#include "base/thread.h"
#include "inflight/drive.h"
#include "inflight/lock.h"
#include "inflight/loop.h"
#include "inflight/request.h"
#include "net/net.h"

enum { YIELDS = 100 };

coll_status coll_async_open(struct coll_context *ctx, struct coll_error_box *err)
{
	struct coll_async *a = calloc(1, sizeof(*a));

	if (!a)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for a context");
	pthread_mutex_init(&a->lock, NULL);
	coll_list_init(&a->comms);
	coll_list_init(&a->tagged);
	a->ready_tail = &a->ready;
	a->due_tail = &a->due;
	a->timer_fd = -1;
	ctx->async = a;
	return COLL_OK;
}

/* The lock is held. */
static void set_timer(struct coll_async *a, uint64_t ns)
{
	const struct itimerspec when = {.it_value.tv_nsec = (long)ns};

	coll_net->timerfd_settime(a->timer_fd, 0, &when, NULL);
	a->called = true;
	a->waits_before = atomic_load_explicit(&a->waits, memory_order_relaxed);
}

/* Half as long as a wait polls before it sleeps: who wants to wait has begun by then. At once if nobody had begun the
 * last time. */
static uint64_t take_over_ns(const struct coll_context *ctx)
{
	const uint64_t ns = (uint64_t)ctx->settings.spin_us * 500;

	if (ns == 0 || ctx->async->took_over)
		return 1;
	return ns < COLL_DELAY_NS(TAKE_OVER) ? ns : COLL_DELAY_NS(TAKE_OVER);
}

void coll_async_call(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	if (a->running && !a->called)
		set_timer(a, take_over_ns(ctx));
}

void coll_async_close(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	if (!a)
		return;
	if (a->running) {
		coll_async_lock(ctx);
		a->stopping = true;
		set_timer(a, 1);
		pthread_mutex_unlock(&a->lock);
		coll_context_wake(ctx);
		coll_net->thread_join(a->thread, NULL);
	}
	if (a->devices)
		a->devices->close(ctx);
	while (a->spare_events) {
		struct coll_request *r = a->spare_events;

		a->spare_events = r->next;
		free(r);
	}
	if (a->timer_fd >= 0)
		coll_net->close(a->timer_fd);
	pthread_mutex_destroy(&a->lock);
	free(a);
	ctx->async = NULL;
}

/* ---- The progress thread ---- */

/* Give threads that wait for the lock a chance to take it. If a thread releases a mutex and takes
 * it again at once, no other thread gets it. A thread that sleeps on the mutex always wakes up too
 * late. */
static void yield_to_lock_waiters(struct coll_async *a)
{
	for (int i = 0; i < YIELDS && atomic_load_explicit(&a->lock_waiters, memory_order_relaxed) > 0; i++)
		coll_net->yield();
}

/* The progress thread has nothing to do: nothing is pending, or waiting threads drive the
 * operations themselves. */
static bool is_not_needed(const struct coll_async *a)
{
	return a->stopping || atomic_load(&a->pending) == 0 || atomic_load(&a->drivers) > atomic_load(&a->away);
}

static coll_status look(void *arg, bool last, bool *moved)
{
	struct coll_context *ctx = arg;
	struct coll_async *a = ctx->async;
	coll_status st = COLL_AGAIN;

	if (!last) {
		pthread_mutex_lock(&a->lock);
	} else if (pthread_mutex_trylock(&a->lock) != 0) {
		*moved = true; /* another thread drives: do not sleep */
		return COLL_AGAIN;
	}
	if (is_not_needed(a))
		st = COLL_OK;
	else
		*moved = coll_drive(ctx);
	coll_async_unlock(ctx);
	if (!last)
		yield_to_lock_waiters(a);
	return st;
}

/* The lock is held, and is released meanwhile. If a wait has begun since the thread was called, the
 * caller is likely to wait again soon: then the thread sleeps once more before it takes over. */
static void rest(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	uint64_t expirations;

	a->called = false;
	do {
		if (a->called)
			set_timer(a, take_over_ns(ctx));
		pthread_mutex_unlock(&a->lock);
		while (coll_net->read(a->timer_fd, &expirations, sizeof(expirations)) < 0 && errno == EINTR)
			;
		pthread_mutex_lock(&a->lock);
	} while (!is_not_needed(a) && atomic_load_explicit(&a->waits, memory_order_relaxed) != a->waits_before);
	a->called = true; /* it is awake */
	a->took_over = !is_not_needed(a);
}

/* no_spin: no thread waits here, or it would drive. If the application has no spare core, polling
 * would only take time from its computation. (2 ranks on 1 Gb/s: 50 us of polling took 4 % of the
 * computing core.) */
static void *progress(void *arg)
{
	struct coll_context *ctx = arg;
	struct coll_async *a = ctx->async;

	pthread_mutex_lock(&a->lock);
	while (!a->stopping) {
		struct coll_wait_loop loop = {.ctxs = &ctx,
		                              .n = 1,
		                              .look = look,
		                              .arg = ctx,
		                              .starts_nothing = true,
		                              .nap_ms = COLL_DELAY_THREAD_NAP_MS,
		                              .no_spin = !ctx->spare_core || !coll_context_spins(ctx)};

		if (is_not_needed(a)) {
			rest(ctx);
			continue;
		}
		pthread_mutex_unlock(&a->lock);
		coll_wait_loop_run(&loop);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static bool thread_wanted(const struct coll_context *ctx)
{
	/* While a call is enqueued, its thread may be in the driver until an earlier call has ended. */
	if (strcmp(ctx->settings.progress, "auto") == 0 && ctx->device)
		return true;
	if (strcmp(ctx->settings.progress, "auto") == 0)
		return ctx->dedicated_cores && ctx->size > 1;
	return strcmp(ctx->settings.progress, "on") == 0;
}

void coll_async_thread(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	int e = 0;

	if (!thread_wanted(ctx))
		return;
	coll_async_lock(ctx);
	if (!a->running && a->timer_fd < 0 &&
	    (a->timer_fd = coll_net->timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) < 0)
		e = errno;
	if (!a->running && !e) {
		e = coll_net->thread_start(&a->thread, COLL_THREAD_STACK_BYTES, progress, ctx);
		a->running = e == 0;
	}
	pthread_mutex_unlock(&a->lock);
	/* This is not an error: calls of the application do the work instead. */
	if (e)
		coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-5107] cannot start the progress thread: %s",
		         coll_errno_thread(e).text);
}
