/*
 * Packing: single steps, grouped by lane, become a plan in one allocation.
 */
#ifndef COLL_PLAN_PACK_H
#define COLL_PLAN_PACK_H

#include "plan/plan.h"

/* A step with its peers as ranks (-1: none). */
struct coll_loose_step {
	struct coll_step step;
	int recv_from;
	int send_to;
	uint32_t weight_first; /* in the list of weights */
	uint32_t weight_count;
};

struct coll_loose_lane {
	struct coll_loose_step *steps; /* malloc */
	uint32_t count;
	uint32_t capacity;
};

coll_status coll_loose_push(struct coll_loose_lane *lane, const struct coll_loose_step *step);

/* head gives every scalar but npeers, nlanes, lane_first and bytes; scratch has
 * head->nscratch entries. */
coll_status coll_plan_pack(const struct coll_plan *head, const struct coll_loose_lane lanes[COLL_LANES_MAX],
                           const struct coll_plan_scratch *scratch, const struct coll_plan_weight *weights,
                           struct coll_plan **plan);

/* Copy a plan to memory of plan->bytes bytes, or into an allocation of its own. */
void coll_plan_copy_to(const struct coll_plan *plan, struct coll_plan *to);
coll_status coll_plan_copy(const struct coll_plan *plan, struct coll_plan **copy);

#endif
