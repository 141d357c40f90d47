/*
 * Issuing requests: see issue.h. All functions run in the communicator's thread. What differs by kind is in the table
 * of the request.
 */
#include "call/issue.h"

#include "inflight/drive.h"
#include "inflight/inlined.h"
#include "inflight/lock.h"
#include "inflight/queue.h"
#include "inflight/stream.h"
#include "inflight/thread.h"

/* ---- Devices ---- */

static const struct coll_device_driver *devices_of(const struct coll_request *r)
{
	return r->comm->ctx->async->devices;
}

coll_status coll_batch_add(struct coll_batch *b, struct coll_request *r, const struct coll_stream *stream)
{
	if (devices_of(r))
		return devices_of(r)->add(b, r, stream);
	b->outside = true;
	return COLL_OK;
}

coll_status coll_batch_assign(const struct coll_batch *b)
{
	return b->chains ? devices_of(b->chains)->assign(b) : COLL_OK;
}

void coll_batch_enqueue(const struct coll_batch *b)
{
	if (b->chains)
		devices_of(b->chains)->enqueue(b);
}

/* ---- Submission ---- */

static void reset(struct coll_request *r, struct coll_stream *stream)
{
	r->stream = stream;
	r->status = COLL_AGAIN;
	r->lost = COLL_OK;
	r->noted = false;
	r->shown = COLL_SHOWN;
	r->queue[0] = r->queue[1] = NULL;
	r->follower[0] = r->follower[1] = NULL;
	r->wait = (struct coll_wait){.record = &r->record};
	r->timer = (struct coll_wait_timer){0};
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
}

coll_status coll_request_submit(struct coll_request *r, struct coll_stream *stream, uint64_t position)
{
	struct coll_comm *comm = r->comm;
	struct coll_async *a = comm->ctx->async;
	/* No thread waits for it here. */
	const bool leaves = stream || !r->held || r->kind->leaves;
	coll_status st;

	coll_inlined_hand_over(comm);
	comm->prepared_for = NULL; /* drivers use the record and the channels now */
	reset(r, stream);
	coll_async_lock(comm->ctx);
	st = r->is == COLL_IS_COLLECTIVE ? comm->failed : comm->ended;
	if (st != COLL_OK) {
		r->status = st;
	} else {
		coll_inflight_enter(r);
		if (stream)
			coll_stream_append(stream, r, position);
		coll_inflight_unblock(r);
		coll_inflight_launch(a);
		/* Send at once what can be sent at once. */
		if (leaves)
			coll_drive(comm->ctx);
		if (leaves && atomic_load(&a->drivers) == 0 && atomic_load(&a->pending) > 0)
			coll_async_call(comm->ctx);
	}
	coll_async_unlock(comm->ctx);
	return st;
}

coll_status coll_request_launch(struct coll_request *r, struct coll_stream *stream, bool *submitted)
{
	struct coll_batch batch = {NULL};
	coll_status st = coll_batch_add(&batch, r, stream);

	*submitted = false;
	if (st == COLL_OK)
		st = coll_batch_assign(&batch);
	if (st != COLL_OK || batch.captured)
		return st;
	st = coll_request_submit(r, stream, 0);
	*submitted = st == COLL_OK;
	/* A failure from here on ends the request: its stream, or whoever waits for it, gets the error. */
	if (st != COLL_OK)
		return coll_comm_keep(r->comm, st);
	coll_batch_enqueue(&batch);
	return st;
}

/* ---- Waits ---- */

static bool is_done(void *arg)
{
	struct coll_request *r = arg;

	coll_request_attend(r, COLL_WAIT_LOOKS);
	return atomic_load_explicit(&r->done, memory_order_acquire);
}

coll_status coll_request_await(struct coll_request *r, int timeout_ms)
{
	const bool asks = r->kind->asks;
	coll_status st;

	atomic_store_explicit(&r->awaited, timeout_ms < 0 && !asks, memory_order_relaxed);
	st = coll_async_await_one(r->comm->ctx, r->comm, asks, is_done, r, timeout_ms);
	atomic_store_explicit(&r->awaited, false, memory_order_relaxed);
	if (timeout_ms < 0)
		coll_request_attend(r, COLL_WAIT_ENDS);
	if (st != COLL_OK || r->status == COLL_OK)
		return st;
	return coll_comm_keep(r->comm, r->status);
}

coll_status coll_request_dispatch(struct coll_request *r, struct coll_stream *stream)
{
	bool submitted;
	coll_status st;

	if (coll_group.depth > 0) {
		coll_noted_add(r, stream);
		return COLL_OK;
	}
	r->held = !stream;
	st = coll_request_launch(r, stream, &submitted);
	if (st == COLL_OK && stream)
		return st;
	if (st == COLL_OK) {
		coll_request_attend(r, COLL_WAIT_BEGINS);
		st = coll_request_await(r, -1);
	}
	coll_request_recycle(r);
	return st;
}
