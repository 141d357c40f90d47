/*
 * Launches of graphs: see capture_launch.h. The words of capture.c are passed on between the device and the runs. A
 * graph repeats its values: its number in `full` says which calls the device has come to.
 */
#include "devcall/capture_launch.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/hash.h"
#include "call/begin.h"
#include "core/error.h"
#include "devcall/capture_ring.h"
#include "devcall/capture_state.h"
#include "devcall/mapped_graphs.h"
#include "engine/run.h"
#include "inflight/lock.h"
#include "inflight/queue.h"
#include "select/bind.h"
#include "select/bind_pair.h"

enum { SWEEP_EVERY = 256 };

/* Makes the frames of a call differ from those of another place in the graph. */
static const uint64_t PLACE_SALT = 0x6772617068;

coll_status coll_capture_places(struct coll_capture *c, const struct coll_captured *x)
{
	for (int i = 0; i < x->n && !x->direct; i++) {
		struct capture_place *p = &c->places[i];
		size_t bytes;
		void *scratch;

		if (x->calls[i].r->is != COLL_IS_COLLECTIVE)
			continue;
		bytes = coll_collective_of(x->calls[i].r)->scratch_bytes;
		if (!p->run && coll_run_create(&p->run) != COLL_OK)
			return COLL_ERR_MEMORY;
		/* That in use stays until no launch can be in it. */
		if (bytes <= p->scratch_bytes || c->active)
			continue;
		if (posix_memalign(&scratch, 4096, bytes))
			return COLL_ERR_MEMORY;
		free(p->scratch);
		p->scratch = scratch;
		p->scratch_bytes = bytes;
	}
	return COLL_OK;
}

static bool exists(const struct coll_captured *x, size_t j)
{
	size_t t;

	return capture_at(x, j, &t) != NULL;
}

/* What the device has stored is seen with what it stored before. */
static uint32_t full(const struct coll_capture *c, uint32_t slot)
{
	return atomic_load_explicit(&c->words->full[slot], memory_order_acquire);
}

static void let_go(struct coll_capture *c, uint32_t slot, uint32_t bits)
{
	atomic_store_explicit(&c->words->go[slot], bits, memory_order_release);
}

/* Whether the runs have left the slot of a tile. */
static bool is_taken(const struct coll_captured *x, size_t j)
{
	size_t t = 0;
	const struct capture_call *call = capture_at(x, j, &t);

	for (int half = 0; call && half < 2; half++) {
		const struct coll_run_stage *s = &call->r->device->stage[half];
		const uint32_t number = coll_stage_number(s, t);

		if (t < call->tiles[half] &&
		    atomic_load_explicit(&s->taken[number % CAPTURE_SLOTS], memory_order_acquire) != number + 1)
			return false;
	}
	return true;
}

/* Pass the words on between the device and the runs. */
static bool pump(struct coll_capture *c)
{
	const struct coll_captured *x = c->active;
	const size_t before = c->seen + c->given + c->left;

	for (; c->seen < x->tiles && c->seen < c->left + CAPTURE_SLOTS; c->seen++)
		if (exists(x, c->seen) && full(c, capture_slot(x, c->seen)) != x->id)
			break;
	atomic_store_explicit(&c->ring->words->ready, x->slot + (uint32_t)c->seen, memory_order_release);
	for (; c->given < c->seen; c->given++) {
		if (!exists(x, c->given))
			continue;
		if (!is_taken(x, c->given))
			break;
		let_go(c, capture_slot(x, c->given), CAPTURE_TAKEN);
	}
	for (; c->left < c->given; c->left++) {
		if (!exists(x, c->left))
			continue;
		if (full(c, capture_slot(x, c->left)) != 0)
			break;
		let_go(c, capture_slot(x, c->left), CAPTURE_CLEAR);
	}
	return c->seen + c->given + c->left != before;
}

bool coll_capture_left(const struct coll_request *r)
{
	const struct coll_capture *c = r->comm->capture;
	const struct coll_device_call *d = r->device;

	/* The run of a direct call ends when all devices have left it. */
	return d->direct || c->active != d->captured || c->left == d->captured->tiles;
}

/* What both kinds of collectives have in common. Each kind has its own order: how a rank groups its calls may say which
 * kind is first. Messages that name a call count both. */
static coll_status start_run(struct coll_collective_request *c, struct coll_run *run, uint64_t sequence, size_t place)
{
	struct coll_request *r = &c->request;
	struct coll_comm *comm = r->comm;

	c->job.sequence = sequence;
	c->job.signature = c->signature;
	coll_begin_record(comm, &c->call, &c->job, &r->record);
	r->record.sequence = comm->capture->sequence + comm->capture->directs;
	r->record.flags |= COLL_RECORD_CAPTURED;
	c->job.signature ^= (uint32_t)coll_mix64(PLACE_SALT ^ place);
	r->wait.entries[0] = coll_begin_entry(comm, &c->call, &r->record, c->signature, COLL_WAY_UNKNOWN, 0);
	r->wait.runs[r->wait.nruns++] = run;
	return coll_run_start(run, &comm->captured[0].fabric, &c->job);
}

static coll_status start_collective(struct coll_collective_request *c, struct capture_place *p,
                                    const struct coll_run *after, size_t place)
{
	c->job.intra = NULL;
	c->job.scratch = p->scratch;
	c->job.after = after;
	return start_run(c, p->run, ++c->request.comm->capture->sequence, place);
}

static coll_status start_direct(struct coll_collective_request *c, size_t place)
{
	struct coll_comm *comm = c->request.comm;

	c->job.intra = coll_mapped_graph_op(comm);
	c->job.scratch = NULL;
	c->job.after = NULL;
	return start_run(c, comm->capture->direct_run, ++comm->capture->directs, place);
}

/* The run of the message before, of those of a part that come before its call i: they have a channel together. */
static const struct coll_run *message_before(const struct coll_captured *x, int i, int half)
{
	const int peer = coll_pair_peer(&coll_pair_of(x->calls[i].r)->pair, half);

	while (--i >= 0) {
		const struct coll_request *r = x->calls[i].r;
		const struct coll_pair_request *p = r->is == COLL_IS_PAIR ? coll_pair_of(r) : NULL;

		if (p && p->plan[half] && coll_pair_peer(&p->pair, half) == peer)
			return p->run[half];
	}
	return NULL;
}

static coll_status start_pair(const struct coll_captured *x, int i)
{
	struct coll_request *r = x->calls[i].r;
	struct coll_pair_request *p = coll_pair_of(r);
	struct coll_comm *comm = r->comm;
	coll_status st = COLL_OK;

	coll_pair_record(comm, &p->pair, &r->record);
	r->record.sequence = comm->inflight.begun;
	r->record.flags |= COLL_RECORD_CAPTURED;
	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		struct coll_job job;

		if (!p->plan[half])
			continue;
		coll_pair_job(comm, &p->pair, half, p->plan[half], &job);
		job.sequence = ++comm->capture->numbers[half][coll_pair_peer(&p->pair, half)];
		job.stage = r->device->stage[half].ready ? &r->device->stage[half] : NULL;
		job.after = message_before(x, i, half);
		/* Without a number: those of other messages are looked up by it. */
		r->wait.entries[r->wait.nruns] = coll_begin_pair_entry(comm, &p->pair, half, 0, 0);
		r->wait.runs[r->wait.nruns++] = p->run[half];
		st = coll_run_start(p->run[half], &comm->captured[1].fabric, &job);
	}
	return st;
}

static void fail(struct coll_comm *comm, coll_status st, const char *cause, const char *more)
{
	coll_comm_fail(comm, st, comm->rank, cause, more);
	coll_inflight_lost(comm);
}

static void reset(struct coll_request *r)
{
	r->status = COLL_AGAIN;
	r->lost = COLL_OK;
	r->stream = NULL;
	r->held = r->device->reached = true;
	r->shown = COLL_SHOWN;
	r->queue[0] = r->queue[1] = NULL;
	r->device->waiting_ns = r->device->lost_until_ns = 0;
	r->device->local.tiles = 0;
	r->timer = (struct coll_wait_timer){0};
	r->wait = (struct coll_wait){.record = &r->record};
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
}

/* Those that are not direct begin with the words of the ring as the engine has them. */
static coll_status begin(struct coll_capture *c, struct coll_captured *x)
{
	coll_status st;

	if (x->direct) {
		c->direct = x;
		return COLL_OK;
	}
	st = coll_capture_places(c, x);
	c->active = x;
	c->seen = c->given = c->left = 0;
	atomic_store_explicit(&c->ring->words->ready, x->slot, memory_order_relaxed);
	memset((void *)c->ring->words->taken, 0, sizeof(c->ring->words->taken));
	return st;
}

/* The device has come to these calls. */
static void start(struct coll_comm *comm, struct coll_captured *x)
{
	struct coll_capture *c = comm->capture;
	const struct coll_run *after = NULL;
	coll_status st = begin(c, x);

	if (!x->complete) {
		fail(comm, COLL_ERR_SYSTEM, "the graph has a part only of a call that could not be captured", "");
		return;
	}
	for (int i = 0; i < x->n && st == COLL_OK; i++) {
		struct coll_request *r = x->calls[i].r;

		reset(r);
		coll_inflight_join(r);
		if (x->direct) {
			st = start_direct(coll_collective_of(r), x->calls[i].place);
		} else if (r->is == COLL_IS_COLLECTIVE) {
			st = start_collective(coll_collective_of(r), &c->places[i], after, x->calls[i].place);
			after = c->places[i].run;
		} else {
			st = start_pair(x, i);
		}
		for (int half = 0; half < 2; half++)
			if (r->wait.entries[half])
				coll_recorder_start(&comm->recorder, r->wait.entries[half]);
	}
	if (st != COLL_OK)
		fail(comm, st, "cannot start the plan: ", coll_status_string(st));
	else
		coll_inflight_publish(comm, NULL);
}

static struct coll_captured *by_id(const struct coll_capture *c, uint32_t id)
{
	return id > 0 && id <= c->nids ? c->ids[id - 1] : NULL;
}

/* The calls that the device waits in; NULL: none. */
static struct coll_captured *find_reached(const struct coll_capture *c)
{
	struct coll_captured *x = NULL;

	for (uint32_t i = 0; i < CAPTURE_SLOTS && !x; i++)
		x = by_id(c, full(c, i));
	return x;
}

/* The other calls of a group begin in front of those that go direct, and are seen when those are. */
static bool start_reached(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;
	struct coll_captured *direct = c->direct ? NULL : by_id(c, coll_mapped_graph_reached(comm));
	struct coll_captured *x = c->active ? NULL : find_reached(c);

	if (x)
		start(comm, x);
	if (direct && !comm->failed)
		start(comm, direct);
	return x || direct;
}

static bool has_ended(const struct coll_captured *x)
{
	for (int i = 0; i < x->n; i++)
		if (x->calls[i].r->state == COLL_REQUEST_RUNNING)
			return false;
	return true;
}

/* Let all streams pass, now and later. */
static void release(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;

	/* The guard first: a kernel that starts because one of these waits has ended sees it. */
	atomic_store_explicit(&c->ring->words->guard, 1, memory_order_release);
	for (uint32_t i = 0; i < CAPTURE_SLOTS; i++)
		let_go(c, i, CAPTURE_RELEASED);
	coll_mapped_graphs_release(comm);
	c->ended = true;
	c->leave_until_ns = coll_clock_ns() + COLL_DELAY_NS(DEVICE_DRAIN);
}

bool coll_capture_poll(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;
	bool moved = false;

	if (!c)
		return false;
	if (c->active && !c->ended)
		moved = pump(c);
	if (c->active && has_ended(c->active) && (c->ended || c->left == c->active->tiles))
		c->active = NULL;
	if (c->direct && has_ended(c->direct))
		c->direct = NULL;
	if (c->closing && !c->ended && !c->active && !c->direct)
		release(comm);
	if (c->ended) {
		/* Others wait for a device that reads their memory until they hear that it has left. */
		if (!c->active && !c->direct &&
		    (coll_mapped_graphs_have_left(coll_mapped_of(comm)) || coll_clock_ns() >= c->leave_until_ns))
			coll_inflight_unkeep(comm, COLL_KEPT_BY_GRAPHS);
		return moved;
	}
	if (!c->active || !c->direct)
		moved |= start_reached(comm);
	if (!c->active && !c->direct && c->polls++ % SWEEP_EVERY == 0)
		coll_capture_sweep(comm);
	return moved;
}

void coll_capture_release(struct coll_comm *comm)
{
	if (comm->capture && !comm->capture->ended)
		release(comm);
}

void coll_capture_close(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;

	if (!c)
		return;
	coll_async_lock(comm->ctx);
	c->closing = true;
	coll_capture_poll(comm);
	coll_async_unlock(comm->ctx);
}
