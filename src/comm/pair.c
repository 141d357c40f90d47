/*
 * Send and receive between pairs: two one-step plans on channels of their own,
 * numbered per pair, so that they never disturb the order of collectives.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "comm/comm.h"
#include "comm/judge.h"

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

/* The plan of one half, pinned until the call has ended. */
static coll_status find_plan(struct coll_comm *comm, int half, int peer, const struct coll_plan **plan)
{
	struct coll_shape shape = {
	        .kind = COLL_KIND_SEND_RECV, .rank = comm->rank, .size = comm->size, .root = peer, .uniform = true};
	coll_status st = coll_plan_cache_obtain(comm->plans, &shape, half ? "recv" : "send",
	                                        half ? generate_recv : generate_send, false, plan);

	if (st != COLL_OK)
		return coll_comm_refuse(comm, "send_recv", st, "cannot make a plan: %s", coll_status_string(st));
	return COLL_OK;
}

/* The peer counts on the message of this number from here on: there is no way back. */
static coll_status start(struct coll_comm *comm, int half, const struct coll_plan *plan, const void *send, void *recv,
                         size_t count, coll_dtype type, int peer)
{
	struct coll_job job = {.plan = plan,
	                       .in = {.base = (char *)(uintptr_t)send, .count = count},
	                       .out = {.base = recv, .count = count},
	                       .elem_bytes = coll_dtype_size(type),
	                       .windows = 2};
	coll_status st;

	job.tile = coll_run_tile(job.plan, job.elem_bytes, comm->slot_bytes);
	job.sequence = ++comm->pair_sequence[half][peer];
	job.signature = (uint32_t)coll_hash_combine(coll_hash_combine(COLL_KIND_SEND_RECV, (uint64_t)type), count);
	st = coll_run_start(comm->pair_run[half], &comm->pairs.fabric, &job);
	if (st != COLL_OK)
		return coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	return COLL_OK;
}

coll_status coll_comm_pair(struct coll_comm *comm, const void *send, size_t send_count, int dest, void *recv,
                           size_t recv_count, int source, coll_dtype type)
{
	struct coll_record record = {.comm = comm->id,
	                             .sequence = comm->sequence,
	                             .count = dest >= 0 ? send_count : recv_count,
	                             .active = 1,
	                             .kind = COLL_KIND_SEND_RECV,
	                             .type = (uint8_t)type,
	                             .op = source < 0 ? 0
	                                   : dest < 0 ? 1
	                                              : 2,
	                             .root = dest >= 0 ? dest : source,
	                             .waits_for = -1};
	struct coll_wait wait = {.record = &record};
	const struct coll_plan *plans[2] = {NULL, NULL};
	coll_status st = COLL_OK;

	if (comm->failed)
		return comm->failed;
	if (dest == comm->rank && source == comm->rank) {
		if (send_count > 0) /* else either may be NULL */
			memmove(recv, send, send_count * coll_dtype_size(type));
		return COLL_OK;
	}
	coll_error_clear(&comm->box);
	comm->prepared = NULL; /* the record is about another call now */
	if (dest >= 0)
		st = find_plan(comm, 0, dest, &plans[0]);
	if (st == COLL_OK && source >= 0)
		st = find_plan(comm, 1, source, &plans[1]);
	coll_record_publish(&comm->record, &record);
	if (st == COLL_OK && dest >= 0) {
		st = start(comm, 0, plans[0], send, NULL, send_count, type, dest);
		wait.runs[wait.nruns++] = comm->pair_run[0];
	}
	if (st == COLL_OK && source >= 0) {
		st = start(comm, 1, plans[1], NULL, recv, recv_count, type, source);
		wait.runs[wait.nruns++] = comm->pair_run[1];
	}
	for (int i = 0; i < wait.nruns; i++) {
		const int half = wait.runs[i] == comm->pair_run[1];
		const int peer = half ? source : dest;

		wait.entries[i] = coll_recorder_begin(
		        &comm->recorder, comm->pair_sequence[half][peer],
		        coll_entry_what(0, COLL_KIND_SEND_RECV, (uint8_t)type, (uint8_t)half, false),
		        half ? recv_count : send_count, peer, 0);
	}
	if (st == COLL_OK && wait.nruns > 0)
		st = coll_comm_wait(comm, &wait);
	coll_recorder_end(&comm->recorder, wait.entries[0], st);
	coll_recorder_end(&comm->recorder, wait.entries[1], st);
	coll_record_retire(&comm->record, &record);
	coll_plan_cache_release(comm->plans, plans[0]);
	coll_plan_cache_release(comm->plans, plans[1]);
	return st;
}
