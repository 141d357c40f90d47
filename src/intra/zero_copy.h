/*
 * Long messages in buffers that all ranks map: what a rank does there, apart from when
 * it may; private to src/intra.
 */
#ifndef COLL_INTRA_ZERO_COPY_H
#define COLL_INTRA_ZERO_COPY_H

#include "intra/enter.h"

/* One pass: what all sources together are goes to all destinations; one source is copied. */
struct intra_pass {
	char *dst[COLL_INTRA_SIZE_MAX];
	const char *src[COLL_INTRA_SIZE_MAX];
	int ndst, nsrc;
	size_t bytes;
};

/* Which buffers of `owner` this rank reads or writes in a call. Agreed facts alone. */
static inline bool coll_intra_uses(const struct coll_job *job, int rank, int owner, int which)
{
	const bool broadcast = job->plan->kind == COLL_KIND_BROADCAST;

	if (which == COLL_REACH_OUT)
		return job->plan->kind == COLL_KIND_ALL_REDUCE ||
		       (broadcast && job->plan->size == 2 && rank == job->plan->root && rank != owner);
	return !broadcast || (owner == job->plan->root && rank != owner);
}

/* It cannot be done without. */
static inline bool coll_intra_requires(const struct coll_job *job, int which)
{
	return job->plan->kind != COLL_KIND_BROADCAST || which == COLL_REACH_IN;
}

/* Bytes of such a buffer. */
size_t coll_intra_reach_bytes(const struct coll_job *job, int which);
/* The k-th pass of this rank; false: there are no more. */
bool coll_intra_pass(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *pass);
/* All passes of all ranks are done: what is left to do with our own result. */
void coll_intra_finish_edges(const struct coll_intra *n, const struct coll_job *job);

#endif
