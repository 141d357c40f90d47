/*
 * The async lock: see lock.h. What has become due under it runs when it is released.
 */
#include "inflight/lock.h"

#include "context/context.h"
#include "inflight/async.h"
#include "inflight/notify.h"

void coll_async_lock(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	if (pthread_mutex_trylock(&a->lock) == 0)
		return;
	/* Relaxed: only a hint, and its readers look again. */
	atomic_fetch_add_explicit(&a->lock_waiters, 1, memory_order_relaxed);
	pthread_mutex_lock(&a->lock);
	atomic_fetch_sub_explicit(&a->lock_waiters, 1, memory_order_relaxed);
}

void coll_async_unlock(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	const bool completed = a->completed;
	struct coll_notice *due = a->due;

	a->completed = false;
	a->due = NULL;
	a->due_tail = &a->due;
	pthread_mutex_unlock(&a->lock);
	if (completed)
		coll_context_wake(ctx);
	if (due)
		coll_notify_run(due);
}
