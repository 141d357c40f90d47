/*
 * See replay.h. Every lane of every (rank, window) runs until it blocks and is
 * woken by the one event that can unblock it: a frame on the channel it reads, a
 * slot on the channel it writes, or a retired step of the lane it waits for. So a
 * replay costs a few operations per step whatever the number of ranks.
 */
#include "plan/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/route.h"
#include "plan/step.h"

/* A route in one window: a channel. */
struct flow {
	uint32_t started;
	uint32_t consumed;
	uint32_t start_at; /* position within the sender's current instance */
	uint32_t consume_at;
	bool reader_waits;
	bool writer_waits;
};

struct lane_state {
	uint32_t head;
	uint32_t prefix;   /* retired without a gap */
	uint8_t waited_by; /* lanes of the same instance */
	bool queued;
};

/* One (rank, window). */
struct instance {
	uint32_t op;
	uint32_t tile;
	uint32_t left; /* steps not retired */
	bool idle;
};

struct coll_replay {
	struct coll_routes routes;
	int size;
	uint32_t ops;
	struct coll_model model;

	/* State of one run. */
	uint32_t depth, windows, tiles;
	struct flow *flows;       /* window * routes.count + route */
	struct instance *inst;    /* rank * windows + window */
	struct lane_state *lanes; /* instance * COLL_LANES_MAX + lane */
	uint8_t *retired;         /* window * total_steps + step_base[rank] + step */
	uint32_t *stack;
	uint32_t stack_used;
	size_t *step_base;
	size_t total_steps;
	coll_replay_fn fn;
	void *arg;
	bool stopped;
	int finished; /* instances of the last operation that are idle */
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

static void wake(struct coll_replay *r, uint32_t instance, uint32_t lane)
{
	uint32_t id = instance * COLL_LANES_MAX + lane;

	if (r->lanes[id].queued)
		return;
	r->lanes[id].queued = true;
	r->stack[r->stack_used++] = id;
}

/* Begin what the instance's op and tile say; an empty plan is over at once. */
static void begin(struct coll_replay *r, uint32_t instance)
{
	struct instance *in = &r->inst[instance];
	uint32_t window = instance % r->windows;
	int rank = (int)(instance / r->windows);
	const struct coll_plan *p = r->routes.plans[in->op][rank];

	in->left = coll_plan_nsteps(p);
	in->idle = false;
	memset(r->retired + window * r->total_steps + r->step_base[rank], 0, in->left);
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++) {
		struct lane_state *s = &r->lanes[instance * COLL_LANES_MAX + l];

		s->head = 0;
		s->prefix = 0;
		s->waited_by = 0;
		if (l < p->nlanes)
			wake(r, instance, l);
	}
}

/* All windows of the rank are idle: the next operation may begin. */
static void end_operation(struct coll_replay *r, int rank)
{
	uint32_t op = r->inst[(uint32_t)rank * r->windows].op;

	for (uint32_t w = 0; w < r->windows; w++)
		if (!r->inst[(uint32_t)rank * r->windows + w].idle)
			return;
	if (op + 1 == r->ops) {
		r->finished++;
		return;
	}
	for (uint32_t w = 0; w < r->windows; w++) {
		struct instance *in = &r->inst[(uint32_t)rank * r->windows + w];

		in->op = op + 1;
		in->tile = w;
		if (w < r->tiles)
			begin(r, (uint32_t)rank * r->windows + w);
	}
	/* An operation without steps ends by itself. */
	if (coll_plan_nsteps(r->routes.plans[op + 1][rank]) == 0) {
		for (uint32_t w = 0; w < r->windows; w++)
			r->inst[(uint32_t)rank * r->windows + w].idle = true;
		end_operation(r, rank);
	}
}

static void end_instance(struct coll_replay *r, uint32_t instance)
{
	struct instance *in = &r->inst[instance];

	in->tile += r->windows;
	if (in->tile < r->tiles) {
		begin(r, instance);
		return;
	}
	in->idle = true;
	end_operation(r, (int)(instance / r->windows));
}

static void retire(struct coll_replay *r, uint32_t instance, uint32_t lane, uint32_t step)
{
	struct instance *in = &r->inst[instance];
	struct lane_state *s = &r->lanes[instance * COLL_LANES_MAX + lane];
	int rank = (int)(instance / r->windows);
	const struct coll_plan *p = r->routes.plans[in->op][rank];
	uint8_t *retired = r->retired + (instance % r->windows) * r->total_steps + r->step_base[rank];
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

/* Start a frame; its number for the hook. */
static uint32_t start_frame(struct coll_replay *r, uint32_t instance, uint32_t op, uint32_t route)
{
	struct flow *f = flow_of(r, instance % r->windows, route);
	const struct coll_route *c = &r->routes.list[route];
	uint32_t frame = c->first[op] + f->start_at;

	f->started++;
	f->start_at = f->start_at + 1 == c->frames[op] ? 0 : f->start_at + 1;
	if (f->reader_waits) {
		f->reader_waits = false;
		wake(r, (uint32_t)c->receiver * r->windows + instance % r->windows, c->lane);
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
	uint32_t sender = (uint32_t)c->sender * r->windows + instance % r->windows;

	f->consumed++;
	f->consume_at = f->consume_at + 1 == c->frames[op] ? 0 : f->consume_at + 1;
	if (f->writer_waits) {
		f->writer_waits = false;
		wake(r, sender, c->lane);
	}
	if (r->routes.plans[op][c->sender]->steps[step].op == COLL_STEP_SEND)
		retire(r, sender, c->lane, step);
}

/* Whether a frame is there to read; if not, be woken when it is. */
static bool can_read(struct coll_replay *r, uint32_t window, uint32_t route)
{
	struct flow *f = flow_of(r, window, route);

	f->reader_waits = f->started == f->consumed;
	return !f->reader_waits;
}

static bool can_write(struct coll_replay *r, uint32_t window, uint32_t route)
{
	struct flow *f = flow_of(r, window, route);

	f->writer_waits = f->started - f->consumed >= r->depth;
	return !f->writer_waits;
}

static void tell(struct coll_replay *r, const struct instance *in, int rank, uint32_t step, uint32_t frame_in,
                 uint32_t frame_out)
{
	if (r->fn && in->op == 0 && in->tile == 0 && !r->fn(r->arg, rank, step, frame_in, frame_out))
		r->stopped = true;
}

/* Try the step at the head of a lane; true when the lane may go on. */
static bool try_step(struct coll_replay *r, uint32_t instance, uint32_t lane, uint32_t step, const struct coll_step *s)
{
	struct lane_state *ls = &r->lanes[instance * COLL_LANES_MAX];
	struct instance *in = &r->inst[instance];
	const int rank = (int)(instance / r->windows);
	const uint32_t window = instance % r->windows, op = in->op;
	uint32_t from = 0, to = 0, frame_in = COLL_NO_FRAME, frame_out = COLL_NO_FRAME;

	if (s->wait_count > ls[s->wait_lane].prefix && !r->model.ignore_waits) {
		ls[s->wait_lane].waited_by |= (uint8_t)(1u << lane);
		return false;
	}
	if (coll_step_receives(s->op)) {
		from = coll_route_in(&r->routes, op, rank, s);
		if (!can_read(r, window, from))
			return false;
		frame_in = next_frame(r, instance, op, from);
	}
	if (coll_step_sends(s->op)) {
		to = coll_route_out(&r->routes, op, rank, s);
		if (coll_step_is_fused(s->op) && !can_write(r, window, to))
			return false;
	}
	/* The lane moves on before others are told: they may retire this instance. */
	ls[lane].head++;
	if (coll_step_sends(s->op))
		frame_out = start_frame(r, instance, op, to);
	tell(r, in, rank, step, frame_in, frame_out);
	if (coll_step_receives(s->op))
		consume_frame(r, instance, op, from);
	if (s->op != COLL_STEP_SEND)
		retire(r, instance, lane, step);
	return true;
}

static void run_lane(struct coll_replay *r, uint32_t id)
{
	const uint32_t instance = id / COLL_LANES_MAX, lane = id % COLL_LANES_MAX;
	const int rank = (int)(instance / r->windows);
	struct lane_state *ls = &r->lanes[id];

	while (!r->stopped && !r->inst[instance].idle) {
		const struct coll_plan *p = r->routes.plans[r->inst[instance].op][rank];

		if (lane >= p->nlanes || ls->head == coll_lane_length(p, lane))
			return;
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
	size_t instances = (size_t)r->size * r->windows;

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
	r->retired = calloc(r->windows, r->total_steps + 1);
	r->stack = malloc(instances * COLL_LANES_MAX * sizeof(*r->stack));
	return r->flows && r->inst && r->lanes && r->retired && r->stack ? COLL_OK : COLL_ERR_MEMORY;
}

/* Why the step at the head of a lane does not run. */
static void describe_block(struct coll_replay *r, uint32_t id, char *why, size_t why_bytes)
{
	const uint32_t instance = id / COLL_LANES_MAX, lane = id % COLL_LANES_MAX;
	const struct instance *in = &r->inst[instance];
	const int rank = (int)(instance / r->windows);
	const struct coll_plan *p = r->routes.plans[in->op][rank];
	const struct lane_state *ls = &r->lanes[id];
	const struct coll_step *s = &p->steps[p->lane_first[lane] + ls->head];
	int n = snprintf(why, why_bytes, "deadlock: rank %d lane %u step %u (%s) of tile %u, operation %u, ", rank,
	                 lane, ls->head, coll_step_op_name(s->op), in->tile, in->op);

	if (n < 0 || (size_t)n >= why_bytes)
		return;
	why += n;
	why_bytes -= (size_t)n;
	if (s->wait_count > r->lanes[instance * COLL_LANES_MAX + s->wait_lane].prefix)
		snprintf(why, why_bytes, "waits for lane %u to retire %u steps", s->wait_lane, s->wait_count);
	else if (coll_step_receives(s->op) &&
	         !can_read(r, instance % r->windows, coll_route_in(&r->routes, in->op, rank, s)))
		snprintf(why, why_bytes, "waits for a frame from rank %d", p->peers[s->peer_recv]);
	else if (coll_step_sends(s->op))
		snprintf(why, why_bytes, "waits for a slot to rank %d", p->peers[s->peer_send]);
	else
		snprintf(why, why_bytes, "waits for its lane");
}

static coll_status report_deadlock(struct coll_replay *r, char *why, size_t why_bytes)
{
	uint32_t lanes = (uint32_t)r->size * r->windows * COLL_LANES_MAX;

	snprintf(why, why_bytes, "deadlock: a SEND never retires");
	for (uint32_t id = 0; id < lanes; id++) {
		const struct instance *in = &r->inst[id / COLL_LANES_MAX];
		const struct coll_plan *p = r->routes.plans[in->op][id / COLL_LANES_MAX / r->windows];

		if (in->idle || id % COLL_LANES_MAX >= p->nlanes ||
		    r->lanes[id].head >= coll_lane_length(p, id % COLL_LANES_MAX))
			continue;
		describe_block(r, id, why, why_bytes);
		break;
	}
	return COLL_ERR_INTERNAL;
}

/* Begin the first operation on every rank; empty plans end by themselves. */
static void begin_all(struct coll_replay *r)
{
	for (int rank = 0; rank < r->size; rank++) {
		bool empty = coll_plan_nsteps(r->routes.plans[0][rank]) == 0;

		for (uint32_t w = 0; w < r->windows; w++) {
			uint32_t instance = (uint32_t)rank * r->windows + w;

			r->inst[instance].tile = w;
			r->inst[instance].idle = true;
			if (!empty && w < r->tiles)
				begin(r, instance);
		}
		if (empty || r->tiles == 0)
			end_operation(r, rank);
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
	r->finished = 0;
	r->stack_used = 0;
	status = allocate_run(r);
	if (!status) {
		begin_all(r);
		while (r->stack_used && !r->stopped) {
			uint32_t id = r->stack[--r->stack_used];

			r->lanes[id].queued = false;
			run_lane(r, id);
		}
		if (r->stopped)
			status = COLL_ERR_ABORTED;
		else if (r->finished < r->size)
			status = report_deadlock(r, why, why_bytes);
	}
	free_run(r);
	return status;
}
