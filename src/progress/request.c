/*
 * One asynchronous operation: from the call to a request, its submission, its wait and its reuse.
 * This file owns what a request holds. inflight.c handles requests in flight.
 *
 * All functions run in the communicator's thread. Requests are reused with their copies of arrays,
 * runs and buffers, so a repeated call allocates nothing.
 */
#include "progress/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "core/error.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/begin.h"
#include "progress/drive.h"
#include "progress/group.h"
#include "progress/inflight.h"
#include "progress/persistent.h"
#include "progress/stage.h"
#include "progress/stage_chain.h"
#include "progress/stream.h"
#include "select/bind.h"
#include "select/bind_pair.h"

/* A longer one is freed with its request. */
enum { PACK_KEPT = 16 * COLL_STAGE_SLOT_BYTES };

/* ---- Creation and destruction ---- */

void coll_request_init(struct coll_request *r, struct coll_comm *comm)
{
	*r = (struct coll_request){.comm = comm};
	coll_list_init(&r->all);
	coll_list_init(&r->running);
	coll_list_init(&r->item);
}

void coll_request_fini(struct coll_request *r)
{
	if (r->comm) {
		coll_plan_cache_release(r->comm->plans, r->plan);
		coll_plan_cache_release(r->comm->plans, r->pair_plan[0]);
		coll_plan_cache_release(r->comm->plans, r->pair_plan[1]);
	}
	coll_run_destroy(&r->pair_run[0]);
	coll_run_destroy(&r->pair_run[1]);
	free(r->arrays);
	free(r->pack);
	free(r->tag);
}

struct coll_request *coll_request_take(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_request *r;

	if (!f->spare) {
		coll_async_lock(comm->ctx);
		r = f->done;
		f->done = NULL;
		pthread_mutex_unlock(&comm->ctx->async->lock);
		while (r) {
			struct coll_request *next = r->next;

			coll_request_recycle(r);
			r = next;
		}
	}
	r = f->spare;
	if (r) {
		f->spare = r->next;
		r->next = NULL;
		r->staged = false;
		return r;
	}
	r = malloc(sizeof(*r));
	if (r)
		coll_request_init(r, comm);
	return r;
}

void coll_request_recycle(struct coll_request *r)
{
	struct coll_request *part = r->parts;

	if (r->operation) {
		coll_operation_ended(r);
		return;
	}
	if (r->pack_cap > PACK_KEPT) {
		free(r->pack);
		r->pack = NULL;
		r->pack_cap = 0;
	}
	r->parts = NULL;
	r->shown = NULL;
	r->next = r->comm->inflight.spare;
	r->comm->inflight.spare = r;
	while (part) {
		struct coll_request *next = part->next_part;

		part->next_part = NULL;
		coll_request_recycle(part);
		part = next;
	}
}

coll_status coll_request_need_pack(struct coll_request *r, size_t bytes)
{
	if (bytes <= r->pack_cap)
		return COLL_OK;
	free(r->pack);
	r->pack_cap = 0;
	r->pack = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	if (!r->pack)
		return COLL_ERR_MEMORY;
	r->pack_cap = bytes;
	return COLL_OK;
}

/* ---- Collectives ---- */

/* The caller may change its arrays as soon as the call returns. */
static coll_status copy_arrays(struct coll_request *r)
{
	const size_t **from[4] = {&r->call.in_counts, &r->call.in_offsets, &r->call.out_counts, &r->call.out_offsets};
	const size_t size = (size_t)r->comm->size;
	size_t used = 0;

	for (int i = 0; i < 4; i++)
		used += *from[i] ? size : 0;
	if (used > r->arrays_cap) {
		free(r->arrays);
		r->arrays_cap = 0;
		r->arrays = malloc(used * sizeof(*r->arrays));
		if (!r->arrays)
			return COLL_ERR_MEMORY;
		r->arrays_cap = used;
	}
	used = 0;
	for (int i = 0; i < 4; i++) {
		if (!*from[i])
			continue;
		memcpy(r->arrays + used, *from[i], size * sizeof(*r->arrays));
		*from[i] = r->arrays + used;
		used += size;
	}
	return COLL_OK;
}

coll_status coll_request_bind(struct coll_request *r, const struct coll_call *c)
{
	struct coll_comm *comm = r->comm;
	struct coll_memo *memo;
	coll_status st = coll_call_remember(comm, c, &memo);

	if (st != COLL_OK)
		return st;
	r->kind = COLL_REQUEST_COLLECTIVE;
	r->call = *c;
	if (c->kind == COLL_KIND_BARRIER) {
		r->call.in = &r->token[0];
		r->call.out = &r->token[1];
		r->token[0] = 0;
	}
	if (copy_arrays(r) != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(c), COLL_ERR_MEMORY, "no memory for its counts");
	if (r->plan != memo->plan) {
		coll_plan_cache_release(comm->plans, r->plan);
		coll_plan_cache_pin(comm->plans, memo->plan);
		r->plan = memo->plan;
	}
	coll_call_job(comm, &r->call, memo, &r->job);
	if (coll_plan_kind_reduces(c->kind)) {
		r->reduction = memo->reduction;
		r->job.reduction = &r->reduction;
	}
	r->signature = r->job.signature;
	r->intra = r->job.intra;
	r->scratch_bytes = memo->scratch_bytes;
	return COLL_OK;
}

coll_status coll_request_call(struct coll_comm *comm, const struct coll_call *c, struct coll_request **req)
{
	struct coll_request *r = coll_request_take(comm);
	coll_status st;

	if (!r)
		return coll_comm_refuse(comm, coll_call_name(c), COLL_ERR_MEMORY, "no memory for a request");
	st = coll_request_bind(r, c);
	if (st != COLL_OK)
		coll_request_recycle(r);
	else
		*req = r;
	return st;
}

/* ---- Pairs ---- */

static coll_status bind_pair(struct coll_request *r, const struct coll_pair *p)
{
	struct coll_comm *comm = r->comm;
	struct coll_inflight *f = &comm->inflight;
	coll_status st = COLL_OK;

	r->kind = COLL_REQUEST_PAIR;
	r->pair = *p;
	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		coll_plan_cache_release(comm->plans, r->pair_plan[half]);
		r->pair_plan[half] = NULL;
		if (coll_pair_peer(p, half) < 0 || coll_pair_self(comm, p))
			continue;
		if (!f->pairs[half])
			f->pairs[half] = calloc((size_t)comm->size, sizeof(struct coll_request *));
		if (!f->pairs[half] || (!r->pair_run[half] && coll_run_create(&r->pair_run[half]) != COLL_OK))
			return coll_comm_refuse(comm, "send_recv", COLL_ERR_MEMORY, "no memory for a request");
		st = coll_pair_plan(comm, half, coll_pair_peer(p, half), &r->pair_plan[half]);
	}
	return st;
}

coll_status coll_request_pair(struct coll_comm *comm, const struct coll_pair *p, struct coll_request **req)
{
	struct coll_request *r = coll_request_take(comm);
	coll_status st;

	if (!r)
		return coll_comm_refuse(comm, "send_recv", COLL_ERR_MEMORY, "no memory for a request");
	st = bind_pair(r, p);
	if (st != COLL_OK)
		coll_request_recycle(r);
	else
		*req = r;
	return st;
}

/* ---- Submitting ---- */

void coll_request_sign(struct coll_request *r)
{
	const uint8_t flags = (r->shown ? COLL_RECORD_PREPARING : 0) | (r->parts ? COLL_RECORD_MERGED : 0);

	coll_begin_collective(r->comm, &r->call, r->shown ? &r->shown->call : &r->call, flags, r->intra, r->signature,
	                      &r->job, &r->record);
}

/* Make the flight recorder entries: one, or one for each half of a pair. */
static void record(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	const struct coll_stream *s = r->parts ? r->parts->stream : r->stream;
	const uint16_t stream = s ? s->number : 0;
	int n = 0;

	r->wait = (struct coll_wait){.record = &r->record};
	if (r->kind == COLL_REQUEST_COLLECTIVE) {
		coll_request_sign(r);
		r->wait.entries[0] =
		        coll_begin_entry(comm, &r->call, &r->record, r->signature, COLL_WAY_UNKNOWN, stream);
		return;
	}
	coll_pair_record(comm, &r->pair, &r->record);
	if (r->kind == COLL_REQUEST_TAG) {
		r->record.op = r->message;
		r->record.signature = (uint32_t)r->message_tag;
		r->wait.entries[0] = coll_begin_tag_entry(comm, &r->record, stream);
		return;
	}
	for (int half = 0; half < 2; half++)
		if (r->pair_plan[half])
			r->wait.entries[n++] =
			        coll_begin_pair_entry(comm, &r->pair, half, r->pair_sequence[half], stream);
}

coll_status coll_request_submit(struct coll_request *r, struct coll_stream *stream, uint64_t position)
{
	struct coll_comm *comm = r->comm;
	struct coll_async *a = comm->ctx->async;
	/* No thread waits for it here. */
	const bool leaves = stream || r->staged || (r->parts && !r->held) || r->kind == COLL_REQUEST_TAG;
	coll_status st;

	coll_operation_hand_over(comm);
	comm->prepared_for = NULL; /* drivers use the record and the channels now */
	r->stream = stream;
	r->status = COLL_AGAIN;
	r->lost = COLL_OK;
	r->enqueued = r->reached = false;
	r->ahead = (struct coll_intra_state){0};
	r->waiting_ns = 0;
	r->timer = (struct coll_wait_timer){0};
	r->follower[0] = r->follower[1] = NULL;
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
	coll_async_lock(comm->ctx);
	st = comm->failed;
	if (st != COLL_OK) {
		r->status = st;
	} else {
		coll_inflight_enter(r);
		record(r);
		if (stream)
			coll_stream_append(stream, r, position);
		if (r->parts)
			coll_group_join(r);
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

static bool is_done(void *arg)
{
	const struct coll_request *r = arg;

	if (r->staged)
		coll_stage_pace(r->comm);
	return atomic_load_explicit(&r->done, memory_order_acquire);
}

coll_status coll_request_await(struct coll_request *r, int timeout_ms)
{
	coll_status st;

	if (r->staged) {
		st = coll_stage_await(r->comm->ctx, r->comm, is_done, r, timeout_ms);
		if (timeout_ms < 0)
			coll_stage_end_pace(r->comm);
		return st == COLL_OK ? r->status : st;
	}
	atomic_store_explicit(&r->awaited, timeout_ms < 0, memory_order_relaxed);
	st = coll_async_await_comm(r->comm, is_done, r, timeout_ms);
	atomic_store_explicit(&r->awaited, false, memory_order_relaxed);
	return st == COLL_OK ? r->status : st;
}

coll_status coll_request_launch(struct coll_request *r, struct coll_stream *stream)
{
	struct coll_stage_batch staged = {NULL};
	coll_status st = coll_stage_add(&staged, r, stream);

	if (st == COLL_OK)
		st = coll_stage_deal(&staged);
	if (st != COLL_OK || r->in_graph)
		return st;
	st = coll_request_submit(r, stream, 0);
	/* A failure from here on ends the request: its stream, or whoever waits for it, gets the error. */
	if (st == COLL_OK)
		coll_stage_enqueue(&staged);
	return st;
}

coll_status coll_request_dispatch(struct coll_request *r, struct coll_stream *stream)
{
	coll_status st;

	if (coll_group.depth > 0) {
		coll_group_add(r, stream);
		return COLL_OK;
	}
	r->held = !stream;
	st = coll_request_launch(r, stream);
	if ((st == COLL_OK && stream) || r->in_graph)
		return st;
	if (st == COLL_OK && r->kind == COLL_REQUEST_TAG)
		r->comm->ctx->async->tags->about_to_wait(r);
	if (st == COLL_OK)
		st = coll_request_await(r, -1);
	coll_request_recycle(r);
	return st;
}
