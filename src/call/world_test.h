/*
 * What tests of this folder start from: rank 0 of 12 whose runs do not end before the test ends them, no progress
 * thread, a clock that stands still.
 */
#ifndef COLL_CALL_WORLD_TEST_H
#define COLL_CALL_WORLD_TEST_H

#include "tests/plain.h"

#include "call/collective.h"
#include "call/exchange.h"
#include "call/issue.h"
#include "call/persistent.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/inlined.h"
#include "inflight/queue.h"
#include "inflight/thread.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_context.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_engine.h"
#include "tests/fakes/fake_plan.h"
#include "tests/fakes/fake_record.h"
#include "tests/fakes/fake_select.h"
#include "tests/fakes/fake_watch.h"

static struct coll_comm *comm;

static inline void world_open(void)
{
	fake_clock_reset();
	fake_context_reset();
	fake_engine_reset();
	fake_engine.polls = -1;
	fake_plan_reset();
	fake_record_reset();
	fake_select_reset();
	fake_watch_reset();
	comm = fake_comm_open(0, FAKE_RANKS);
	snprintf(comm->ctx->settings.progress, sizeof(comm->ctx->settings.progress), "off");
	coll_group = (struct coll_group){.depth = 0};
	coll_async_open(comm->ctx, NULL);
	coll_inflight_init(&comm->inflight);
}

/* Nothing is pending. What was allocated must have been given back: sanitizers see the rest. */
static inline void world_close(void)
{
	CHECK(comm->ctx->async->pending == 0 && comm->inflight.pending == 0);
	CHECK(!(comm->attention & COLL_ATTENTION_PENDING));
	coll_operations_orphan(comm);
	coll_inflight_fini(comm);
	coll_async_close(comm->ctx);
	CHECK(fake_engine.created == fake_engine.destroyed, "%d runs are left",
	      fake_engine.created - fake_engine.destroyed);
	CHECK(fake_plan.pins == 0, "%d pins are left", fake_plan.pins);
	CHECK(fake_context.users == 0);
}

/* An all-reduce of so many elements; buffers are not touched. */
static inline struct coll_call world_call(size_t count)
{
	return (struct coll_call){.kind = COLL_KIND_ALL_REDUCE, .count = count, .type = COLL_F32, .op = COLL_SUM};
}

/* A request for a call. */
static inline coll_status world_make(const struct coll_call *call, struct coll_request **r)
{
	struct coll_collective_request *c = NULL;
	const coll_status st = coll_collective_make(comm, call, &c);

	*r = c ? &c->request : NULL;
	return st;
}

/* Hands it in: to a stream, or for this thread to wait for. */
static inline struct coll_request *world_hand_in(size_t count, struct coll_stream *stream)
{
	const struct coll_call call = world_call(count);
	struct coll_request *r;

	if (world_make(&call, &r) != COLL_OK)
		return NULL;
	r->held = !stream;
	coll_request_submit(r, stream, 0);
	return r;
}

/* The same of a message to dest (-1: none) and one from source. */
static inline struct coll_request *world_message(int dest, int source, struct coll_stream *stream)
{
	const struct coll_pair pair = {
	        .dest = dest, .source = source, .type = COLL_F32, .send_count = 1, .recv_count = 1};
	struct coll_request *r = NULL;

	if (coll_exchange_make(comm, &pair, &r) != COLL_OK)
		return NULL;
	r->held = !stream;
	coll_request_submit(r, stream, 0);
	return r;
}

/* The run of collective `number` ends at its next poll, which happens now. */
static inline void world_end(uint64_t number)
{
	fake_engine_run_of(number)->polls = 0;
	coll_drive_try(comm->ctx);
}

static inline bool world_started(uint64_t number)
{
	return fake_engine_run_of(number) != NULL;
}

/* Waits for what has ended, and takes it back. */
static inline coll_status world_take_back(struct coll_request *r)
{
	const coll_status st = coll_request_await(r, 0);

	if (st != COLL_AGAIN)
		coll_request_recycle(r);
	return st;
}

#endif
