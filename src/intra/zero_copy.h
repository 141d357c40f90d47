/*
 * Long messages in buffers that all ranks map: what a rank does there, apart from when
 * it may; private to src/intra.
 */
#ifndef COLL_INTRA_ZERO_COPY_H
#define COLL_INTRA_ZERO_COPY_H

#include "intra/enter.h"
#include "intra/intra.h"

/* One pass: what all sources together are goes to all destinations; one source is copied. */
struct intra_pass {
	char *dst[COLL_INTRA_SIZE_MAX];
	const char *src[COLL_INTRA_SIZE_MAX];
	int ndst, nsrc;
	size_t bytes;
};

/* zero_copy.c */
coll_status coll_intra_poll_zero_copy(void *arg, const struct coll_job *job, struct coll_intra_state *s);
bool coll_intra_passes_zero_copy(void *arg, const struct coll_job *job);

/* The communicator has failed: its calls' buffers are the caller's from here on. NULL accepted. Nothing of it is
 * polled again. */
void coll_intra_revoke(struct coll_intra *intra);
const struct coll_intra_stats *coll_intra_stats(const struct coll_intra *intra);

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

#endif
