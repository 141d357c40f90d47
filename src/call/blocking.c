/*
 * One blocking collective call: from the shape to a bound job, which runs inline.
 *
 * A call of a known shape costs one look-up in the memo: no selection, no plan, no allocation. The
 * choice of the algorithm depends on agreed facts only.
 */
#include "call/blocking.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/planted.h"
#include "call/begin.h"
#include "call/collective.h"
#include "call/fastpath.h"
#include "call/issue.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/range.h"
#include "engine/run.h"
#include "inflight/drive.h"
#include "select/bind.h"

static coll_status need_scratch(struct coll_comm *comm, size_t bytes)
{
	void *p;

	if (bytes <= comm->scratch_bytes)
		return COLL_OK;
	if (posix_memalign(&p, 4096, bytes))
		return COLL_ERR_MEMORY;
	free(comm->scratch);
	comm->prepared_for = NULL;
	comm->scratch = p;
	comm->scratch_bytes = bytes;
	return COLL_OK;
}

/* Bind comm->run and the record to a call. */
static coll_status prepare(struct coll_comm *comm, const struct coll_call *c, struct coll_memo *memo)
{
	struct coll_job job;
	coll_status st;

	coll_call_job(comm, c, memo, &job);
	job.reduction = coll_plan_kind_reduces(c->kind) ? &memo->reduction : NULL;
	job.scratch = comm->scratch;
	job.sequence = comm->sequence;
	coll_begin_collective(comm, c, c, 0, memo->intra, job.signature, &job, &comm->call);
	coll_record_publish(&comm->record, &comm->call);
	comm->prepared_for = NULL;
	st = coll_run_start(comm->run, &comm->collective.fabric, &job);
	if (st != COLL_OK) {
		coll_record_retire(&comm->record, &comm->call);
		st = coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
		return coll_comm_keep(comm, st);
	}
	/* The count arrays belong to the caller. The library must not read them after the call. */
	if (!c->ragged && !c->pairwise && job.intra == memo->intra)
		comm->prepared_for = comm->prepared_memo = memo;
	coll_fastpath_prepare(comm, c, memo, &job);
	return COLL_OK;
}

/* The call repeats the last one. Its buffers may differ. */
static inline void prepare_again(struct coll_comm *comm, const struct coll_call *c)
{
	comm->call.sequence = comm->sequence;
	comm->call.active = 1;
	coll_record_again(&comm->record, &comm->call);
	coll_run_restart(comm->run, c->in, c->out, comm->sequence);
}

static inline coll_status begin(struct coll_comm *comm, const struct coll_call *c)
{
	struct coll_memo *memo;
	coll_status st;

	if (comm->failed)
		return coll_comm_keep(comm, comm->failed);
	st = coll_call_remember(comm, c, &memo);
	if (st != COLL_OK)
		return st;
	st = need_scratch(comm, memo->scratch_bytes);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(c), st, "no memory for %zu bytes of scratch",
		                        memo->scratch_bytes);
	comm->sequence++;
	comm->box.status = COLL_OK;
	if (comm->prepared_for == memo)
		prepare_again(comm, c);
	else
		st = prepare(comm, c, memo);
	return st;
}

coll_status coll_comm_begin(struct coll_comm *comm, const struct coll_call *c)
{
	return begin(comm, c);
}

/* Issue the call as a request: it is in a group or on a stream, or other operations are pending. */
static coll_status hand_in(struct coll_comm *comm, const struct coll_call *c)
{
	struct coll_collective_request *r;
	coll_status st;

	st = coll_collective_make(comm, c, &r);
	return st == COLL_OK ? coll_request_dispatch(&r->request, c->stream) : st;
}

coll_status coll_comm_call(struct coll_comm *comm, const struct coll_call *c)
{
	struct coll_wait wait = {.runs = {comm->run}, .nruns = 1, .record = &comm->call};
	const bool small = comm->ctx->dedicated_cores && c->count <= COLL_SHORT_COUNT;
	uint64_t began_ns;
	coll_status st;

	if (__builtin_expect(c->stream || comm->stage || coll_comm_busy(comm), false))
		return hand_in(comm, c);
	st = begin(comm, c);
	if (st != COLL_OK)
		return st;
	/* A small call gets its recorder entry while its first frames travel, so the entry costs no
	 * time. The call is not timed if it ends in its first polls: two clock reads would take a
	 * tenth of it. */
	if (small)
		coll_run_poll(comm->run, NULL); /* an error is sticky: the wait below returns it */
	wait.entries[0] = coll_begin_entry(comm, c, &comm->call, comm->call.signature, coll_run_way(comm->run), 0);
	began_ns = planted(WRONG_BYTE) ? coll_clock_ns() : 0;
	st = coll_finish_inline(comm, &wait, &comm->call, small);
	if (planted(WRONG_BYTE) && coll_clock_ns() - began_ns > 40000000 && c->out && c->count > 0)
		((char *)c->out)[c->count * coll_dtype_size(c->type) - 1] ^= 1;
	return st;
}
