/*
 * Binding a send or a receive: the one-step plan of each half, its job, its record.
 */
#include "select/bind_pair.h"

#include <string.h>

#include "base/hash.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/range.h"

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

coll_status coll_pair_plan_from(struct coll_comm *comm, struct coll_plan_cache *plans, int half, int peer,
                                const struct coll_plan **plan)
{
	const struct coll_shape shape = {
	        .kind = COLL_KIND_SEND_RECV, .rank = comm->rank, .size = comm->size, .root = peer, .uniform = true};

	return coll_plan_cache_obtain(plans, &shape, half ? "recv" : "send", half ? generate_recv : generate_send,
	                              false, plan);
}

coll_status coll_pair_plan(struct coll_comm *comm, int half, int peer, const struct coll_plan **plan)
{
	const coll_status st = coll_pair_plan_from(comm, comm->plans, half, peer, plan);

	if (st != COLL_OK)
		return coll_comm_refuse(comm, "send_recv", st, "cannot make a plan: %s", coll_status_string(st));
	return COLL_OK;
}

void coll_pair_job(const struct coll_comm *comm, const struct coll_pair *p, int half, const struct coll_plan *plan,
                   struct coll_job *job)
{
	const size_t count = half ? p->recv_count : p->send_count;
	/* The only kind that a communicator serves: see coll_comm_serves(). */
	const struct coll_memory *host = coll_device_memory(COLL_DEVICE_HOST);

	*job = (struct coll_job){.plan = plan,
	                         .in = {.base = half ? NULL : (char *)(uintptr_t)p->send, .count = count, .mem = host},
	                         .out = {.base = half ? p->recv : NULL, .count = count, .mem = host},
	                         .elem_bytes = coll_dtype_size(p->type),
	                         .way = COLL_WAY_SEND_RECV,
	                         .windows = 2};
	job->tile = coll_run_tile(job->plan, job->elem_bytes, comm->slot_bytes);
	if (comm->facts.devices && job->tile > coll_stage_tile(job->elem_bytes, 1))
		job->tile = coll_stage_tile(job->elem_bytes, 1);
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
