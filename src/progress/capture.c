/*
 * Captured calls: see capture.h. Owns their ring and words, what is put into the graph, and the runs at its launches.
 *
 * For the tiles of the calls of one group in turn, j = 0, 1, ... in slot (first + j) % S, a launch does:
 *
 *	stream   wait `go` has CLEAR | gather, full = id | wait `go` has TAKEN | scatter, full = 0
 *	host     ... sees id, runs the tile, go = TAKEN ... sees 0, go = CLEAR
 *
 * in the order of stage.c. A graph repeats its values, so words cannot count: each goes round. `full` is written by the
 * device alone and `go` by the host alone, which has the bits of both waits when it releases the streams.
 */
#include "progress/capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/run.h"
#include "progress/begin.h"
#include "progress/drive.h"
#include "progress/inflight.h"
#include "progress/request.h"
#include "progress/stage_ring.h"
#include "select/bind.h"
#include "select/bind_pair.h"

enum { SLOTS = COLL_STAGE_SLOTS, SWEEP_EVERY = 256 };
enum { TAKEN = 1, CLEAR = 2, RELEASED = TAKEN | CLEAR }; /* of `go` */

/* Makes the frames of a call differ from those of another place in the graph. */
static const uint64_t PLACE_SALT = 0x6772617068;

/* Behind the words of the ring. */
struct words {
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t full[SLOTS]; /* device */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t go[SLOTS];   /* host */
};
static_assert(sizeof(struct words) <= COLL_STAGE_PAGE / 2, "the words fit in the other half of the page");

/* One graph, for one communicator: all that it has captured in one capture. */
struct graph {
	struct graph *next;
	struct coll_captured *calls;
	uint64_t capture; /* its id */
	coll_device_stream last;
	uint32_t places;  /* calls so far */
	atomic_bool gone; /* by the driver, in any thread; release */
};

/* A call, or the calls of a group. */
struct coll_captured {
	struct coll_captured *next; /* of the graph */
	struct graph *graph;
	uint32_t id;    /* of comm->capture->ids */
	uint32_t place; /* of the first call in the graph */
	uint32_t slot;  /* of the first tile */
	bool complete;  /* all of it is in the graph */
	size_t tiles;   /* in turn, those that do not exist too */
	int n;
	struct call {
		struct coll_request *r;
		size_t tiles[2]; /* by half */
	} calls[];
};

/* Run and scratch of a collective, by its number in the group. */
struct place {
	struct coll_run *run;
	char *scratch;
	size_t scratch_bytes;
};

struct coll_capture {
	struct coll_stage *ring;
	struct words *words;
	coll_device_fence fence;
	uint32_t next_slot;

	/* Lock. */
	struct graph *graphs;
	struct coll_captured **ids; /* by id - 1; NULL: free */
	size_t nids;
	struct place places[SLOTS];
	uint64_t sequence;    /* of collectives */
	uint64_t *numbers[2]; /* of messages, by half and rank */
	unsigned polls;
	bool closing, ended;

	/* Lock: what the device is in, and how many of its tiles have been seen, given and left. */
	struct coll_captured *active;
	size_t seen, given, left;
};

/* ---- Life ---- */

/* Rings whose graphs outlive their communicator. */
struct orphan {
	struct orphan *next;
	struct coll_stage *ring;
	struct graph *graphs;
	int ordinal;
};
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct orphan *orphans;

/* Free those that are gone. */
static void sweep_graphs(struct graph **at)
{
	while (*at) {
		struct graph *g = *at;

		/* Acquire: the driver's thread has left it. */
		if (!atomic_load_explicit(&g->gone, memory_order_acquire)) {
			at = &g->next;
			continue;
		}
		*at = g->next;
		free(g);
	}
}

/* With any device object of the same ordinal: its context is the one that the memory is pinned in, or that one has
 * ended, and with it the pinning. */
static void sweep_orphans(struct coll_device *d)
{
	pthread_mutex_lock(&orphans_lock);
	for (struct orphan **at = &orphans; *at;) {
		struct orphan *o = *at;

		sweep_graphs(&o->graphs);
		if (o->graphs || o->ordinal != d->ordinal) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		o->ring->device = d;
		coll_stage_ring_close(&o->ring);
		free(o);
	}
	pthread_mutex_unlock(&orphans_lock);
}

static coll_status open_ring(struct coll_comm *comm, struct coll_capture *c, struct coll_error_box *err)
{
	struct coll_device *d = comm->ctx->device;
	coll_status st = coll_stage_ring_open(comm, &c->ring, err);

	if (st != COLL_OK)
		return st;
	c->words = (struct words *)((char *)c->ring->memory + COLL_STAGE_PAGE / 2);
	for (int i = 0; i < SLOTS; i++)
		atomic_store_explicit(&c->words->go[i], CLEAR, memory_order_relaxed);
	st = d->table->fence_create(d, &c->fence);
	if (st != COLL_OK)
		coll_device_error(d, err);
	return st;
}

static coll_status open_capture(struct coll_comm *comm, struct coll_error_box *err)
{
	struct coll_capture *c = comm->capture = calloc(1, sizeof(*c));

	for (int half = 0; half < 2 && c; half++)
		c->numbers[half] = calloc((size_t)comm->size, sizeof(*c->numbers[half]));
	if (!c || !c->numbers[0] || !c->numbers[1])
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for a capture");
	return open_ring(comm, c, err);
}

static void free_capture(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;

	comm->capture = NULL;
	for (int i = 0; i < SLOTS; i++) {
		coll_run_destroy(&c->places[i].run);
		free(c->places[i].scratch);
	}
	free(c->numbers[0]);
	free(c->numbers[1]);
	free(c->ids);
	free(c);
}

static void close_ring(struct coll_capture *c)
{
	struct coll_device *d = c->ring ? c->ring->device : NULL;

	if (c->fence)
		d->table->fence_destroy(d, c->fence);
	coll_stage_ring_close(&c->ring);
}

coll_status coll_capture_ring(struct coll_comm *comm, struct coll_stage **ring)
{
	struct coll_error_box err;
	coll_status st = COLL_OK;

	if (!atomic_load_explicit(&comm->ctx->async->running, memory_order_relaxed))
		return coll_comm_refuse(
		        comm, "stream", COLL_ERR_UNSUPPORTED,
		        "[COLL-1216] a stream that is being captured, without a progress thread: nobody "
		        "could run the call when the graph is launched (COLL_PROGRESS=%s)",
		        comm->ctx->settings.progress);
	if (!comm->capture) {
		coll_error_clear(&err);
		sweep_orphans(comm->ctx->device);
		st = open_capture(comm, &err);
	}
	if (st != COLL_OK) {
		if (comm->capture) {
			close_ring(comm->capture);
			free_capture(comm);
		}
		return coll_comm_refuse(comm, "stream", st, "%s", err.message);
	}
	*ring = comm->capture->ring;
	return COLL_OK;
}

/* The requests of a graph return to the communicator's pool. */
static void take_apart(struct coll_comm *comm, struct graph *g)
{
	struct coll_capture *c = comm->capture;

	while (g->calls) {
		struct coll_captured *x = g->calls;

		g->calls = x->next;
		c->ids[x->id - 1] = NULL;
		for (int i = 0; i < x->n; i++) {
			struct coll_request *r = x->calls[i].r;

			r->captured = NULL;
			r->next = comm->inflight.done;
			comm->inflight.done = r;
		}
		free(x);
	}
}

void coll_capture_destroy(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;
	struct orphan *o;

	if (!c)
		return;
	for (struct graph *g = c->graphs; g; g = g->next)
		take_apart(comm, g);
	sweep_graphs(&c->graphs);
	sweep_orphans(c->ring->device);
	if (!c->graphs) {
		close_ring(c);
	} else if ((o = malloc(sizeof(*o)))) {
		*o = (struct orphan){.ring = c->ring, .graphs = c->graphs, .ordinal = c->ring->device->ordinal};
		pthread_mutex_lock(&orphans_lock);
		o->next = orphans;
		orphans = o;
		pthread_mutex_unlock(&orphans_lock);
	}
	free_capture(comm);
}

/* ---- Capture ---- */

coll_status coll_capture_empty(struct coll_request *r)
{
	if (r->kind == COLL_REQUEST_TAG)
		return coll_comm_refuse(r->comm, "stream", COLL_ERR_UNSUPPORTED,
		                        "[COLL-1217] a tagged message in a stream that is being captured");
	for (int half = 0; half < 2; half++)
		r->stage[half] = (struct coll_run_stage){.in = NULL};
	r->job.stage = NULL;
	r->staged = true;
	r->stage_tiles = 1;
	return COLL_OK;
}

static uint32_t slot_of(const struct coll_captured *x, size_t j)
{
	return (uint32_t)((x->slot + j) % SLOTS);
}

static uint32_t slot_of_tile(const struct coll_request *r, size_t t)
{
	return coll_stage_number(&r->stage[0], t) % SLOTS;
}

static struct words *words_of(const struct coll_stage *ring)
{
	return (struct words *)((char *)ring->memory + COLL_STAGE_PAGE / 2);
}

static coll_status put_gather(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	struct words *w = words_of(s);
	const uint32_t slot = slot_of_tile(r, t);
	const struct coll_device_table *table = s->device->table;
	const coll_status st = table->wait_bit(s->device, r->device_stream, coll_stage_address(s, &w->go[slot]), CLEAR);

	if (st != COLL_OK)
		return st;
	return table->gather(s->device, r->device_stream, s->pieces, coll_stage_pieces_in(s, r, t),
	                     coll_stage_address(s, &w->full[slot]), r->captured->id);
}

static coll_status put_wait(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	return s->device->table->wait_bit(s->device, r->device_stream,
	                                  coll_stage_address(s, &words_of(s)->go[slot_of_tile(r, t)]), TAKEN);
}

static coll_status put_scatter(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const int n = coll_stage_pieces_out(s, r, t);

	return s->device->table->scatter(s->device, r->device_stream, s->pieces, n,
	                                 coll_stage_address(s, &s->words->guard),
	                                 coll_stage_address(s, &words_of(s)->full[slot_of_tile(r, t)]), 0);
}

static void note_gone(void *arg)
{
	struct graph *g = arg;

	atomic_store_explicit(&g->gone, true, memory_order_release);
}

/* What this capture has of the communicator so far. */
static coll_status find_graph(struct coll_comm *comm, const struct coll_device_capture *capture, struct graph **out)
{
	struct coll_capture *c = comm->capture;
	struct coll_device *d = c->ring->device;
	struct coll_error_box err;
	struct graph *g;
	coll_status st;

	/* Drivers take graphs out of the list, but none that is being captured. */
	coll_async_lock(comm->ctx);
	for (g = c->graphs; g && g->capture != capture->id; g = g->next)
		;
	pthread_mutex_unlock(&comm->ctx->async->lock);
	*out = g;
	if (g)
		return COLL_OK;
	g = calloc(1, sizeof(*g));
	if (!g)
		return coll_comm_refuse(comm, "stream", COLL_ERR_MEMORY, "out of memory for a capture");
	g->capture = capture->id;
	atomic_init(&g->gone, false);
	st = d->table->graph_own(d, capture->graph, note_gone, g);
	/* Even if that has failed, gone() may be on its way, so the graph is listed. */
	coll_async_lock(comm->ctx);
	g->next = c->graphs;
	c->graphs = g;
	coll_inflight_keep(comm);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	*out = g;
	if (st == COLL_OK)
		return COLL_OK;
	g->capture = 0;
	coll_device_error(d, &err);
	return coll_comm_refuse(comm, "stream", st, "%s", err.message);
}

/* Runs and scratch for collectives of a group. The lock is held. */
static coll_status need_places(struct coll_capture *c, const struct coll_captured *x)
{
	for (int i = 0; i < x->n; i++) {
		const size_t bytes = x->calls[i].r->scratch_bytes;
		struct place *p = &c->places[i];
		void *scratch;

		if (x->calls[i].r->kind != COLL_REQUEST_COLLECTIVE)
			continue;
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

/* The lock is held. */
static coll_status need_id(struct coll_capture *c, struct coll_captured *x)
{
	const size_t more = c->nids ? 2 * c->nids : 64;
	struct coll_captured **ids;
	size_t i = 0;

	while (i < c->nids && c->ids[i])
		i++;
	if (i == c->nids) {
		ids = realloc(c->ids, more * sizeof(struct coll_captured *));
		if (!ids)
			return COLL_ERR_MEMORY;
		memset(ids + c->nids, 0, (more - c->nids) * sizeof(struct coll_captured *));
		c->ids = ids;
		c->nids = more;
	}
	c->ids[i] = x;
	x->id = (uint32_t)i + 1;
	return COLL_OK;
}

/* An operation may be started in other ways as well, so the graph gets a request of its own. */
static coll_status own_request(struct coll_request *r, struct coll_request **own)
{
	coll_status st;

	*own = r;
	if (!r->operation)
		return COLL_OK;
	st = coll_request_call(r->comm, &r->call, own);
	if (st != COLL_OK)
		return st;
	(*own)->staged = true;
	(*own)->local.from = NULL;
	(*own)->stage[0] = r->stage[0];
	(*own)->stage_tiles = r->stage_tiles;
	(*own)->job.stage = r->job.stage ? &(*own)->stage[0] : NULL;
	(*own)->device_stream = r->device_stream;
	return COLL_OK;
}

/* The requests of the graph, made from those of a chain. */
static coll_status collect(struct coll_request *first, struct coll_captured **out)
{
	const int n = first->chain_calls;
	struct coll_captured *x = calloc(1, sizeof(*x) + (size_t)n * sizeof(x->calls[0]));
	coll_status st = COLL_OK;

	if (!x)
		return coll_comm_refuse(first->comm, "stream", COLL_ERR_MEMORY, "out of memory for a capture");
	for (struct coll_request *r = first; r && st == COLL_OK; r = r->next_staged) {
		struct call *call = &x->calls[x->n];

		st = own_request(r, &call->r);
		if (st != COLL_OK)
			break;
		call->tiles[0] = coll_stage_half_tiles(call->r, 0);
		call->tiles[1] = coll_stage_half_tiles(call->r, 1);
		x->n++;
	}
	*out = x;
	return st;
}

/* Undo collect(): the caller has its requests, and operations lose their copies. */
static void discard(struct coll_request *first, struct coll_captured *x)
{
	struct coll_request *r = first;

	for (int i = 0; x && i < x->n; i++, r = r->next_staged) {
		x->calls[i].r->captured = NULL;
		if (x->calls[i].r != r)
			coll_request_recycle(x->calls[i].r);
	}
	free(x);
}

/* Give the calls their slots: a stream comes to them one after the other. */
static void deal(struct coll_capture *c, struct coll_captured *x, struct coll_request **by)
{
	for (int i = 0; i < x->n; i++)
		by[i] = x->calls[i].r;
	x->slot = c->next_slot;
	x->tiles = coll_stage_places(by, x->n);
	c->next_slot = slot_of(x, x->tiles);
	for (int i = 0; i < x->n; i++) {
		for (int half = 0; half < 2; half++) {
			by[i]->stage[half].number = x->slot + (uint32_t)i;
			by[i]->stage[half].apart = (uint32_t)x->n;
			by[i]->stage[half].slots = SLOTS;
		}
		by[i]->captured = x;
		by[i]->user_stream = by[i]->device_stream;
		by[i]->device_stream = by[0]->user_stream;
	}
}

static coll_status join_streams(struct coll_device *d, struct coll_request *const *by, int n, bool before)
{
	coll_device_stream main = by[0]->device_stream;
	coll_status st = COLL_OK;

	for (int i = 1; i < n && st == COLL_OK; i++)
		if (by[i]->user_stream != main)
			st = before ? d->table->order(d, by[i]->user_stream, main)
			            : d->table->order(d, main, by[i]->user_stream);
	return st;
}

/* In the graph: behind its calls before, and behind the launches before it. */
static coll_status enqueue(struct coll_capture *c, struct graph *g, struct coll_request *const *by, int n)
{
	static const struct coll_stage_puts puts = {put_gather, put_wait, put_scatter};
	struct coll_device *d = c->ring->device;
	coll_device_stream main = by[0]->device_stream;
	coll_status st = d->table->enter(d);

	if (st != COLL_OK)
		return st;
	if (g->places == 0)
		st = d->table->fence_wait(d, main, c->fence);
	else if (g->last != main)
		st = d->table->order(d, g->last, main);
	if (st == COLL_OK)
		st = join_streams(d, by, n, true);
	if (st == COLL_OK)
		st = coll_stage_put(c->ring, by, n, &puts);
	if (st == COLL_OK)
		st = d->table->fence_record(d, main, c->fence);
	if (st == COLL_OK)
		st = join_streams(d, by, n, false);
	d->table->leave(d);
	g->last = main;
	return st;
}

static coll_status take_chain(struct coll_request *first, const struct coll_device_capture *capture)
{
	struct coll_comm *comm = first->comm;
	struct coll_capture *c = comm->capture;
	struct coll_request *by[SLOTS];
	struct coll_captured *x = NULL;
	struct coll_error_box err;
	struct graph *g;
	coll_status st = find_graph(comm, capture, &g);

	if (st == COLL_OK)
		st = collect(first, &x);
	if (st != COLL_OK) {
		discard(first, x);
		return st;
	}
	coll_async_lock(comm->ctx);
	st = need_places(c, x);
	if (st == COLL_OK)
		st = need_id(c, x);
	if (st == COLL_OK) {
		deal(c, x, by);
		x->graph = g;
		x->place = g->places;
		x->next = g->calls;
		g->calls = x;
		coll_async_call(comm->ctx);
	}
	pthread_mutex_unlock(&comm->ctx->async->lock);
	if (st != COLL_OK) {
		discard(first, x);
		return coll_comm_refuse(comm, "stream", st, "out of memory for a capture");
	}
	/* From here on the graph has the requests: some of the work may be in it. */
	for (struct coll_request *r = first; r; r = r->next_staged)
		r->in_graph = true;
	st = enqueue(c, g, by, x->n);
	g->places += (uint32_t)x->n;
	if (st == COLL_OK) {
		coll_async_lock(comm->ctx);
		x->complete = true;
		pthread_mutex_unlock(&comm->ctx->async->lock);
		return COLL_OK;
	}
	coll_device_error(c->ring->device, &err);
	return coll_comm_refuse(comm, "stream", st, "%s", err.message);
}

coll_status coll_capture_take(const struct coll_stage_batch *b)
{
	coll_status st = COLL_OK;

	if (b->outside)
		return coll_comm_refuse(b->chains->comm, "group", COLL_ERR_UNSUPPORTED,
		                        "[COLL-1218] a group with calls inside and outside of a capture");
	for (struct coll_request *r = b->chains; r && st == COLL_OK; r = r->next_chain)
		if (r->chain_calls > SLOTS)
			st = coll_comm_refuse(r->comm, "group", COLL_ERR_UNSUPPORTED,
			                      "[COLL-1213] %d calls with device memory in one group: at most %d",
			                      r->chain_calls, SLOTS);
	for (struct coll_request *r = b->chains, *next; r && st == COLL_OK; r = next) {
		next = r->next_chain;
		st = take_chain(r, &b->capture);
	}
	return st;
}

/* ---- Launches (the lock is held) ---- */

static bool exists(const struct coll_captured *x, size_t j)
{
	return j / (size_t)x->n < x->calls[j % (size_t)x->n].r->stage_tiles;
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
	const struct call *call = &x->calls[j % (size_t)x->n];
	const size_t t = j / (size_t)x->n;

	for (int half = 0; half < 2; half++) {
		const struct coll_run_stage *s = &call->r->stage[half];
		const uint32_t number = coll_stage_number(s, t);

		if (t < call->tiles[half] &&
		    atomic_load_explicit(&s->taken[number % SLOTS], memory_order_acquire) != number + 1)
			return false;
	}
	return true;
}

/* Pass the words on between the device and the runs. */
static bool pump(struct coll_capture *c)
{
	const struct coll_captured *x = c->active;
	const size_t before = c->seen + c->given + c->left;

	for (; c->seen < x->tiles && c->seen < c->left + SLOTS; c->seen++)
		if (exists(x, c->seen) && full(c, slot_of(x, c->seen)) != x->id)
			break;
	atomic_store_explicit(&c->ring->words->ready, x->slot + (uint32_t)c->seen, memory_order_release);
	for (; c->given < c->seen; c->given++) {
		if (!exists(x, c->given))
			continue;
		if (!is_taken(x, c->given))
			break;
		let_go(c, slot_of(x, c->given), TAKEN);
	}
	for (; c->left < c->given; c->left++) {
		if (!exists(x, c->left))
			continue;
		if (full(c, slot_of(x, c->left)) != 0)
			break;
		let_go(c, slot_of(x, c->left), CLEAR);
	}
	return c->seen + c->given + c->left != before;
}

bool coll_capture_left(const struct coll_request *r)
{
	const struct coll_capture *c = r->comm->capture;

	return c->active != r->captured || c->left == r->captured->tiles;
}

static coll_status start_collective(struct coll_request *r, struct place *p, const struct coll_run *after, size_t place)
{
	struct coll_comm *comm = r->comm;

	r->job.intra = NULL;
	r->job.scratch = p->scratch;
	r->job.after = after;
	r->job.sequence = ++comm->capture->sequence;
	r->job.signature = r->signature;
	coll_call_record(comm, &r->call, &r->job, &r->record);
	r->record.flags |= COLL_RECORD_CAPTURED;
	r->job.signature ^= (uint32_t)coll_mix64(PLACE_SALT ^ place);
	r->wait.entries[0] = coll_begin_entry(comm, &r->call, &r->record, r->signature, COLL_WAY_UNKNOWN, 0);
	r->wait.runs[r->wait.nruns++] = p->run;
	return coll_run_start(p->run, &comm->captured[0].fabric, &r->job);
}

static coll_status start_pair(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	coll_status st = COLL_OK;

	coll_pair_record(comm, &r->pair, &r->record);
	r->record.sequence = comm->inflight.begun;
	r->record.flags |= COLL_RECORD_CAPTURED;
	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		struct coll_job job;

		if (!r->pair_plan[half])
			continue;
		coll_pair_job(comm, &r->pair, half, r->pair_plan[half], &job);
		job.sequence = ++comm->capture->numbers[half][coll_pair_peer(&r->pair, half)];
		job.stage = r->stage[half].ready ? &r->stage[half] : NULL;
		/* Without a number: those of other messages are looked up by it. */
		r->wait.entries[r->wait.nruns] = coll_begin_pair_entry(comm, &r->pair, half, 0, 0);
		r->wait.runs[r->wait.nruns++] = r->pair_run[half];
		st = coll_run_start(r->pair_run[half], &comm->captured[1].fabric, &job);
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
	r->held = r->reached = true;
	r->enqueued = false;
	r->waiting_ns = 0;
	r->local.tiles = 0;
	r->timer = (struct coll_wait_timer){0};
	r->wait = (struct coll_wait){.record = &r->record};
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
}

/* The device has come to these calls. */
static void start(struct coll_comm *comm, struct coll_captured *x)
{
	struct coll_capture *c = comm->capture;
	const struct coll_run *after = NULL;
	coll_status st = need_places(c, x);

	c->active = x;
	c->seen = c->given = c->left = 0;
	atomic_store_explicit(&c->ring->words->ready, x->slot, memory_order_relaxed);
	memset((void *)c->ring->words->taken, 0, sizeof(c->ring->words->taken));
	if (!x->complete) {
		fail(comm, COLL_ERR_SYSTEM, "the graph has a part only of a call that could not be captured", "");
		return;
	}
	for (int i = 0; i < x->n && st == COLL_OK; i++) {
		struct coll_request *r = x->calls[i].r;

		reset(r);
		coll_inflight_join(r);
		if (r->kind == COLL_REQUEST_COLLECTIVE) {
			st = start_collective(r, &c->places[i], after, x->place + (size_t)i);
			after = c->places[i].run;
		} else {
			st = start_pair(r);
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

/* The calls that the device waits in; NULL: none. */
static struct coll_captured *find_reached(const struct coll_capture *c)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		const uint32_t id = full(c, i);

		if (id > 0 && id <= c->nids && c->ids[id - 1])
			return c->ids[id - 1];
	}
	return NULL;
}

static bool has_ended(const struct coll_captured *x)
{
	for (int i = 0; i < x->n; i++)
		if (x->calls[i].r->state == COLL_REQUEST_RUNNING)
			return false;
	return true;
}

/* Let all streams pass, now and later. */
static void release(struct coll_capture *c)
{
	/* The guard first: a kernel that starts because one of these waits has ended sees it. */
	atomic_store_explicit(&c->ring->words->guard, 1, memory_order_release);
	for (uint32_t i = 0; i < SLOTS; i++)
		let_go(c, i, RELEASED);
	c->ended = true;
}

/* Take back what belongs to graphs that are gone. */
static void sweep(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;

	for (struct graph *g = c->graphs; g; g = g->next)
		if (atomic_load_explicit(&g->gone, memory_order_acquire))
			take_apart(comm, g);
	sweep_graphs(&c->graphs);
	if (!c->graphs)
		coll_inflight_unkeep(comm);
}

bool coll_capture_poll(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;
	struct coll_captured *x;
	bool moved = false;

	if (!c || (c->ended && !c->active))
		return false;
	if (c->active && !c->ended)
		moved = pump(c);
	if (c->active && has_ended(c->active) && (c->ended || c->left == c->active->tiles))
		c->active = NULL;
	if (c->active)
		return moved;
	if (c->closing && !c->ended)
		release(c);
	if (c->ended) {
		coll_inflight_unkeep(comm);
		return true;
	}
	x = find_reached(c);
	if (x)
		start(comm, x);
	else if (c->polls++ % SWEEP_EVERY == 0)
		sweep(comm);
	return moved || x;
}

void coll_capture_release(struct coll_comm *comm)
{
	if (comm->capture && !comm->capture->ended)
		release(comm->capture);
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
