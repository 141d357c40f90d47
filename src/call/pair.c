/*
 * Send and receive between pairs: two one-step plans on channels of their own,
 * numbered per pair, so that they never disturb the order of collectives.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "call/pair.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/range.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/request.h"
#include "progress/wait.h"

/* The shape's root is the peer. */
static coll_status generate_send(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	coll_build_send(b, s->root, coll_in(0));
	return coll_build_status(b);
}

static coll_status generate_recv(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	coll_build_recv(b, s->root, coll_out(0));
	return coll_build_status(b);
}

coll_status coll_pair_plan(struct coll_comm *comm, int half, int peer, const struct coll_plan **plan)
{
	struct coll_shape shape = {
	        .kind = COLL_KIND_SEND_RECV, .rank = comm->rank, .size = comm->size, .root = peer, .uniform = true};
	coll_status st = coll_plan_cache_obtain(comm->plans, &shape, half ? "recv" : "send",
	                                        half ? generate_recv : generate_send, false, plan);

	if (st != COLL_OK)
		return coll_comm_refuse(comm, "send_recv", st, "cannot make a plan: %s", coll_status_string(st));
	return COLL_OK;
}

void coll_pair_job(const struct coll_comm *comm, const struct coll_pair *p, int half, const struct coll_plan *plan,
                   struct coll_job *job)
{
	const size_t count = half ? p->recv_count : p->send_count;
	/* All that a communicator serves: see coll_comm_serves(). */
	const struct coll_memory *host = coll_device_memory(COLL_DEVICE_HOST);

	*job = (struct coll_job){.plan = plan,
	                         .in = {.base = half ? NULL : (char *)(uintptr_t)p->send, .count = count, .mem = host},
	                         .out = {.base = half ? p->recv : NULL, .count = count, .mem = host},
	                         .elem_bytes = coll_dtype_size(p->type),
	                         .way = COLL_WAY_SEND_RECV,
	                         .windows = 2};
	job->tile = coll_run_tile(job->plan, job->elem_bytes, comm->slot_bytes);
	job->signature = (uint32_t)coll_hash_combine(coll_hash_combine(COLL_KIND_SEND_RECV, (uint64_t)p->type), count);
}

void coll_pair_record(const struct coll_comm *comm, const struct coll_pair *p, struct coll_record *record)
{
	*record = (struct coll_record){.comm = comm->id,
	                               .sequence = comm->sequence,
	                               .count = p->dest >= 0 ? p->send_count : p->recv_count,
	                               .active = 1,
	                               .kind = COLL_KIND_SEND_RECV,
	                               .type = (uint8_t)p->type,
	                               .op = p->source < 0 ? 0
	                                     : p->dest < 0 ? 1
	                                                   : 2,
	                               .root = p->dest >= 0 ? p->dest : p->source,
	                               .waits_for = -1};
}

/* The peer counts on the message of this number from here on: there is no way back. */
static coll_status start(struct coll_comm *comm, const struct coll_pair *p, int half, const struct coll_plan *plan,
                         struct coll_wait *wait)
{
	const int peer = coll_pair_peer(p, half);
	struct coll_job job;
	coll_status st;

	coll_pair_job(comm, p, half, plan, &job);
	job.sequence = coll_pair_number(comm, half, peer);
	wait->entries[wait->nruns] = coll_recorder_begin(
	        &comm->recorder, job.sequence,
	        coll_entry_what(0, COLL_KIND_SEND_RECV, (uint8_t)p->type, (uint8_t)half, COLL_WAY_SEND_RECV, false),
	        job.in.count, peer, 0);
	wait->runs[wait->nruns++] = comm->pair_run[half];
	st = coll_run_start(comm->pair_run[half], &comm->pairs.fabric, &job);
	if (st != COLL_OK)
		return coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	return COLL_OK;
}

static coll_status inline_pair(struct coll_comm *comm, const struct coll_pair *p)
{
	struct coll_record record;
	struct coll_wait wait = {.record = &record};
	const struct coll_plan *plans[2] = {NULL, NULL};
	coll_status st = COLL_OK;

	coll_error_clear(&comm->box);
	comm->prepared = NULL; /* the record is about another call now */
	for (int half = 0; half < 2 && st == COLL_OK; half++)
		if (coll_pair_peer(p, half) >= 0)
			st = coll_pair_plan(comm, half, coll_pair_peer(p, half), &plans[half]);
	coll_pair_record(comm, p, &record);
	coll_record_publish(&comm->record, &record);
	for (int half = 0; half < 2 && st == COLL_OK; half++)
		if (plans[half])
			st = start(comm, p, half, plans[half], &wait);
	if (st == COLL_OK && wait.nruns > 0)
		st = coll_comm_wait(comm, &wait);
	coll_recorder_end(&comm->recorder, wait.entries[0], st);
	coll_recorder_end(&comm->recorder, wait.entries[1], st);
	coll_record_retire(&comm->record, &record);
	coll_plan_cache_release(comm->plans, plans[0]);
	coll_plan_cache_release(comm->plans, plans[1]);
	return st;
}

coll_status coll_comm_pair(struct coll_comm *comm, const struct coll_pair *p)
{
	struct coll_request *r;
	coll_status st;

	if (p->stream || coll_comm_busy(comm)) {
		st = coll_request_pair(comm, p, &r);
		return st == COLL_OK ? coll_request_dispatch(r, p->stream) : st;
	}
	if (comm->failed)
		return comm->failed;
	if (!coll_pair_self(comm, p))
		return inline_pair(comm, p);
	if (p->send_count > 0) /* else either may be NULL */
		memmove(p->recv, p->send, p->send_count * coll_dtype_size(p->type));
	return COLL_OK;
}
