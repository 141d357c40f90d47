/*
 * The verifier: proves the plans of all ranks together.
 *
 * Three questions, three files. Is each plan free of races and within its bounds
 * (race.c)? Do all ranks finish, with few slots, several tiles
 * and a second operation (replay.c)? Does every chunk end up with the right
 * value, whichever ranks run in place (flow.c)?
 */
#include "proof/verify.h"

#include <stdio.h>
#include <string.h>

#include "proof/flow.h"
#include "proof/race.h"

/* All plans are about one collective. */
static coll_status check_agreement(const struct coll_plan *const *plans, int size, char *why, size_t why_bytes)
{
	const struct coll_plan *first = plans[0];

	for (int r = 0; r < size; r++) {
		const struct coll_plan *p = plans[r];

		if (p->kind == first->kind && p->rank == r && p->size == size && p->root == first->root &&
		    p->chunks == first->chunks && p->fused == first->fused && strcmp(p->algo, first->algo) == 0)
			continue;
		snprintf(why, why_bytes, "the plans of ranks 0 and %d are not of one collective", r);
		return COLL_ERR_INTERNAL;
	}
	return COLL_OK;
}

static coll_status check_plans(const struct coll_plan *const *plans, int size, const struct coll_model *model,
                               uint32_t depth, char *why, size_t why_bytes)
{
	coll_status status = check_agreement(plans, size, why, why_bytes);

	if (!status && plans[0]->fused && depth == 0) {
		snprintf(why, why_bytes, "fused plans need slots: depth is 0");
		status = COLL_ERR_ARGUMENT;
	}
	for (int r = 0; r < size && !status; r++)
		status = coll_race_check(plans[r], model, why, why_bytes);
	return status;
}

coll_status coll_plan_verify_model(const struct coll_plan *const *plans, int size,
                                   const struct coll_verify_options *opt, const struct coll_model *model, char *why,
                                   size_t why_bytes)
{
	uint32_t windows = opt->windows ? opt->windows : 1;
	uint32_t tiles = opt->tiles ? opt->tiles : windows + 1;
	struct coll_replay *replay = NULL;
	struct coll_flow *flow = NULL;
	coll_status status;

	if (why_bytes)
		why[0] = '\0';
	status = check_plans(plans, size, model, opt->depth, why, why_bytes);
	if (!status && opt->then && opt->then != plans)
		status = check_plans(opt->then, size, model, opt->depth, why, why_bytes);
	if (!status)
		status = coll_replay_create(&replay, plans, opt->then, size, model, why, why_bytes);
	if (!status)
		status = coll_flow_create(&flow, plans, size, coll_replay_frames(replay), opt, why, why_bytes);
	if (!status) {
		status = coll_replay_run(replay, opt->depth, windows, tiles, coll_flow_step, flow, why, why_bytes);
		if (status == COLL_ERR_ABORTED)
			status = coll_flow_status(flow);
	}
	if (!status)
		status = coll_flow_check(flow);
	/* What the chunks hold has been seen to: here only whether it ends. */
	if (!status && opt->then) {
		coll_replay_keep_apart(replay);
		status = coll_replay_run(replay, opt->depth, windows, tiles, NULL, NULL, why, why_bytes);
	}
	coll_flow_destroy(&flow);
	coll_replay_destroy(&replay);
	return status;
}

coll_status coll_plan_verify(const struct coll_plan *const *plans, int size, const struct coll_verify_options *opt,
                             char *why, size_t why_bytes)
{
	static const struct coll_model truth;

	return coll_plan_verify_model(plans, size, opt, &truth, why, why_bytes);
}
