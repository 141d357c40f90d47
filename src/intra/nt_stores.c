/*
 * How a call run intranode stores its results: src/engine/nt_policy.h chooses, and is told how
 * long the call's passes took.
 */
#include "intra/nt_stores.h"

#include "intra/shape.h"
#include "intra/zero_copy.h"
#include "intra/zero_copy_plan.h"

void coll_intra_nt_none(struct coll_intra *n)
{
	n->nt = (struct intra_nt){0};
}

void coll_intra_nt_as(struct coll_intra *n, bool stream)
{
	coll_intra_nt_none(n);
	n->nt.choice.stream = stream;
}

void coll_intra_nt_begin(struct coll_intra *n, enum coll_nt_pass pass, size_t bytes)
{
	coll_intra_nt_none(n);
	if (!n->fabric.nt)
		return;
	n->nt.pass = pass;
	n->nt.bytes = bytes;
	n->nt.choice = coll_nt_choose(n->fabric.nt, pass, bytes);
}

void coll_intra_nt_slots(struct coll_intra *n, const struct coll_intra_state *s, size_t bytes, bool cached)
{
	if (s->trial)
		coll_intra_nt_as(n, coll_intra_streams(n->pull.way));
	else if (cached || n->fabric.way == COLL_INTRA_CACHED)
		coll_intra_nt_none(n);
	else if (n->fabric.way == COLL_INTRA_STREAMED)
		coll_intra_nt_as(n, true);
	else
		coll_intra_nt_begin(n, COLL_NT_STAGED, bytes);
}

/* Whether the rank's input and result overlap, where each kind may have it so. */
static bool is_in_place(const struct coll_job *job, int rank)
{
	const size_t block = (size_t)rank * job->in.count * job->elem_bytes;

	switch (job->plan->kind) {
	case COLL_KIND_ALL_GATHER: return (uintptr_t)job->in.base == (uintptr_t)job->out.base + block;
	case COLL_KIND_REDUCE_SCATTER: return (uintptr_t)job->out.base == (uintptr_t)job->in.base + block;
	default: return job->in.base == job->out.base;
	}
}

static enum coll_nt_pass pass_of(const struct coll_job *job)
{
	if (!job->reduction)
		return COLL_NT_COPY;
	return job->plan->kind == COLL_KIND_ALL_REDUCE ? COLL_NT_SPREAD : COLL_NT_SUM;
}

void coll_intra_nt_direct(struct coll_intra *n, const struct coll_job *job)
{
	const bool in_place = is_in_place(job, n->rank);

	if (job->reduction && in_place)
		coll_intra_nt_none(n);
	else
		coll_intra_nt_begin(n, pass_of(job), coll_intra_touched_bytes(job, in_place));
}

uint64_t coll_intra_nt_since(const struct coll_intra *n)
{
	return n->nt.choice.timed ? coll_clock_ns() : 0;
}

void coll_intra_nt_until(struct coll_intra *n, uint64_t since_ns)
{
	if (n->nt.choice.timed)
		n->nt.spent_ns += coll_clock_ns() - since_ns;
}

void coll_intra_nt_end(struct coll_intra *n)
{
	/* A rank that had nothing to store has found out nothing. */
	if (n->nt.choice.timed && n->nt.spent_ns > 0)
		coll_nt_took(n->fabric.nt, n->nt.pass, n->nt.bytes, n->nt.choice.stream, n->nt.spent_ns);
}
