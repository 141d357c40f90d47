/*
 * A run: binding a job to a plan, and the sweep over windows and lanes.
 *
 * Owns the life of struct coll_run (state.h says what holds between polls);
 * bind.c owns its tables, step.c what a step does, range.c where its bytes are,
 * order.c what the operation before has to do with it.
 */
#include "engine/run.h"

#include <stdlib.h>

#include "base/limits.h"
#include "engine/bind.h"
#include "engine/lane.h"
#include "engine/order.h"
#include "engine/receive.h"
#include "engine/sends.h"
#include "record/way.h"

coll_status coll_run_create(struct coll_run **run)
{
	*run = calloc(1, sizeof(**run));
	return *run ? COLL_OK : COLL_ERR_MEMORY;
}

void coll_run_destroy(struct coll_run **run)
{
	struct coll_run *r = *run;

	if (!r)
		return;
	free(r->in_offsets);
	free(r->out_offsets);
	free(r->peers);
	free(r->ports);
	free(r->instances);
	free(r->flights);
	free(r->scratch_at);
	free(r);
	*run = NULL;
}

/* ---- Start ------------------------------------------------------------ */

/* Cut of a tile of len elements; remembered, because all tiles but the last and
 * all calls of one shape cut alike. */
static inline void set_cut(struct coll_run *run, struct instance *inst, size_t len)
{
	const uint32_t chunks = run->job.plan->chunks;

	if (run->cut_len != len || run->cut_chunks != chunks) {
		run->cut_len = len;
		run->cut_chunks = chunks;
		run->cut_q = len / chunks;
		run->cut_r = mutant(MUTANT_CUT_DROPS_REMAINDER) ? 0 : len % chunks;
	}
	inst->q = run->cut_q;
	inst->r = run->cut_r;
}

/* base may be NULL where nothing is read or written: no pointer arithmetic then. */
static inline char *moved_by(char *base, size_t len_bytes)
{
	return (char *)((uintptr_t)base + len_bytes);
}

/* Where tile `tile` of a buffer begins, `first_bytes` behind the start of a buffer that is not staged. */
static inline char *tile_at(const struct coll_run *run, char *base, char *slots, size_t tile, size_t first_bytes)
{
	return slots ? coll_stage_slot(run->job.stage, slots, tile) : moved_by(base, first_bytes);
}

static inline void start_tile(struct coll_run *run, struct instance *inst, size_t tile)
{
	const struct coll_plan *plan = run->job.plan;
	const size_t first = tile * run->job.tile, left = run->elements - first;
	const size_t first_bytes = first * run->job.elem_bytes;

	inst->tile = tile;
	inst->first = first;
	inst->len = left < run->job.tile ? left : run->job.tile;
	if (__builtin_expect(run->job.stage != NULL, false)) {
		inst->at[COLL_BUF_IN] = tile_at(run, run->job.in.base, run->job.stage->in, tile, first_bytes);
		inst->at[COLL_BUF_OUT] = tile_at(run, run->job.out.base, run->job.stage->out, tile, first_bytes);
	} else {
		inst->at[COLL_BUF_IN] = moved_by(run->job.in.base, first_bytes);
		inst->at[COLL_BUF_OUT] = moved_by(run->job.out.base, first_bytes);
	}
	inst->active = true;
	inst->nflights = 0;
	if (run->whole) {
		inst->q = inst->len;
		inst->r = 0;
	} else if (!run->block) {
		set_cut(run, inst, inst->len);
	}
	for (uint32_t l = 0; l < plan->nlanes; l++) {
		struct lane *lane = &inst->lanes[l];

		lane->first = lane->head = plan->steps + plan->lane_first[l];
		lane->end = plan->steps + plan->lane_first[l + 1];
		lane->flights = NULL;
		lane->tail = &lane->flights;
		lane->armed = false;
		lane->lacks_slot = false;
		lane->inviting = run->invites;
	}
}

static inline void start_tiles(struct coll_run *run)
{
	run->left = run->tiles;
	run->status = run->left ? COLL_AGAIN : COLL_OK;
	for (uint32_t w = 0; w < run->windows; w++)
		start_tile(run, &run->instances[w], w);
}

/* Start the same tiles again that the instances ran last. */
static inline void rewind_tiles(struct coll_run *run)
{
	const size_t elem_bytes = run->job.elem_bytes;

	run->left = run->tiles;
	run->status = run->left ? COLL_AGAIN : COLL_OK;
	for (uint32_t w = 0; w < run->windows; w++) {
		struct instance *inst = &run->instances[w];

		inst->at[COLL_BUF_IN] = moved_by(run->job.in.base, inst->first * elem_bytes);
		inst->at[COLL_BUF_OUT] = moved_by(run->job.out.base, inst->first * elem_bytes);
		inst->active = true;
		for (uint32_t l = 0; l < run->bound_lanes; l++)
			inst->lanes[l].head = inst->lanes[l].first, inst->lanes[l].inviting = run->invites;
	}
}

/* What the call leaves in `out` of a rank that gets all of it. */
static size_t result_bytes(const struct coll_run *run)
{
	const size_t blocks = run->block && !run->job.out.single ? (size_t)run->job.plan->size : 1;

	return run->elements * run->job.elem_bytes * blocks;
}

/* What the buffers of this call make of the plan's scratch. */
static inline void place(struct coll_run *run)
{
	run->in_place = run->job.in.base == run->job.out.base;
	run->aside = run->mirrors && !run->in_place && !run->prescale;
	run->landing = run->lands && (!run->in_place || mutant(MUTANT_LAND_IN_PLACE));
}

/* The job's buffers become the slots of its first tile: all of them, for an intranode operation, which has one tile. */
static void place_staged(struct coll_run *run)
{
	const struct coll_run_stage *s = run->job.stage;

	if (s->in) {
		run->job.in.base = coll_stage_slot(s, s->in, 0);
		run->job.in.stride = run->block ? run->job.tile : 0;
	}
	if (s->out) {
		run->job.out.base = coll_stage_slot(s, s->out, 0);
		run->job.out.stride = run->block ? run->job.tile : 0;
	}
}

/* Whatever makes it, or is left to be waited for. */
static void start_common(struct coll_run *run)
{
	run->held = run->opening || run->invites || run->job.stage;
	run->after = NULL;
	run->intranode = run->job.intra != NULL;
	run->at_work = run->job.intra;
	run->intra = (struct coll_intra_state){0};
	start_tiles(run);
	coll_run_follow(run, run->job.after);
}

/* Channels and tables stay bound to the last plan. */
static void start_without_plan(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_job *job)
{
	run->job = *job;
	run->fabric = fabric;
	run->elements = 0;
	run->tiles = 0;
	run->windows = 0;
	run->bad_lane = NULL;
	run->opening = run->invites = false;
	start_common(run);
	if (run->intranode)
		run->status = COLL_AGAIN;
}

coll_status coll_run_start(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_job *job)
{
	const struct coll_plan *plan = job->plan;
	coll_status status;

	assert(run->status != COLL_AGAIN);
	assert(job->windows >= 1);
	assert(job->tile >= 1);
	run->intranode = false;
	run->job.way = COLL_WAY_UNKNOWN; /* if it cannot be started */
	if (!plan) {
		start_without_plan(run, fabric, job);
		return COLL_OK;
	}
	status = coll_run_bind(run, fabric, plan, job->windows);
	if (status == COLL_OK)
		status = coll_run_prepare(run, job);
	if (status != COLL_OK)
		return status;
	run->job = *job;
	run->fabric = fabric;
	run->slot_bytes = fabric->slot_bytes;
	run->ref_bytes = fabric->ref_bytes ? fabric->ref_bytes : COLL_REF_MIN;
	run->prescale = job->reduction && job->reduction->op == COLL_OP_PREMUL_SUM;
	run->mean = job->reduction && job->reduction->mean;
	if (job->stage)
		place_staged(run);
	place(run);
	run->elements = coll_run_span(job);
	run->tiles = run->elements > job->tile ? (run->elements - 1) / job->tile + 1 : run->elements != 0;
	run->stream = fabric->nt && coll_nt_by_size(fabric->nt, 2 * result_bytes(run));
	run->windows = run->tiles < job->windows ? (uint32_t)run->tiles : job->windows;
	run->bad_lane = NULL;
	run->completions = fabric->streamed;
	/* A user's operation is called by the user's threads alone. */
	run->through = fabric->through && job->reduction && !job->reduction->user_fn;
	run->invites = fabric->ref_bytes != SIZE_MAX && job->tile * job->elem_bytes >= run->ref_bytes &&
	               result_bytes(run) <= COLL_INVITE_MAX;
	run->opening = run->unopened != 0;
	start_common(run);
	return COLL_OK;
}

void coll_run_restart(struct coll_run *run, const void *in, void *out, uint64_t sequence)
{
	assert(run->status == COLL_OK);
	assert(run->bound_fabric != NULL || !run->job.plan);
	run->job.in.base = (char *)(uintptr_t)in;
	run->job.out.base = out;
	if (run->job.stage)
		place_staged(run);
	place(run);
	run->job.sequence = sequence;
	if (run->job.intra) {
		run->intranode = true;
		run->at_work = run->job.intra;
		run->intra = (struct coll_intra_state){0};
		run->status = COLL_AGAIN;
		return;
	}
	if (run->tiles > run->windows || run->job.stage)
		start_tiles(run);
	else
		rewind_tiles(run);
}

void coll_run_begun(struct coll_run *run, const struct coll_intra_state *state)
{
	assert(run->intranode);
	run->intra = *state;
}

/* ---- Poll ------------------------------------------------------------- */

/* OK: all its steps have started; AGAIN: its head must wait. */
static inline coll_status advance_lane(struct coll_run *run, struct instance *inst, struct lane *lane)
{
	while (lane->head < lane->end) {
		const struct coll_step *s = lane->head;
		coll_status status;

		if (must_wait(run, inst, s))
			return COLL_AGAIN;
		status = coll_run_steps[s->op](run, inst, lane, s);
		if (status != COLL_OK && !(mutant(MUTANT_DEAD_IS_DONE) && status == COLL_ERR_PEER_DEAD))
			return status;
		lane->head++;
		run->stats.steps++;
		run->events++;
	}
	return COLL_OK;
}

static void retire_tile(struct coll_run *run, struct instance *inst)
{
	const size_t next = inst->tile + run->windows;

	if (__builtin_expect(run->job.stage != NULL, false))
		coll_stage_give(run->job.stage, inst->tile);
	run->left--;
	run->events++;
	inst->active = false;
	if (next < run->tiles)
		start_tile(run, inst, next);
}

/* As far as the lanes of one tile go without waiting; OK: all steps have started. */
static coll_status advance_lanes(struct coll_run *run, struct instance *inst)
{
	const uint32_t nlanes = run->job.plan->nlanes;
	coll_status result;
	uint64_t before;

	do {
		before = run->events;
		result = inst->nflights ? coll_run_reap(run, inst) : COLL_OK;
		if (result != COLL_OK)
			return result;
		for (uint32_t l = 0; l < nlanes; l++) {
			struct lane *lane = &inst->lanes[l];
			coll_status status = COLL_AGAIN;

			if (!gated(run, inst, l)) {
				if (lane->inviting)
					coll_run_invite(run, inst, lane);
				status = advance_lane(run, inst, lane);
			}

			if (status == COLL_AGAIN)
				result = COLL_AGAIN;
			else if (status != COLL_OK)
				return status;
		}
		/* One lane may have satisfied what another waits for. */
	} while (result == COLL_AGAIN && run->events != before && (nlanes > 1 || inst->nflights));
	return result;
}

/* An error ends the run; its channels are going to be closed, so forget them. */
static void fail(struct coll_run *run, coll_status status)
{
	run->status = status;
	run->bound_fabric = NULL;
	run->after = NULL;
}

void coll_run_cancel(struct coll_run *run, coll_status status)
{
	assert(status != COLL_OK);
	assert(status != COLL_AGAIN);
	run->completions = 0;
	if (mutant(MUTANT_CANCEL_KEEPS))
		run->status = COLL_OK;
	else
		fail(run, run->status == COLL_AGAIN ? status : run->status);
}

static coll_status advance_tiles(struct coll_run *run)
{
	for (uint32_t w = 0; w < run->windows; w++) {
		struct instance *inst = &run->instances[w];
		coll_status status;

		if (!inst->active || (run->job.stage && !coll_stage_is_ready(run->job.stage, inst->tile)))
			continue;
		status = advance_lanes(run, inst);
		if (status == COLL_OK && (inst->nflights == 0 || mutant(MUTANT_NEXT_TILE_EARLY)))
			retire_tile(run, inst);
		else if (status != COLL_OK && status != COLL_AGAIN)
			return status;
	}
	return COLL_OK;
}

/* The same for one window, one lane and no flights: the shortest path. */
static inline coll_status advance_one(struct coll_run *run)
{
	struct instance *inst = run->instances;
	coll_status status = advance_lane(run, inst, inst->lanes);

	if (status == COLL_OK && (inst->nflights == 0 || mutant(MUTANT_NEXT_TILE_EARLY)))
		retire_tile(run, inst);
	return status == COLL_AGAIN ? COLL_OK : status;
}

/* The operation before has failed: so has this one, the order is lost. */
static coll_status look_back(struct coll_run *run)
{
	const struct coll_run *after = predecessor(run);

	if (!after)
		run->after = NULL;
	return after && after->status != COLL_AGAIN && !mutant(MUTANT_FORGET_FAILED_AFTER) ? after->status : COLL_OK;
}

/* A poll that something outside the run's own steps may hold up. AGAIN: go on. */
static coll_status advance_held(struct coll_run *run)
{
	coll_status status = run->after ? look_back(run) : COLL_OK;

	if (status == COLL_OK && run->opening) {
		status = coll_run_open_receivers(run);
		run->opening = status == COLL_AGAIN;
		status = status == COLL_AGAIN ? COLL_OK : status;
	}
	run->held = run->opening || run->after || run->invites || run->job.stage;
	return status == COLL_OK ? advance_tiles(run) : status;
}

static inline coll_status advance(struct coll_run *run)
{
	if (__builtin_expect(run->held, false))
		return advance_held(run);
	if (run->windows == 1 && run->bound_lanes == 1 && run->instances->nflights == 0)
		return advance_one(run);
	return advance_tiles(run);
}

/* The next row: it goes on in the epoch that has been entered, or enters a new one as all ranks do; or the plan after
 * all, as if this had been a call like others. */
static coll_status fall_back(struct coll_run *run)
{
	const struct coll_intra_op *op = run->at_work;
	const struct coll_intra_op *next = op->instead ? op->instead(op, &run->job) : NULL;
	const struct coll_intra_state *s = &run->intra;

	run->events++;
	if (next) {
		run->at_work = next;
		run->intra = (struct coll_intra_state){.epoch = s->epoch,
		                                       .events = s->events,
		                                       .committed = s->committed,
		                                       .entered = s->entered,
		                                       .trial = s->trial};
		return COLL_AGAIN;
	}
	assert(!s->committed);
	assert(run->job.plan);
	run->intranode = false;
	start_tiles(run);
	return COLL_AGAIN;
}

/* Some operation before may be run intranode, or not. */
static bool undecided_before(const struct coll_run *run)
{
	for (run = predecessor(run); run; run = predecessor(run))
		if (run->intranode && run->status == COLL_AGAIN && !run->intra.committed)
			return true;
	return false;
}

/* An intranode operation runs behind all that comes before it. */
static coll_status advance_intranode(struct coll_run *run)
{
	coll_status status = run->after ? look_back(run) : COLL_OK;

	if (status == COLL_OK && run->at_work->passes && !run->intra.asked) {
		if (undecided_before(run))
			return COLL_AGAIN;
		run->intra.asked = true;
		if (run->at_work->passes(run->at_work->arg, &run->job))
			return fall_back(run);
	}
	if (status == COLL_OK && (run->after || (run->job.stage && !coll_stage_is_ready(run->job.stage, 0))))
		return COLL_AGAIN;
	if (status == COLL_OK)
		status = run->at_work->poll(run->at_work->arg, &run->job, &run->intra);
	if (status == COLL_OK) {
		if (run->job.stage && !run->job.stage->direct)
			coll_stage_give(run->job.stage, 0);
		run->status = COLL_OK;
	} else if (status == COLL_ERR_UNSUPPORTED) {
		status = fall_back(run);
	} else if (status != COLL_AGAIN) {
		fail(run, status);
	}
	return status;
}

static coll_status poll_intranode(struct coll_run *run, bool *moved)
{
	const uint64_t before = run->events + run->intra.events;
	const coll_status status = run->status == COLL_AGAIN ? advance_intranode(run) : run->status;

	if (run->events + run->intra.events != before)
		run->intra.idle = 0;
	if (moved)
		*moved = run->events + run->intra.events != before;
	return status;
}

coll_status coll_run_poll(struct coll_run *run, bool *moved)
{
	const uint64_t before = run->events;
	coll_status status = run->status;

	if (run->intranode)
		return poll_intranode(run, moved);
	if (status == COLL_AGAIN) {
		status = advance(run);
		if (status != COLL_OK)
			fail(run, status);
		else if (run->left == 0 && (!run->after || mutant(MUTANT_RETIRE_UNORDERED)))
			run->status = COLL_OK;
		status = run->status;
	}
	if (moved)
		*moved = run->events != before;
	return status;
}

uint8_t coll_run_way(const struct coll_run *run)
{
	const uint8_t way = run->intranode ? run->intra.way : run->job.way;

	return run->job.stage && !run->job.stage->direct ? way | COLL_WAY_STAGED : way;
}

bool coll_run_awaits_progress(const struct coll_run *run)
{
	return run->completions != 0;
}

bool coll_run_waits_for_stream(const struct coll_run *run)
{
	const struct coll_run_stage *s = run->job.stage;

	if (run->status != COLL_AGAIN || !s)
		return run->status == COLL_OK;
	for (uint32_t w = 0; w < run->windows && !run->intranode; w++)
		if (run->instances[w].active && coll_stage_is_ready(s, run->instances[w].tile))
			return false;
	return !run->intranode || !coll_stage_is_ready(s, 0);
}

const struct coll_run_stats *coll_run_stats(const struct coll_run *run)
{
	return &run->stats;
}
