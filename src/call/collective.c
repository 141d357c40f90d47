/*
 * Collectives as requests: from the call to a bound job, its place among the collectives of its communicator, its run.
 *
 * At most COLL_IN_FLIGHT_MAX of a communicator run at once, each in a slot that has a run and scratch memory. They
 * start in the order of calls and overlap lane by lane (coll_run_follow).
 */
#include "call/collective.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "call/begin.h"
#include "core/error.h"
#include "engine/run.h"
#include "engine/stage.h"
#include "inflight/drive.h"
#include "inflight/queue.h"
#include "select/bind.h"

/* A longer one is freed with its request. */
enum { PACK_KEPT = 16 * COLL_STAGE_SLOT_BYTES };

/* ---- From the call ---- */

/* The caller may change its arrays as soon as the call returns. */
static coll_status copy_arrays(struct coll_collective_request *c)
{
	const size_t **from[4] = {&c->call.in_counts, &c->call.in_offsets, &c->call.out_counts, &c->call.out_offsets};
	const size_t size = (size_t)c->request.comm->size;
	size_t used = 0;

	for (int i = 0; i < 4; i++)
		used += *from[i] ? size : 0;
	if (used > c->arrays_cap) {
		free(c->arrays);
		c->arrays_cap = 0;
		c->arrays = malloc(used * sizeof(*c->arrays));
		if (!c->arrays)
			return COLL_ERR_MEMORY;
		c->arrays_cap = used;
	}
	used = 0;
	for (int i = 0; i < 4; i++) {
		if (!*from[i])
			continue;
		memcpy(c->arrays + used, *from[i], size * sizeof(*c->arrays));
		*from[i] = c->arrays + used;
		used += size;
	}
	return COLL_OK;
}

coll_status coll_collective_bind(struct coll_collective_request *c, const struct coll_call *call)
{
	struct coll_comm *comm = c->request.comm;
	struct coll_memo *memo;
	coll_status st = coll_call_remember(comm, call, &memo);

	if (st != COLL_OK)
		return st;
	c->call = *call;
	if (call->kind == COLL_KIND_BARRIER) {
		c->call.in = &c->token[0];
		c->call.out = &c->token[1];
		c->token[0] = 0;
	}
	if (copy_arrays(c) != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(call), COLL_ERR_MEMORY, "no memory for its counts");
	if (c->plan != memo->plan) {
		coll_plan_cache_release(comm->plans, c->plan);
		coll_plan_cache_pin(comm->plans, memo->plan);
		c->plan = memo->plan;
	}
	coll_call_job(comm, &c->call, memo, &c->job);
	if (coll_plan_kind_reduces(call->kind)) {
		c->reduction = memo->reduction;
		c->job.reduction = &c->reduction;
	}
	c->signature = c->job.signature;
	c->intra = c->job.intra;
	c->scratch_bytes = memo->scratch_bytes;
	return COLL_OK;
}

coll_status coll_collective_need_pack(struct coll_collective_request *c, size_t bytes)
{
	if (bytes <= c->pack_cap)
		return COLL_OK;
	free(c->pack);
	c->pack_cap = 0;
	c->pack = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	if (!c->pack)
		return COLL_ERR_MEMORY;
	c->pack_cap = bytes;
	return COLL_OK;
}

/* ---- Order ---- */

void coll_collective_sign(struct coll_collective_request *c)
{
	const uint8_t flags = (c->named ? COLL_RECORD_PREPARING : 0) | (c->parts ? COLL_RECORD_MERGED : 0);

	coll_begin_collective(c->request.comm, &c->call, c->named ? &c->named->call : &c->call, flags, c->intra,
	                      c->signature, &c->job, &c->request.record);
}

void coll_collective_enter(struct coll_request *r)
{
	struct coll_collective_request *c = coll_collective_of(r);
	const struct coll_stream *s = c->parts ? c->parts->stream : r->stream;

	c->job.sequence = ++r->comm->sequence;
	coll_inflight_queue(r, 0, &r->comm->inflight.tail);
	coll_collective_sign(c);
	r->wait.entries[0] =
	        coll_begin_entry(r->comm, &c->call, &r->record, c->signature, COLL_WAY_UNKNOWN, s ? s->number : 0);
}

static coll_status need_scratch(struct coll_slot *s, size_t bytes)
{
	void *p;

	if (!s->run && coll_run_create(&s->run) != COLL_OK)
		return COLL_ERR_MEMORY;
	if (bytes <= s->scratch_bytes)
		return COLL_OK;
	if (posix_memalign(&p, 4096, bytes))
		return COLL_ERR_MEMORY;
	free(s->scratch);
	s->scratch = p;
	s->scratch_bytes = bytes;
	return COLL_OK;
}

static struct coll_slot *free_slot(struct coll_inflight *f)
{
	for (int i = 0; i < COLL_IN_FLIGHT_MAX; i++)
		if (!(f->busy & 1 << i))
			return &f->slots[i];
	return NULL;
}

coll_status coll_collective_run(struct coll_collective_request *c)
{
	struct coll_comm *comm = c->request.comm;
	coll_status st;

	c->slot = free_slot(&comm->inflight);
	st = need_scratch(c->slot, c->scratch_bytes);
	if (st != COLL_OK)
		return st;
	comm->inflight.busy |= (uint8_t)(1 << (c->slot - comm->inflight.slots));
	c->job.scratch = c->slot->scratch;
	c->request.wait.runs[0] = c->slot->run;
	return coll_run_start(c->slot->run, &comm->collective.fabric, &c->job);
}

coll_status coll_collective_start(struct coll_request *r, coll_status (*run)(struct coll_collective_request *c))
{
	struct coll_collective_request *c = coll_collective_of(r);
	struct coll_inflight *f = &r->comm->inflight;
	coll_status st;

	if (f->started == COLL_IN_FLIGHT_MAX) {
		f->stalled = r; /* the collectives behind it wait for it */
		return COLL_OK;
	}
	coll_inflight_started(r);
	/* The device orders direct calls, and a staged call before one may need what is behind it in a stream. */
	c->job.after = f->last && !(c->job.stage && c->job.stage->direct) ? f->last->wait.runs[0] : NULL;
	st = run(c);
	r->wait.nruns = r->wait.runs[0] != NULL; /* none: its allocation failed */
	f->started++;
	f->begun = c->job.sequence;
	f->last = r;
	coll_inflight_pass(r, 0);
	coll_inflight_publish(r->comm, NULL);
	return st;
}

static coll_status start(struct coll_request *r)
{
	return coll_collective_start(r, coll_collective_run);
}

enum coll_limit coll_collective_limited(struct coll_request *r)
{
	return r->wait.nruns > 0 ? COLL_LIMITED_OLDEST : COLL_UNLIMITED;
}

void coll_collective_leave(struct coll_request *r)
{
	struct coll_collective_request *c = coll_collective_of(r);
	struct coll_inflight *f = &r->comm->inflight;

	if (f->last == r)
		f->last = NULL;
	if (f->stalled == r)
		f->stalled = NULL;
	coll_inflight_pass(r, 0);
	if (r->state != COLL_REQUEST_RUNNING)
		return;
	f->started--;
	if (c->slot)
		f->busy &= (uint8_t) ~(1 << (c->slot - f->slots));
	c->slot = NULL;
	if (f->stalled)
		coll_inflight_make_ready(f->stalled);
	f->stalled = NULL;
}

/* ---- Reuse ---- */

void coll_collective_recycle(struct coll_request *r)
{
	struct coll_collective_request *c = coll_collective_of(r);

	if (c->pack_cap > PACK_KEPT) {
		free(c->pack);
		c->pack = NULL;
		c->pack_cap = 0;
	}
	c->named = NULL;
	coll_request_give(r);
}

void coll_collective_fini(struct coll_request *r)
{
	struct coll_collective_request *c = coll_collective_of(r);

	if (r->comm)
		coll_plan_cache_release(r->comm->plans, c->plan);
	free(c->arrays);
	free(c->pack);
}

static const struct coll_request_kind collective = {.name = "collective",
                                                    .merges = true,
                                                    .enter = coll_collective_enter,
                                                    .start = start,
                                                    .poll = coll_drive_poll,
                                                    .limited = coll_collective_limited,
                                                    .leave = coll_collective_leave,
                                                    .recycle = coll_collective_recycle,
                                                    .fini = coll_collective_fini};

coll_status coll_collective_make(struct coll_comm *comm, const struct coll_call *call,
                                 struct coll_collective_request **out)
{
	struct coll_request *r =
	        coll_request_take(comm, &collective, COLL_IS_COLLECTIVE, sizeof(struct coll_collective_request));
	coll_status st;

	if (!r)
		return coll_comm_refuse(comm, coll_call_name(call), COLL_ERR_MEMORY, "no memory for a request");
	st = coll_collective_bind(coll_collective_of(r), call);
	if (st != COLL_OK)
		coll_request_recycle(r);
	else
		*out = coll_collective_of(r);
	return st;
}
