/*
 * Operations that were started inline: begun in start, continued in wait, without a lock and a place in the queue. When
 * another operation comes along, the inline one is handed over and becomes an ordinary request.
 *
 * The rules for comm->inflight.current:
 *
 *  - The communicator's thread reads and takes it without a lock.
 *  - That thread may wait in the library for something else, such as a call on another
 *    communicator, while current is started. Then it sweeps what it has started itself.
 *  - By then another thread may use the communicator. So `starter` names the thread that may
 *    touch current without a lock. A new thread writes its own name there under the async lock.
 *    The sweep, under the async lock, takes only operations that still carry the name of its thread.
 *  - So either the new thread finds no inline operation any more, or the sweep finds another name.
 *  - A name is the address of the thread's coll_group. A new thread may get the address of a
 *    thread that has ended. This is harmless, because no other thread uses that name then.
 */
#include "inflight/inlined.h"

#include "inflight/async.h"
#include "inflight/lock.h"
#include "inflight/queue.h"
#include "inflight/request.h"

void coll_inlined_become_starter(struct coll_comm *comm)
{
	/* Relaxed: only this thread writes its own name. */
	if (atomic_load_explicit(&comm->inflight.starter, memory_order_relaxed) == &coll_group)
		return;
	coll_async_lock(comm->ctx);
	atomic_store_explicit(&comm->inflight.starter, &coll_group, memory_order_relaxed);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}

void coll_inlined_set(struct coll_request *r)
{
	/* Release: a thread that sweeps finds this operation, or finds `inlined` set again. */
	atomic_store_explicit(&r->comm->inflight.current, r, memory_order_release);
	atomic_store_explicit(&r->comm->ctx->async->inlined, true, memory_order_release);
}

/* The lock is held, and this thread is the starter. */
static void adopt(struct coll_comm *comm)
{
	struct coll_request *r = coll_inlined_current(comm);

	r->held = true;
	r->status = COLL_AGAIN;
	r->lost = COLL_OK;
	r->shown = COLL_SHOWN;
	r->timer = (struct coll_wait_timer){0};
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
	coll_inflight_adopt(r);
	/* Release, after PENDING was set: see coll_comm_busy(). */
	atomic_store_explicit(&comm->inflight.current, NULL, memory_order_release);
}

void coll_inlined_hand_over(struct coll_comm *comm)
{
	if (!coll_inlined_current(comm))
		return;
	coll_inlined_become_starter(comm);
	comm->prepared_for = NULL;
	coll_async_lock(comm->ctx);
	if (coll_inlined_current(comm))
		adopt(comm);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}

/* Lock order: the async lock, then comms_lock. */
void coll_inlined_sweep(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool others = false;

	/* Relaxed: a thread sees the operations that it started itself. */
	if (!atomic_load_explicit(&a->inlined, memory_order_relaxed))
		return;
	coll_async_lock(ctx);
	atomic_exchange_explicit(&a->inlined, false, memory_order_acquire);
	pthread_mutex_lock(&ctx->comms_lock);
	for (struct coll_comm *comm = ctx->comms; comm; comm = comm->next) {
		if (!coll_inlined_current(comm))
			continue;
		if (atomic_load_explicit(&comm->inflight.starter, memory_order_relaxed) == &coll_group)
			adopt(comm);
		else
			others = true;
	}
	pthread_mutex_unlock(&ctx->comms_lock);
	if (others)
		atomic_store_explicit(&a->inlined, true, memory_order_release);
	pthread_mutex_unlock(&a->lock);
}
