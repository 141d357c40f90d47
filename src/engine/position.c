/*
 * Diagnosis: where a run is, and whom it waits for. Only looks.
 */
#include "engine/position.h"

#include "engine/lane.h"

/* The unfinished tile that started first. */
static const struct instance *oldest(const struct coll_run *run)
{
	const struct instance *found = NULL;

	for (uint32_t w = 0; w < run->windows; w++) {
		const struct instance *inst = &run->instances[w];

		if (inst->active && (!found || inst->tile < found->tile))
			found = inst;
	}
	return found;
}

/* Follow waits from lane to lane until one waits for another rank. */
static void blame(const struct coll_run *run, const struct instance *inst, uint32_t l, struct coll_run_where *where)
{
	const struct coll_plan *plan = run->job.plan;
	const struct lane *lane = &inst->lanes[l];
	const struct coll_step *s = lane->head;

	for (uint32_t hops = 0; hops < plan->nlanes && lane->head < lane->end && must_wait(run, inst, s); hops++) {
		lane = &inst->lanes[s->wait_lane];
		s = lane->flights ? lane->flights->step : lane->head;
		if (lane->flights)
			break;
	}
	if (s >= lane->end && lane->flights)
		s = lane->flights->step;
	where->lane = (uint32_t)(lane - inst->lanes);
	where->step = (uint32_t)(s - plan->steps);
	where->behind = gated(run, inst, where->lane);
	if (s >= lane->end)
		return;
	if (s->op == COLL_STEP_SEND || (lane->lacks_slot && s == lane->head))
		where->sends = true, where->peer = plan->peers[s->peer_send];
	else if (receives(s))
		where->peer = plan->peers[s->peer_recv];
}

/* One run alone: where->behind says that the run before is to be asked. */
static void look_into(const struct coll_run *run, struct coll_run_where *where)
{
	const struct instance *inst = run->bad_lane ? run->bad_instance : oldest(run);
	const struct lane *lane = run->bad_lane;

	*where = (struct coll_run_where){.peer = -1, .tiles = run->tiles, .behind = run->after && !run->left};
	if (run->intranode) {
		where->behind = run->after != NULL;
		where->tiles = 1;
		if (!where->behind)
			run->at_work->where(run->at_work->arg, &run->job, &run->intra, where);
		return;
	}
	if (run->bad_lane)
		where->frame = run->bad_frame;
	if (!inst || !run->job.plan)
		return;
	where->tile = inst->tile;
	for (uint32_t l = 0; l < run->job.plan->nlanes && !lane; l++)
		if (inst->lanes[l].head < inst->lanes[l].end || inst->lanes[l].flights)
			lane = &inst->lanes[l];
	if (lane)
		blame(run, inst, (uint32_t)(lane - inst->lanes), where);
}

void coll_run_where(const struct coll_run *run, struct coll_run_where *where)
{
	bool behind = false;

	for (look_into(run, where); where->behind && predecessor(run); look_into(run, where)) {
		run = predecessor(run);
		behind = true;
	}
	where->behind = behind;
}
