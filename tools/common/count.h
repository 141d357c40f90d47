/*
 * Counts of plans.
 */
#ifndef COLL_TOOLS_COUNT_H
#define COLL_TOOLS_COUNT_H

#include "plan/plan.h"

/* Counts that do not drift, for tests and coll-plan. Bytes are in units of one
 * vector (vector kinds) or one block (block kinds), as exact fractions of
 * chunks: sent_chunks / chunks. */
struct coll_plan_counts {
	uint32_t steps;
	uint32_t sends;
	uint32_t recvs;
	uint64_t sent_chunks;
	uint64_t received_chunks;
};

void coll_plan_count(const struct coll_plan *plan, struct coll_plan_counts *counts);

/* Communication rounds of the whole collective: the longest chain of frames. */
coll_status coll_plan_rounds(const struct coll_plan *const *plans, int size, uint32_t *rounds);

/* What leaves and enters each group of a level: out[g] and in[g] in chunks, each of `groups` entries. */
void coll_plan_group_counts(const struct coll_plan *const *plans, const struct coll_layout *layout, uint32_t level,
                            uint64_t *out, uint64_t *in);

#endif
