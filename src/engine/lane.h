/*
 * Lanes: how far they are, and whether they may go on. Only looks.
 */
#ifndef COLL_ENGINE_LANE_H
#define COLL_ENGINE_LANE_H

#include "engine/order.h"
#include "engine/state.h"

static inline bool receives(const struct coll_step *s)
{
	return s->op == COLL_STEP_RECV || s->op == COLL_STEP_RECV_REDUCE || s->op >= COLL_STEP_RECV_COPY_SEND;
}

/* The run that is followed, as long as that operation has not retired. */
static inline const struct coll_run *predecessor(const struct coll_run *run)
{
	const struct coll_run *after = run->after;

	return after && after->job.sequence == run->after_sequence && after->status != COLL_OK ? after : NULL;
}

/* Whether a lane must not begin yet. It has begun when its first step or its first tile
 * is behind it: then it was free, and stays so. */
static inline bool gated(const struct coll_run *run, const struct instance *inst, uint32_t l)
{
	if (!run->after || mutant(MUTANT_IGNORE_AFTER))
		return false;
	if (inst->tile != inst->window || inst->lanes[l].head != inst->lanes[l].first)
		return false;
	return !coll_run_left(run->after, l, inst->window);
}

/* Steps of a lane that have retired, counted without a gap from its first. */
static inline uint32_t retired(const struct coll_run *run, const struct instance *inst, uint32_t l)
{
	const struct lane *lane = &inst->lanes[l];
	const struct coll_step *first = run->job.plan->steps + run->job.plan->lane_first[l];

	if (lane->flights && !mutant(MUTANT_COUNT_STARTED))
		return (uint32_t)(lane->flights->step - first);
	return (uint32_t)(lane->head - first);
}

static inline bool must_wait(const struct coll_run *run, const struct instance *inst, const struct coll_step *s)
{
	if (s->wait_count == 0 || mutant(MUTANT_IGNORE_WAITS))
		return false;
	if (run->job.plan->nlanes == 1 && inst->nflights == 0)
		return false; /* all steps before this one have retired */
	return retired(run, inst, s->wait_lane) < s->wait_count;
}

#endif
