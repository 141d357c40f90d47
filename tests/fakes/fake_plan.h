/*
 * A plan cache with one plan, whatever is asked for, and a builder that counts.
 */
#ifndef COLL_FAKES_FAKE_PLAN_H
#define COLL_FAKES_FAKE_PLAN_H

#include "plan/cache.h"

extern struct fake_plan {
	struct coll_plan plan;
	int pins; /* obtained or pinned, less released */
	int obtained;
	struct coll_shape shape; /* the last that was asked for, and by which name */
	const char *algo;
	coll_algo_fn generate;
	coll_status refuse; /* coll_plan_cache_obtain() returns it */
	/* Steps built since the reset, and whom the last one was with. */
	int sends, recvs, peer;
} fake_plan;

void fake_plan_reset(void);

#endif
