/*
 * See replay.h. Every lane of every (rank, window) runs until it blocks and is
 * woken by the one event that can unblock it: a frame on the channel it reads, a
 * slot on the channel it writes, a retired step of the lane it waits for, or the
 * operation before leaving the lane. So a replay costs a few operations per step
 * whatever the number of ranks.
 */
#include "proof/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/route.h"
#include "plan/step.h"

/* A route in one window: a channel. */
struct flow {
	uint32_t started;
	uint32_t consumed;
	uint32_t start_at; /* position within the sender's current instance */
	uint32_t consume_at;
	uint8_t reader_waits; /* its operation + 1, 0: none waits */
	uint8_t writer_waits;
};

struct lane_state {
	uint32_t head;
	uint32_t prefix;   /* retired without a gap */
	uint8_t waited_by; /* lanes of the same instance */
	bool queued;
};

/* One (operation, rank, window). */
struct instance {
	uint32_t tile;
	uint32_t left; /* steps not retired */
	bool idle;
};

struct coll_replay {
	struct coll_routes routes;
	int size;
	uint32_t ops;
	struct coll_model model;
	bool apart; /* operations do not overlap */

	/* State of one run. */
	uint32_t depth, windows, tiles;
	struct flow *flows;       /* window * routes.count + route */
	struct instance *inst;    /* (operation * size + rank) * windows + window */
	struct lane_state *lanes; /* instance * COLL_LANES_MAX + lane */
	uint8_t *retired;         /* (operation * windows + window) * total_steps + step_base[rank] + step */
	uint32_t *stack;
	uint32_t stack_used;
	size_t *step_base;
	size_t total_steps;
	coll_replay_fn fn;
	void *arg;
	bool stopped;
	bool overtaken;      /* a frame of the second operation came before one of the first */
	uint32_t unfinished; /* instances that are not idle */
};

coll_status coll_replay_create(struct coll_replay **replay, const struct coll_plan *const *plans,
                               const struct coll_plan *const *then, int size, const struct coll_model *model, char *why,
                               size_t why_bytes)
{
	struct coll_replay *r = calloc(1, sizeof(*r));
	coll_status status;

	if (!r)
		return COLL_ERR_MEMORY;
	r->ops = then ? 2 : 1;
	r->size = size;
	r->model = *model;
	status = coll_routes_init(&r->routes, plans, then, size, why, why_bytes);
	if (status)
		coll_replay_destroy(&r);
	else
		*replay = r;
	return status;
}

uint32_t coll_replay_frames(const struct coll_replay *r)
{
	const struct coll_route *last = r->routes.count ? &r->routes.list[r->routes.count - 1] : NULL;

	return last ? last->first[0] + last->frames[0] : 0;
}

void coll_replay_keep_apart(struct coll_replay *r)
{
	r->apart = true;
}

static void free_run(struct coll_replay *r)
{
	free(r->flows);
	free(r->inst);
	free(r->lanes);
	free(r->retired);
	free(r->stack);
	free(r->step_base);
	r->flows = NULL;
	r->inst = NULL;
	r->lanes = NULL;
	r->retired = NULL;
	r->stack = NULL;
	r->step_base = NULL;
}

void coll_replay_destroy(struct coll_replay **replay)
{
	struct coll_replay *r = *replay;

	if (!r)
		return;
	free_run(r);
	coll_routes_fini(&r->routes);
	free(r);
	*replay = NULL;
}

/* ---- One run ---- */

static struct flow *flow_of(struct coll_replay *r, uint32_t window, uint32_t route)
{
	return &r->flows[(size_t)window * r->routes.count + route];
}

/* What an instance is of. */
static uint32_t op_of(const struct coll_replay *r, uint32_t instance)
{
	return instance / ((uint32_t)r->size * r->windows);
}

static int rank_of(const struct coll_replay *r, uint32_t instance)
{
	return (int)(instance / r->windows % (uint32_t)r->size);
}

static uint32_t instance_of(const struct coll_replay *r, uint32_t op, int rank, uint32_t window)
{
	return (op * (uint32_t)r->size + (uint32_t)rank) * r->windows + window;
}

static const struct coll_plan *plan_of(const struct coll_replay *r, uint32_t instance)
{
	return r->routes.plans[op_of(r, instance)][rank_of(r, instance)];
}

static uint8_t *retired_of(const struct coll_replay *r, uint32_t instance)
{
	const size_t row = (size_t)op_of(r, instance) * r->windows + instance % r->windows;

	return r->retired + row * r->total_steps + r->step_base[rank_of(r, instance)];
}

static void wake(struct coll_replay *r, uint32_t instance, uint32_t lane)
{
	uint32_t id = instance * COLL_LANES_MAX + lane;

	if (r->lanes[id].queued)
		return;
	r->lanes[id].queued = true;
	r->stack[r->stack_used++] = id;
}

static void wake_lanes(struct coll_replay *r, uint32_t instance)
{
	for (uint32_t l = 0; l < plan_of(r, instance)->nlanes; l++)
		wake(r, instance, l);
}

/* Begin the instance's tile, which is not of an empty plan. */
static void begin(struct coll_replay *r, uint32_t instance)
{
	const uint32_t nsteps = coll_plan_nsteps(plan_of(r, instance));
	struct instance *in = &r->inst[instance];

	in->left = nsteps;
	in->idle = false;
	memset(retired_of(r, instance), 0, nsteps);
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++) {
		struct lane_state *s = &r->lanes[instance * COLL_LANES_MAX + l];

		s->head = 0;
		s->prefix = 0;
		s->waited_by = 0;
	}
	wake_lanes(r, instance);
}

/* ---- One operation after the other ---- */

static bool last_tile(const struct coll_replay *r, uint32_t instance)
{
	return r->inst[instance].tile + r->windows >= r->tiles;
}

/* Whether an instance will start no more steps of a lane. */
static bool left(const struct coll_replay *r, uint32_t instance, uint32_t lane)
{
	const struct coll_plan *p = plan_of(r, instance);

	if (r->inst[instance].idle || lane >= p->nlanes)
		return true;
	return last_tile(r, instance) && r->lanes[instance * COLL_LANES_MAX + lane].head == coll_lane_length(p, lane);
}

/* Whether a lane may run: the operation before has left it. */
static bool admitted(const struct coll_replay *r, uint32_t instance, uint32_t lane)
{
	const uint32_t window = instance % r->windows;

	if (op_of(r, instance) == 0 || r->model.early_leave)
		return true;
	if (!r->apart)
		return left(r, instance_of(r, 0, rank_of(r, instance), window), lane);
	for (uint32_t w = 0; w < r->windows; w++)
		if (!r->inst[instance_of(r, 0, rank_of(r, instance), w)].idle)
			return false;
	return true;
}

/* The first operation has left a lane, or retired an instance: the second may go on. */
static void admit(struct coll_replay *r, uint32_t instance)
{
	if (r->ops == 1 || op_of(r, instance) == 1)
		return;
	for (uint32_t w = 0; w < r->windows; w++)
		if (w == instance % r->windows || r->apart)
			wake_lanes(r, instance_of(r, 1, rank_of(r, instance), w));
}

static void end_instance(struct coll_replay *r, uint32_t instance)
{
	struct instance *in = &r->inst[instance];

	if (!last_tile(r, instance)) {
		in->tile += r->windows;
		begin(r, instance);
	} else {
		in->idle = true;
		r->unfinished--;
	}
	admit(r, instance);
}

static void retire(struct coll_replay *r, uint32_t instance, uint32_t lane, uint32_t step)
{
	struct instance *in = &r->inst[instance];
	struct lane_state *s = &r->lanes[instance * COLL_LANES_MAX + lane];
	const struct coll_plan *p = plan_of(r, instance);
	uint8_t *retired = retired_of(r, instance);
	uint32_t first = p->lane_first[lane], length = coll_lane_length(p, lane), before = s->prefix;

	retired[step] = 1;
	while (s->prefix < length && retired[first + s->prefix])
		s->prefix++;
	for (uint32_t l = 0; s->waited_by && s->prefix > before; l++)
		if (s->waited_by & 1u << l) {
			s->waited_by &= (uint8_t) ~(1u << l);
			wake(r, instance, l);
		}
	if (--in->left == 0)
		end_instance(r, instance);
}

/* ---- Frames ---- */

/* Whether frame number n of a channel is one of the operation: those of the first come
 * first. */
static void check_order(struct coll_replay *r, uint32_t window, const struct coll_route *c, uint32_t op, uint32_t n)
{
	const uint32_t tiles = window < r->tiles ? (r->tiles - 1 - window) / r->windows + 1 : 0;

	if ((n < c->frames[0] * tiles) != (op == 0))
		r->overtaken = r->stopped = true;
}

/* Start a frame; its number for the hook. */
static uint32_t start_frame(struct coll_replay *r, uint32_t instance, uint32_t op, uint32_t route)
{
	struct flow *f = flow_of(r, instance % r->windows, route);
	const struct coll_route *c = &r->routes.list[route];
	uint32_t frame = c->first[op] + f->start_at;

	check_order(r, instance % r->windows, c, op, f->started);
	f->started++;
	f->start_at = f->start_at + 1 == c->frames[op] ? 0 : f->start_at + 1;
	if (f->reader_waits) {
		wake(r, instance_of(r, f->reader_waits - 1u, c->receiver, instance % r->windows), c->lane);
		f->reader_waits = 0;
	}
	return frame;
}

/* Number of the frame that consume_frame() would take. */
static uint32_t next_frame(struct coll_replay *r, uint32_t instance, uint32_t op, uint32_t route)
{
	return r->routes.list[route].first[op] + flow_of(r, instance % r->windows, route)->consume_at;
}

/* The frame is consumed: its slot is free and its SEND, if it was one, retires. */
static void consume_frame(struct coll_replay *r, uint32_t instance, uint32_t op, uint32_t route)
{
	struct flow *f = flow_of(r, instance % r->windows, route);
	const struct coll_route *c = &r->routes.list[route];
	uint32_t step = r->routes.senders[op][next_frame(r, instance, op, route)];
	uint32_t sender = instance_of(r, op, c->sender, instance % r->windows);

	check_order(r, instance % r->windows, c, op, f->consumed);
	if (r->stopped)
		return;
	f->consumed++;
	f->consume_at = f->consume_at + 1 == c->frames[op] ? 0 : f->consume_at + 1;
	if (f->writer_waits) {
		wake(r, instance_of(r, f->writer_waits - 1u, c->sender, instance % r->windows), c->lane);
		f->writer_waits = 0;
	}
	if (r->routes.plans[op][c->sender]->steps[step].op == COLL_STEP_SEND)
		retire(r, sender, c->lane, step);
}

/* Whether a frame is there to read; if not, be woken when it is. */
static bool can_read(struct coll_replay *r, uint32_t window, uint32_t op, uint32_t route)
{
	struct flow *f = flow_of(r, window, route);

	f->reader_waits = f->started == f->consumed ? (uint8_t)(op + 1) : 0;
	return !f->reader_waits;
}

static bool can_write(struct coll_replay *r, uint32_t window, uint32_t op, uint32_t route)
{
	struct flow *f = flow_of(r, window, route);

	f->writer_waits = f->started - f->consumed >= r->depth ? (uint8_t)(op + 1) : 0;
	return !f->writer_waits;
}

static void tell(struct coll_replay *r, uint32_t instance, uint32_t step, uint32_t frame_in, uint32_t frame_out)
{
	if (r->fn && op_of(r, instance) == 0 && r->inst[instance].tile == 0 &&
	    !r->fn(r->arg, rank_of(r, instance), step, frame_in, frame_out))
		r->stopped = true;
}

/* Try the step at the head of a lane; true when the lane may go on. */
static bool try_step(struct coll_replay *r, uint32_t instance, uint32_t lane, uint32_t step, const struct coll_step *s)
{
	struct lane_state *ls = &r->lanes[instance * COLL_LANES_MAX];
	const int rank = rank_of(r, instance);
	const uint32_t window = instance % r->windows, op = op_of(r, instance);
	uint32_t from = 0, to = 0, frame_in = COLL_NO_FRAME, frame_out = COLL_NO_FRAME;

	if (s->wait_count > ls[s->wait_lane].prefix && !r->model.ignore_waits) {
		ls[s->wait_lane].waited_by |= (uint8_t)(1u << lane);
		return false;
	}
	if (coll_step_receives(s->op)) {
		from = coll_route_in(&r->routes, op, rank, s);
		if (!can_read(r, window, op, from))
			return false;
		frame_in = next_frame(r, instance, op, from);
	}
	if (coll_step_sends(s->op)) {
		to = coll_route_out(&r->routes, op, rank, s);
		if (coll_step_is_fused(s->op) && !can_write(r, window, op, to))
			return false;
	}
	/* The lane moves on before others are woken: they may retire this instance. */
	ls[lane].head++;
	if (coll_step_sends(s->op))
		frame_out = start_frame(r, instance, op, to);
	tell(r, instance, step, frame_in, frame_out);
	if (coll_step_receives(s->op))
		consume_frame(r, instance, op, from);
	if (s->op != COLL_STEP_SEND)
		retire(r, instance, lane, step);
	return true;
}

static void run_lane(struct coll_replay *r, uint32_t id)
{
	const uint32_t instance = id / COLL_LANES_MAX, lane = id % COLL_LANES_MAX;
	const struct coll_plan *p = plan_of(r, instance);
	struct lane_state *ls = &r->lanes[id];

	while (!r->stopped && !r->inst[instance].idle) {
		if (!admitted(r, instance, lane))
			return; /* woken by admit() */
		if (ls->head == coll_lane_length(p, lane)) {
			if (last_tile(r, instance))
				admit(r, instance);
			return;
		}
		if (r->model.blocking_send && ls->prefix < ls->head)
			return; /* woken by retire(), see below */
		if (!try_step(r, instance, lane, p->lane_first[lane] + ls->head,
		              &p->steps[p->lane_first[lane] + ls->head]))
			return;
		if (r->model.blocking_send && ls->prefix < ls->head)
			ls->waited_by |= (uint8_t)(1u << lane);
	}
}

static coll_status allocate_run(struct coll_replay *r)
{
	size_t instances = (size_t)r->ops * (size_t)r->size * r->windows;

	r->step_base = malloc((size_t)r->size * sizeof(size_t));
	if (!r->step_base)
		return COLL_ERR_MEMORY;
	r->total_steps = 0;
	for (int rank = 0; rank < r->size; rank++) {
		size_t most = coll_plan_nsteps(r->routes.plans[0][rank]);

		if (r->ops == 2 && most < coll_plan_nsteps(r->routes.plans[1][rank]))
			most = coll_plan_nsteps(r->routes.plans[1][rank]);
		r->step_base[rank] = r->total_steps;
		r->total_steps += most;
	}
	r->flows = calloc((size_t)r->windows * r->routes.count + 1, sizeof(*r->flows));
	r->inst = calloc(instances, sizeof(*r->inst));
	r->lanes = calloc(instances * COLL_LANES_MAX, sizeof(*r->lanes));
	r->retired = calloc((size_t)r->ops * r->windows, r->total_steps + 1);
	r->stack = malloc(instances * COLL_LANES_MAX * sizeof(*r->stack));
	return r->flows && r->inst && r->lanes && r->retired && r->stack ? COLL_OK : COLL_ERR_MEMORY;
}

/* Why the step at the head of a lane does not run. */
static void describe_block(struct coll_replay *r, uint32_t id, char *why, size_t why_bytes)
{
	const uint32_t instance = id / COLL_LANES_MAX, lane = id % COLL_LANES_MAX;
	const uint32_t op = op_of(r, instance);
	const int rank = rank_of(r, instance);
	const struct coll_plan *p = plan_of(r, instance);
	const struct lane_state *ls = &r->lanes[id];
	const struct coll_step *s = &p->steps[p->lane_first[lane] + ls->head];
	int n = snprintf(why, why_bytes, "deadlock: rank %d lane %u step %u (%s) of tile %u, operation %u, ", rank,
	                 lane, ls->head, coll_step_op_name(s->op), r->inst[instance].tile, op);

	if (n < 0 || (size_t)n >= why_bytes)
		return;
	why += n;
	why_bytes -= (size_t)n;
	if (!admitted(r, instance, lane))
		snprintf(why, why_bytes, "waits for the operation before");
	else if (s->wait_count > r->lanes[instance * COLL_LANES_MAX + s->wait_lane].prefix)
		snprintf(why, why_bytes, "waits for lane %u to retire %u steps", s->wait_lane, s->wait_count);
	else if (coll_step_receives(s->op) &&
	         !can_read(r, instance % r->windows, op, coll_route_in(&r->routes, op, rank, s)))
		snprintf(why, why_bytes, "waits for a frame from rank %d", p->peers[s->peer_recv]);
	else if (coll_step_sends(s->op))
		snprintf(why, why_bytes, "waits for a slot to rank %d", p->peers[s->peer_send]);
	else
		snprintf(why, why_bytes, "waits for its lane");
}

static coll_status report_deadlock(struct coll_replay *r, char *why, size_t why_bytes)
{
	uint32_t lanes = r->ops * (uint32_t)r->size * r->windows * COLL_LANES_MAX;

	snprintf(why, why_bytes, "deadlock: a SEND never retires");
	for (uint32_t id = 0; id < lanes; id++) {
		const struct coll_plan *p = plan_of(r, id / COLL_LANES_MAX);

		if (r->inst[id / COLL_LANES_MAX].idle || id % COLL_LANES_MAX >= p->nlanes ||
		    r->lanes[id].head >= coll_lane_length(p, id % COLL_LANES_MAX))
			continue;
		describe_block(r, id, why, why_bytes);
		break;
	}
	return COLL_ERR_INTERNAL;
}

static coll_status report_overtaken(char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "a frame of one operation overtakes one of another");
	return COLL_ERR_INTERNAL;
}

/* Begin both operations on every rank; empty plans are over at once. */
static void begin_all(struct coll_replay *r)
{
	for (uint32_t i = 0; i < r->ops * (uint32_t)r->size * r->windows; i++) {
		struct instance *in = &r->inst[i];

		in->tile = i % r->windows;
		in->idle = in->tile >= r->tiles || coll_plan_nsteps(plan_of(r, i)) == 0;
		if (in->idle)
			continue;
		r->unfinished++;
		begin(r, i);
	}
}

coll_status coll_replay_run(struct coll_replay *r, uint32_t depth, uint32_t windows, uint32_t tiles, coll_replay_fn fn,
                            void *arg, char *why, size_t why_bytes)
{
	coll_status status;

	r->depth = depth;
	r->windows = windows ? windows : 1;
	r->tiles = tiles;
	r->fn = fn;
	r->arg = arg;
	r->stopped = false;
	r->overtaken = false;
	r->unfinished = 0;
	r->stack_used = 0;
	status = allocate_run(r);
	if (!status) {
		begin_all(r);
		while (r->stack_used && !r->stopped) {
			uint32_t id = r->stack[--r->stack_used];

			r->lanes[id].queued = false;
			run_lane(r, id);
		}
		if (r->overtaken)
			status = report_overtaken(why, why_bytes);
		else if (r->stopped)
			status = COLL_ERR_ABORTED;
		else if (r->unfinished)
			status = report_deadlock(r, why, why_bytes);
	}
	free_run(r);
	return status;
}
