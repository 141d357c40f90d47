/*
 * Counts of plans.
 */
#ifndef COLL_PLAN_COUNT_H
#define COLL_PLAN_COUNT_H

#include "plan/plan.h"

void coll_plan_count(const struct coll_plan *plan, struct coll_plan_counts *counts);

/* Communication rounds of the whole collective: the longest chain of frames. */
coll_status coll_plan_rounds(const struct coll_plan *const *plans, int size, uint32_t *rounds);

/* What leaves and enters each group of a level: out[g] and in[g] in chunks, each of `groups` entries. */
void coll_plan_group_counts(const struct coll_plan *const *plans, const struct coll_layout *layout, uint32_t level,
                            uint64_t *out, uint64_t *in);

#endif
