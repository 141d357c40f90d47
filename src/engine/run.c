/*
 * A run: binding a job to a plan, and the sweep over windows and lanes.
 *
 * Owns the life of struct coll_run (state.h says what holds between polls);
 * step.c owns what a step does, range.c where its bytes are. Everything that
 * depends on the plan's size is allocated in coll_run_start(), and only when it
 * is larger than all before. The table of channels outlives the operation: it
 * depends on the list of peers, the number of lanes and the fabric alone, so
 * starting the same shape again looks nothing up.
 */
#include "engine/state.h"

#include <stdlib.h>
#include <string.h>

/* Below this a copy costs less than telling the peer where to look. */
enum { REF_BYTES = 4096 };

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

/* ---- Growth ----------------------------------------------------------- */

/* Make *array hold n elements; what was in it need not survive. */
static coll_status grow(void **array, size_t *cap, size_t n, size_t elem_bytes)
{
	void *p;

	if (n <= *cap)
		return COLL_OK;
	p = calloc(n, elem_bytes);
	if (!p)
		return COLL_ERR_MEMORY;
	free(*array);
	*array = p;
	*cap = n;
	return COLL_OK;
}

#define GROW(run, array, n) grow((void **)&(run)->array, &(run)->array##_cap, n, sizeof(*(run)->array))

static void link_flights(struct coll_run *run)
{
	run->free_flights = NULL;
	for (size_t i = run->flights_cap; i-- > 0;) {
		run->flights[i].next = run->free_flights;
		run->free_flights = &run->flights[i];
	}
}

/* ---- Binding channels ------------------------------------------------- */

static struct port *port_at(const struct coll_run *run, uint32_t window, uint32_t lane, uint32_t peer,
                            enum coll_direction dir)
{
	return &run->ports[(((size_t)window * run->bound_lanes + lane) * run->bound_peers + peer) * 2 + dir];
}

static bool bound(const struct coll_run *run, const struct coll_fabric *fabric, const struct coll_plan *plan,
                  uint32_t windows)
{
	if (run->bound_fabric != fabric || run->bound_lanes != plan->nlanes || run->bound_peers != plan->npeers ||
	    run->bound_windows < windows)
		return false;
	/* Not by the plan's address: a new plan may live where an old one was. */
	if (plan->npeers == 1)
		return run->peers[0] == plan->peers[0];
	return !plan->npeers || memcmp(run->peers, plan->peers, plan->npeers * sizeof(*plan->peers)) == 0;
}

static coll_status bind(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_plan *plan,
                        uint32_t windows)
{
	const size_t nports = (size_t)windows * plan->nlanes * plan->npeers * 2;
	coll_status status;

	run->bound_fabric = NULL;
	status = GROW(run, peers, plan->npeers);
	if (status == COLL_OK)
		status = GROW(run, ports, nports);
	if (status == COLL_OK)
		status = GROW(run, instances, windows);
	if (status != COLL_OK)
		return status;
	if (plan->npeers)
		memcpy(run->peers, plan->peers, plan->npeers * sizeof(*plan->peers));
	if (nports)
		memset(run->ports, 0, nports * sizeof(*run->ports));
	run->bound_fabric = fabric;
	run->bound_lanes = plan->nlanes;
	run->bound_peers = plan->npeers;
	run->bound_windows = windows;
	run->unopened = nports / 2;
	for (uint32_t w = 0; w < windows; w++) {
		run->instances[w].window = w;
		for (uint32_t l = 0; l < plan->nlanes; l++)
			run->instances[w].lanes[l].ports = plan->npeers ? port_at(run, w, l, 0, COLL_DIR_SEND) : NULL;
	}
	link_flights(run);
	return COLL_OK;
}

static bool receives(const struct coll_step *s)
{
	return s->op == COLL_STEP_RECV || s->op == COLL_STEP_RECV_REDUCE || s->op >= COLL_STEP_RECV_COPY_SEND;
}

/*
 * Open every channel that this plan receives on, before its first step: opening
 * is what grants the peer its slots, and fused steps are free of deadlock only
 * with those (a peer may need two slots of a channel that this rank would first
 * look at much later). AGAIN: some links are still connecting.
 */
static coll_status open_receivers(struct coll_run *run)
{
	const struct coll_plan *plan = run->job.plan;
	coll_status result = COLL_OK;

	for (uint32_t w = 0; w < run->windows; w++) {
		for (const struct coll_step *s = plan->steps; s < plan->steps + coll_plan_nsteps(plan); s++) {
			struct port *port;
			coll_status status;

			if (!receives(s))
				continue;
			port = port_at(run, w, s->lane, s->peer_recv, COLL_DIR_RECV);
			if (port->channel)
				continue;
			status = coll_run_open_port(run, port, s->peer_recv, s->lane, w, COLL_DIR_RECV);
			if (status == COLL_AGAIN)
				result = COLL_AGAIN;
			else if (status != COLL_OK)
				return status;
		}
	}
	return result;
}

/* ---- Start ------------------------------------------------------------ */

static size_t longest(const struct coll_extent *e, const struct coll_plan *plan)
{
	size_t most = 0;

	if (!e->counts)
		return e->count;
	if (e->single) /* buffers of one block hold this rank's own */
		return e->counts[plan->rank];
	for (int b = 0; b < plan->size; b++)
		if (e->counts[b] > most)
			most = e->counts[b];
	return most;
}

/* Elements that the tiles must cover: of the vector, or of the longest block this
 * rank knows of. A rank that knows of short blocks only stops early: it has no
 * bytes to move in later tiles. */
static size_t span_of_tiles(const struct coll_job *job)
{
	const size_t in = longest(&job->in, job->plan), out = longest(&job->out, job->plan);

	return in > out ? in : out;
}

static coll_status pack_offsets(const struct coll_extent *e, int size, size_t **offsets, size_t *cap)
{
	size_t at = 0;
	coll_status status;

	if (!e->counts || e->offsets || e->single)
		return COLL_OK;
	status = grow((void **)offsets, cap, (size_t)size, sizeof(**offsets));
	if (status != COLL_OK)
		return status;
	for (int b = 0; b < size; b++) {
		(*offsets)[b] = at;
		at += e->counts[b];
	}
	return COLL_OK;
}

/*
 * Whether the plan's scratch buffer only ever holds what lies in `in` at the same place, and is
 * only ever sent. Such copies are made because in place the result overwrites `in`, which the
 * peer might not have read; where `out` is elsewhere nothing does, and they can be left out.
 */
static bool only_mirrors(const struct coll_plan *plan)
{
	if (plan->nscratch != 1 || plan->kind != COLL_KIND_ALL_REDUCE)
		return false;
	for (const struct coll_step *s = plan->steps; s < plan->steps + coll_plan_nsteps(plan); s++) {
		const bool reads = s->op != COLL_STEP_RECV && s->op != COLL_STEP_RECV_COPY_SEND &&
		                   s->op != COLL_STEP_WAIT && s->src >= COLL_BUF_SCRATCH;
		const bool writes = s->op != COLL_STEP_SEND && s->op != COLL_STEP_WAIT && s->dst >= COLL_BUF_SCRATCH;

		if (reads && s->op != COLL_STEP_SEND)
			return false;
		if (writes && (s->op != COLL_STEP_COPY || s->src != COLL_BUF_IN || s->src_chunk != s->dst_chunk))
			return false;
	}
	return true;
}

static coll_status prepare_blocks(struct coll_run *run, const struct coll_job *job)
{
	coll_status status = pack_offsets(&job->in, job->plan->size, &run->in_offsets, &run->in_offsets_cap);

	if (status == COLL_OK)
		status = pack_offsets(&job->out, job->plan->size, &run->out_offsets, &run->out_offsets_cap);
	run->layout_counts = job->in.counts ? job->in.counts : job->out.counts;
	run->layout_count = job->in.count > job->out.count ? job->in.count : job->out.count;
	return status;
}

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

static inline void start_tile(struct coll_run *run, struct instance *inst, size_t tile)
{
	const struct coll_plan *plan = run->job.plan;
	const size_t first = tile * run->job.tile, left = run->elements - first;
	const size_t first_bytes = first * run->job.elem_bytes;

	inst->tile = tile;
	inst->first = first;
	inst->len = left < run->job.tile ? left : run->job.tile;
	inst->at[COLL_BUF_IN] = moved_by(run->job.in.base, first_bytes);
	inst->at[COLL_BUF_OUT] = moved_by(run->job.out.base, first_bytes);
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

/* What only some plans need: several windows' scratch, flights, block layouts. */
static coll_status prepare(struct coll_run *run, const struct coll_job *job)
{
	const struct coll_plan *plan = job->plan;
	/* Planted defects shall be found by what they do, not by this bound. */
	const size_t nflights = (size_t)job->windows * (MUTANTS_PLANTED ? coll_plan_nsteps(plan) : plan->max_in_flight);
	coll_status status = COLL_OK;

	if (nflights > run->flights_cap) {
		status = GROW(run, flights, nflights);
		if (status != COLL_OK)
			return status;
		link_flights(run);
	}
	if (plan->nscratch) {
		size_t slice;

		status = GROW(run, scratch_at, plan->nscratch);
		if (status != COLL_OK)
			return status;
		slice = coll_run_slice(plan, job->tile, job->elem_bytes, run->scratch_at);
		for (uint32_t w = 0; w < job->windows; w++)
			run->instances[w].scratch = job->scratch + (mutant(MUTANT_SHARE_SCRATCH) ? 0 : w * slice);
	}
	run->mirrors = only_mirrors(plan);
	run->block = coll_plan_kind_is_block(plan->kind);
	run->couple = plan->kind == COLL_KIND_ALL_REDUCE && plan->size == 2;
	run->whole = plan->chunks == 1 && !run->block;
	return run->block ? prepare_blocks(run, job) : COLL_OK;
}

/* What the call leaves in `out` of a rank that gets all of it. */
static size_t result_bytes(const struct coll_run *run)
{
	const size_t blocks = run->block && !run->job.out.single ? (size_t)run->job.plan->size : 1;

	return run->elements * run->job.elem_bytes * blocks;
}

coll_status coll_run_start(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_job *job)
{
	const struct coll_plan *plan = job->plan;
	coll_status status;

	assert(run->status != COLL_AGAIN);
	assert(job->windows >= 1);
	assert(job->tile >= 1);
	if (!bound(run, fabric, plan, job->windows)) {
		status = bind(run, fabric, plan, job->windows);
		if (status != COLL_OK)
			return status;
	}
	status = prepare(run, job);
	if (status != COLL_OK)
		return status;
	run->job = *job;
	run->fabric = fabric;
	run->slot_bytes = fabric->slot_bytes;
	run->ref_bytes = fabric->ref_bytes ? fabric->ref_bytes : REF_BYTES;
	run->prescale = job->reduction && job->reduction->op == COLL_OP_PREMUL_SUM;
	run->in_place = job->in.base == job->out.base;
	run->aside = run->mirrors && !run->in_place && !run->prescale;
	run->elements = span_of_tiles(job);
	run->tiles = run->elements > job->tile ? (run->elements - 1) / job->tile + 1 : run->elements != 0;
	run->stream = fabric->stream_bytes && result_bytes(run) >= fabric->stream_bytes;
	run->windows = run->tiles < job->windows ? (uint32_t)run->tiles : job->windows;
	run->bad_lane = NULL;
	run->cookies = fabric->streamed;
	/* A user's operation is called by the user's threads alone. */
	run->through = fabric->through && job->reduction && !job->reduction->user_fn;
	run->invites = fabric->ref_bytes != SIZE_MAX && job->tile * job->elem_bytes >= run->ref_bytes;
	run->opening = run->unopened != 0;
	run->held = run->opening || run->invites;
	run->after = NULL;
	run->by_hand = job->hand != NULL;
	run->at_work = job->hand;
	run->hand = (struct coll_hand_state){0};
	start_tiles(run);
	coll_run_follow(run, job->after);
	return COLL_OK;
}

void coll_run_restart(struct coll_run *run, const void *in, void *out, uint64_t sequence)
{
	assert(run->status == COLL_OK);
	assert(run->bound_fabric != NULL);
	run->job.in.base = (char *)(uintptr_t)in;
	run->job.out.base = out;
	run->in_place = in == out;
	run->aside = run->mirrors && !run->in_place && !run->prescale;
	run->job.sequence = sequence;
	if (run->job.hand) {
		run->by_hand = true;
		run->at_work = run->job.hand;
		run->hand = (struct coll_hand_state){0};
		run->status = COLL_AGAIN;
		return;
	}
	if (run->tiles > run->windows)
		start_tiles(run);
	else
		rewind_tiles(run);
}

void coll_run_begun(struct coll_run *run, const struct coll_hand_state *state)
{
	assert(run->by_hand);
	run->hand = *state;
}

/* ---- The operation before ---------------------------------------------- */

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
	const struct instance *inst = &run->instances[w];
	const struct lane *lane = &inst->lanes[l];

	/* By hand: no channel at all, unless the plan may still be run. */
	if (run->by_hand)
		return run->status == COLL_OK || run->hand.committed;
	if (run->status == COLL_OK || w >= run->windows || l >= run->bound_lanes || !inst->active)
		return true;
	if (inst->tile + run->windows < run->tiles && !mutant(MUTANT_LEAVE_FIRST_TILE))
		return false;
	if (mutant(MUTANT_LEAVE_LAST_STEP) && lane->head + 1 >= lane->end)
		return true;
	return lane->head == lane->end && all_posted(lane);
}

/* The run that is followed, as long as that operation has not retired. */
static const struct coll_run *predecessor(const struct coll_run *run)
{
	const struct coll_run *after = run->after;

	return after && after->job.sequence == run->after_sequence && after->status != COLL_OK ? after : NULL;
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

/* Whether a lane must not begin yet. It has begun when its first step or its first tile
 * is behind it: then it was free, and stays so. */
static bool gated(const struct coll_run *run, const struct instance *inst, uint32_t l)
{
	if (!run->after || mutant(MUTANT_IGNORE_AFTER))
		return false;
	if (inst->tile != inst->window || inst->lanes[l].head != inst->lanes[l].first)
		return false;
	return !coll_run_left(run->after, l, inst->window);
}

/* ---- Poll ------------------------------------------------------------- */

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
	run->cookies = 0;
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

		if (!inst->active)
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
		status = open_receivers(run);
		run->opening = status == COLL_AGAIN;
		status = status == COLL_AGAIN ? COLL_OK : status;
	}
	run->held = run->opening || run->after || run->invites;
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

/* Another way by hand; or the plan after all, as if this had been a call like others. */
static coll_status fall_back(struct coll_run *run)
{
	run->events++;
	if (run->at_work->instead) {
		run->at_work = run->at_work->instead;
		run->hand = (struct coll_hand_state){0};
		return COLL_AGAIN;
	}
	run->by_hand = false;
	start_tiles(run);
	return COLL_AGAIN;
}

/* Some operation before may be made by hand, or not. */
static bool undecided_before(const struct coll_run *run)
{
	for (run = predecessor(run); run; run = predecessor(run))
		if (run->by_hand && run->status == COLL_AGAIN && !run->hand.committed)
			return true;
	return false;
}

/* Made by hand: behind all that comes before it. */
static coll_status advance_by_hand(struct coll_run *run)
{
	coll_status status = run->after ? look_back(run) : COLL_OK;

	if (status == COLL_OK && run->at_work->passes && !run->hand.asked) {
		if (undecided_before(run))
			return COLL_AGAIN;
		run->hand.asked = true;
		if (run->at_work->passes(run->at_work->arg, &run->job))
			return fall_back(run);
	}
	if (status == COLL_OK && run->after)
		return COLL_AGAIN;
	if (status == COLL_OK)
		status = run->at_work->poll(run->at_work->arg, &run->job, &run->hand);
	if (status == COLL_OK)
		run->status = COLL_OK;
	else if (status == COLL_ERR_UNSUPPORTED)
		status = fall_back(run);
	else if (status != COLL_AGAIN)
		fail(run, status);
	return status;
}

static coll_status poll_by_hand(struct coll_run *run, bool *moved)
{
	const uint64_t before = run->events + run->hand.events;
	const coll_status status = run->status == COLL_AGAIN ? advance_by_hand(run) : run->status;

	if (moved)
		*moved = run->events + run->hand.events != before;
	return status;
}

coll_status coll_run_poll(struct coll_run *run, bool *moved)
{
	const uint64_t before = run->events;
	coll_status status = run->status;

	if (run->by_hand)
		return poll_by_hand(run, moved);
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

bool coll_run_awaits_progress(const struct coll_run *run)
{
	return run->cookies != 0;
}

/* ---- Diagnosis -------------------------------------------------------- */

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

/* Follow waits from lane to lane until somebody outside is to blame. */
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
	if (run->by_hand) {
		where->behind = run->after != NULL;
		where->tiles = 1;
		if (!where->behind)
			run->at_work->where(run->at_work->arg, &run->job, &run->hand, where);
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

const struct coll_run_stats *coll_run_stats(const struct coll_run *run)
{
	return &run->stats;
}
