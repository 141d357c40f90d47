/*
 * The operation before: what a run may do while the one it follows is not through.
 *
 * A lane of the next operation begins when the operation before has left it, down the whole
 * chain, and operations retire in order. A run only looks at those before it.
 */
#include "engine/order.h"

#include "engine/lane.h"

void coll_run_follow(struct coll_run *run, const struct coll_run *after)
{
	if (!after || after->status == COLL_OK)
		return;
	assert(after != run);
	assert(after->fabric == run->fabric);
	run->after = after;
	run->after_sequence = after->job.sequence;
	run->held = true;
	run->status = COLL_AGAIN; /* without tiles too: operations end in order */
}

static bool all_posted(const struct lane *lane)
{
	for (const struct flight *f = lane->flights; f; f = f->next)
		if (f->parked && !mutant(MUTANT_LEAVE_PARKED))
			return false;
	return true;
}

/* A run's own part of coll_run_left(). */
static bool left_lane(const struct coll_run *run, uint32_t l, uint32_t w)
{
	const struct instance *inst;
	const struct lane *lane;

	/* Without a plan: no channel at all, unless the plan may still be run. */
	if (run->intranode)
		return run->status == COLL_OK || run->intra.committed || !run->job.plan;
	if (run->status == COLL_OK || w >= run->windows || l >= run->bound_lanes || !run->instances[w].active)
		return true;
	inst = &run->instances[w];
	lane = &inst->lanes[l];
	if (inst->tile + run->windows < run->tiles && !mutant(MUTANT_LEAVE_FIRST_TILE))
		return false;
	if (mutant(MUTANT_LEAVE_LAST_STEP) && lane->head + 1 >= lane->end)
		return true;
	return lane->head == lane->end && all_posted(lane);
}

bool coll_run_left(const struct coll_run *run, uint32_t lane, uint32_t window)
{
	/* Down the whole chain: one in the middle may not use this lane at all. It ends at
	 * what has retired, because operations retire in order. */
	for (; run; run = predecessor(run)) {
		if (!left_lane(run, lane, window))
			return false;
		if (mutant(MUTANT_LEAVE_UNCHAINED))
			return true;
	}
	return true;
}
