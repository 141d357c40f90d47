/*
 * Counts of plans: steps, frames, chunks, and rounds. They do not drift from
 * machine to machine, so tests and cost models can lean on them.
 */
#include "tools/common/count.h"

#include <stdlib.h>

#include "plan/plan.h"
#include "plan/step.h"
#include "proof/replay.h"

void coll_plan_count(const struct coll_plan *p, struct coll_plan_counts *counts)
{
	*counts = (struct coll_plan_counts){.steps = coll_plan_nsteps(p)};
	for (uint32_t i = 0; i < coll_plan_nsteps(p); i++) {
		const struct coll_step *s = &p->steps[i];

		if (coll_step_sends(s->op)) {
			counts->sends++;
			counts->sent_chunks += s->run;
		}
		if (coll_step_receives(s->op)) {
			counts->recvs++;
			counts->received_chunks += s->run;
		}
	}
}

/* Length of the longest chain of frames that ends in each lane, step and frame. */
struct chains {
	const struct coll_plan *const *plans;
	size_t *step_base;
	uint32_t *lane;
	uint32_t *step;
	uint32_t *frame;
	uint32_t longest;
};

static bool follow(void *arg, int rank, uint32_t step, uint32_t frame_in, uint32_t frame_out)
{
	struct chains *c = arg;
	const struct coll_plan *p = c->plans[rank];
	const struct coll_step *s = &p->steps[step];
	uint32_t *steps = c->step + c->step_base[rank];
	uint32_t *lane = &c->lane[(size_t)rank * COLL_LANES_MAX + s->lane];

	if (s->wait_count && *lane < steps[p->lane_first[s->wait_lane] + s->wait_count - 1])
		*lane = steps[p->lane_first[s->wait_lane] + s->wait_count - 1];
	if (frame_in != COLL_NO_FRAME && *lane < c->frame[frame_in])
		*lane = c->frame[frame_in];
	if (frame_out != COLL_NO_FRAME) {
		c->frame[frame_out] = *lane + 1;
		if (c->longest < *lane + 1)
			c->longest = *lane + 1;
	}
	steps[step] = *lane;
	return true;
}

coll_status coll_plan_rounds(const struct coll_plan *const *plans, int size, uint32_t *rounds)
{
	static const struct coll_model truth;
	struct chains c = {.plans = plans};
	struct coll_replay *replay = NULL;
	size_t steps = 0;
	char why[128];
	coll_status status = coll_replay_create(&replay, plans, NULL, size, &truth, why, sizeof(why));

	if (status)
		return status;
	for (int r = 0; r < size; r++)
		steps += coll_plan_nsteps(plans[r]);
	c.step_base = malloc((size_t)size * sizeof(*c.step_base));
	c.lane = calloc((size_t)size * COLL_LANES_MAX, sizeof(*c.lane));
	c.step = calloc(steps + 1, sizeof(*c.step));
	c.frame = calloc((size_t)coll_replay_frames(replay) + 1, sizeof(*c.frame));
	if (c.step_base && c.lane && c.step && c.frame) {
		steps = 0;
		for (int r = 0; r < size; r++) {
			c.step_base[r] = steps;
			steps += coll_plan_nsteps(plans[r]);
		}
		status = coll_replay_run(replay, plans[0]->fused ? 2 : 0, 1, 1, follow, &c, why, sizeof(why));
	} else {
		status = COLL_ERR_MEMORY;
	}
	if (!status)
		*rounds = c.longest;
	free(c.step_base);
	free(c.lane);
	free(c.step);
	free(c.frame);
	coll_replay_destroy(&replay);
	return status;
}

void coll_plan_group_counts(const struct coll_plan *const *plans, const struct coll_layout *l, uint32_t level,
                            uint64_t *out, uint64_t *in)
{
	const uint32_t *group_at = l->level[level].group_at;

	for (uint32_t g = 0; g < l->level[level].groups; g++)
		out[g] = in[g] = 0;
	for (int r = 0; r < l->size; r++) {
		const struct coll_plan *p = plans[r];

		for (uint32_t i = 0; i < coll_plan_nsteps(p); i++) {
			const struct coll_step *s = &p->steps[i];
			uint32_t from, to;

			if (!coll_step_sends(s->op))
				continue;
			from = group_at[l->place_of[r]];
			to = group_at[l->place_of[p->peers[s->peer_send]]];
			out[from] += from != to ? s->run : 0;
			in[to] += from != to ? s->run : 0;
		}
	}
}
