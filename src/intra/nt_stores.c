/*
 * How a call made by hand stores its results: src/engine/nt_policy.h chooses, and is told how
 * long the call's passes took.
 */
#include "intra/zero_copy.h"

void coll_native_stores_none(struct coll_native *n)
{
	n->stores = (struct native_stores){0};
}

void coll_native_stores_as(struct coll_native *n, bool stream)
{
	coll_native_stores_none(n);
	n->stores.choice.stream = stream;
}

void coll_native_stores_begin(struct coll_native *n, enum coll_stores_pass pass, size_t bytes)
{
	coll_native_stores_none(n);
	if (!n->fabric.stores)
		return;
	n->stores.pass = pass;
	n->stores.bytes = bytes;
	n->stores.choice = coll_stores_choose(n->fabric.stores, pass, bytes);
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

/* Memory that one rank's caller gives to the call. */
static size_t touched_bytes(const struct coll_job *job, bool in_place)
{
	const enum coll_kind kind = job->plan->kind;
	const bool blocks = kind == COLL_KIND_ALL_GATHER || kind == COLL_KIND_ALL_TO_ALL;
	const size_t out = job->in.count * job->elem_bytes * (blocks ? (size_t)job->plan->size : 1);
	const size_t in = kind == COLL_KIND_BROADCAST ? 0 : coll_native_reach_bytes(job, COLL_REACH_IN);

	if (in_place)
		return in > out ? in : out;
	return out + in;
}

static enum coll_stores_pass pass_of(const struct coll_job *job)
{
	if (!job->reduction)
		return COLL_STORES_COPY;
	return job->plan->kind == COLL_KIND_ALL_REDUCE ? COLL_STORES_SPREAD : COLL_STORES_SUM;
}

void coll_native_stores_direct(struct coll_native *n, const struct coll_job *job)
{
	const bool in_place = is_in_place(job, n->rank);

	if (job->reduction && in_place)
		coll_native_stores_none(n);
	else
		coll_native_stores_begin(n, pass_of(job), touched_bytes(job, in_place));
}

uint64_t coll_native_stores_since(const struct coll_native *n)
{
	return n->stores.choice.timed ? coll_clock_ns() : 0;
}

void coll_native_stores_until(struct coll_native *n, uint64_t since_ns)
{
	if (n->stores.choice.timed)
		n->stores.spent_ns += coll_clock_ns() - since_ns;
}

void coll_native_stores_end(struct coll_native *n)
{
	/* A rank that had nothing to store has found out nothing. */
	if (n->stores.choice.timed && n->stores.spent_ns > 0)
		coll_stores_took(n->fabric.stores, n->stores.pass, n->stores.bytes, n->stores.choice.stream,
		                 n->stores.spent_ns);
}
