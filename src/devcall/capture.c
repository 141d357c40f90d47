/*
 * Captured calls: see capture.h. Owns what is put into graphs. Their ring: capture_ring.c; their launches:
 * capture_launch.c; the slots and words of calls that go direct: devcall/mapped_graphs.c.
 *
 * For the tiles of the calls of one group in turn (capture_state.h), j = 0, 1, ... in slot (first + j) % S, a
 * launch does:
 *
 *	stream   wait `go` has CLEAR | gather, full = id | wait `go` has TAKEN | scatter, full = 0
 *	host     ... sees id, runs the tile, go = TAKEN ... sees 0, go = CLEAR
 *
 * in the order of stage.c. A graph repeats its values, so words cannot count: each goes round. `full` is written by the
 * device alone and `go` by the host alone, which has the bits of both waits when it releases the streams.
 */
#include "devcall/capture.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "call/collective.h"
#include "core/error.h"
#include "devcall/capture_launch.h"
#include "devcall/capture_state.h"
#include "devcall/mapped_graphs.h"
#include "devcall/stage_ring.h"
#include "device/device.h"
#include "engine/run.h"
#include "inflight/lock.h"
#include "inflight/queue.h"
#include "inflight/thread.h"

/* ---- Calls ---- */

coll_status coll_capture_empty(struct coll_request *r)
{
	if (r->is == COLL_IS_TAG)
		return coll_comm_refuse(r->comm, "stream", COLL_ERR_UNSUPPORTED,
		                        "[COLL-1217] a tagged message in a stream that is being captured");
	for (int half = 0; half < 2; half++)
		r->device->stage[half] = (struct coll_run_stage){.in = NULL};
	if (r->is == COLL_IS_COLLECTIVE)
		coll_collective_of(r)->job.stage = NULL;
	r->device->tiles = 1;
	return COLL_OK;
}

static uint32_t slot_of_tile(const struct coll_request *r, size_t t)
{
	return coll_stage_number(&r->device->stage[0], t) % CAPTURE_SLOTS;
}

static struct capture_words *words_of(const struct coll_stage *ring)
{
	return (struct capture_words *)((char *)ring->memory + COLL_STAGE_PAGE / 2);
}

static coll_status put_gather(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	struct capture_words *w = words_of(s);
	const uint32_t slot = slot_of_tile(r, t);
	const struct coll_device_table *table = s->device->table;
	const coll_status st =
	        table->wait_bit(s->device, r->device->stream, coll_stage_address(s, &w->go[slot]), CAPTURE_CLEAR);

	if (st != COLL_OK)
		return st;
	return table->gather(s->device, r->device->stream, s->pieces, coll_stage_pieces_in(s, r, t, 0),
	                     coll_stage_address(s, &w->full[slot]), r->device->captured->id);
}

static coll_status put_wait(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	return s->device->table->wait_bit(s->device, r->device->stream,
	                                  coll_stage_address(s, &words_of(s)->go[slot_of_tile(r, t)]), CAPTURE_TAKEN);
}

static coll_status put_scatter(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const int n = coll_stage_pieces_out(s, r, t, 0);

	return s->device->table->scatter(s->device, r->device->stream, s->pieces, n,
	                                 coll_stage_address(s, &s->words->guard),
	                                 coll_stage_address(s, &words_of(s)->full[slot_of_tile(r, t)]), 0);
}

static void note_gone(void *arg)
{
	struct capture_graph *g = arg;

	atomic_store_explicit(&g->gone, true, memory_order_release);
}

/* What this capture has of the communicator so far. */
static coll_status find_graph(struct coll_comm *comm, const struct coll_device_capture *capture,
                              struct capture_graph **out)
{
	struct coll_capture *c = comm->capture;
	struct coll_device *d = c->ring->device;
	struct coll_error_box err;
	struct capture_graph *g;
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
	if (st != COLL_OK)
		g->capture = 0;
	g->next = c->graphs;
	c->graphs = g;
	coll_inflight_keep(comm, COLL_KEPT_BY_GRAPHS);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	*out = g;
	if (st == COLL_OK)
		return COLL_OK;
	coll_device_error(d, &err);
	return coll_comm_refuse(comm, "stream", st, "%s", err.message);
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
	struct coll_device_call *d;
	struct coll_collective_request *c;
	coll_status st;

	*own = r;
	if (!r->device->host->later)
		return COLL_OK;
	st = coll_collective_make(r->comm, &coll_collective_of(r)->call, &c);
	if (st != COLL_OK)
		return st;
	d = c->request.device ? c->request.device : malloc(sizeof(*d));
	if (!d) {
		coll_request_recycle(&c->request);
		return coll_comm_refuse(r->comm, "stream", COLL_ERR_MEMORY, "out of memory for a capture");
	}
	*d = *r->device;
	d->host = c->request.kind;
	c->request.device = d;
	c->job.stage = d->direct ? &d->direct_call.stage : coll_collective_of(r)->job.stage ? &d->stage[0] : NULL;
	*own = &c->request;
	return COLL_OK;
}

/* ---- Chains ---- */

/* The parts of a chain, in a list: each direct call, and the others. */
struct chain {
	struct coll_captured *parts;
	struct coll_captured *rest; /* of these: the others; NULL: there are none */
};

static struct coll_captured *add_part(struct chain *chain, int n)
{
	struct coll_captured *x = calloc(1, sizeof(*x) + (size_t)n * sizeof(x->calls[0]));

	if (x) {
		x->next = chain->parts;
		chain->parts = x;
	}
	return x;
}

static coll_status add_call(struct coll_captured *x, struct coll_request *r)
{
	struct capture_call *call = &x->calls[x->n];
	const coll_status st = own_request(r, &call->r);

	if (st != COLL_OK)
		return st;
	call->own = call->r != r;
	call->tiles[0] = x->direct ? 0 : coll_stage_half_tiles(call->r, 0);
	call->tiles[1] = x->direct ? 0 : coll_stage_half_tiles(call->r, 1);
	x->n++;
	return COLL_OK;
}

/* Numbers of collectives, and of direct ones: equal on all ranks, whatever their messages and groups. */
static void number(struct capture_graph *g, struct capture_call *call)
{
	if (call->r->is == COLL_IS_COLLECTIVE)
		call->place = g->places++;
	if (call->r->device->direct)
		g->syncs = coll_mapped_graph_assign(&call->r->device->direct_call, g->syncs);
}

/* The requests of the graph, made from those of a chain. */
static coll_status collect(struct capture_graph *g, struct coll_request *first, struct chain *chain)
{
	coll_status st = COLL_OK;

	for (struct coll_request *r = first; r && st == COLL_OK; r = r->device->next) {
		struct coll_captured *x = r->device->direct ? NULL : chain->rest;

		if (!x)
			x = add_part(chain, r->device->direct ? 1 : first->device->chain_calls);
		if (!x)
			return coll_comm_refuse(first->comm, "stream", COLL_ERR_MEMORY, "out of memory for a capture");
		x->direct = r->device->direct;
		if (!r->device->direct)
			chain->rest = x;
		st = add_call(x, r);
		if (st == COLL_OK)
			number(g, &x->calls[x->n - 1]);
	}
	return st;
}

/* Undo collect(): the caller has its requests, and operations lose their copies. */
static void discard(struct chain *chain)
{
	while (chain->parts) {
		struct coll_captured *x = chain->parts;

		chain->parts = x->next;
		for (int i = 0; i < x->n; i++) {
			x->calls[i].r->device->captured = NULL;
			if (x->calls[i].own)
				coll_request_recycle(x->calls[i].r);
		}
		free(x);
	}
}

/* Whether two calls of a group have a channel together, so that one must follow the other. */
static bool share(const struct coll_request *a, const struct coll_request *b)
{
	if (a->is != b->is || a->is == COLL_IS_COLLECTIVE)
		return a->is == b->is;
	for (int half = 0; half < 2; half++)
		if (coll_pair_of(a)->plan[half] && coll_pair_of(b)->plan[half] &&
		    coll_pair_peer(&coll_pair_of(a)->pair, half) == coll_pair_peer(&coll_pair_of(b)->pair, half))
			return true;
	return false;
}

/* A call's first row is behind the calls before it that it shares a channel with. Its column is one that is free from
 * there on. */
static void place(struct coll_captured *x)
{
	size_t ends[CAPTURE_SLOTS], rows = 0; /* ends: of the columns */
	int last[CAPTURE_SLOTS];

	x->columns = 0;
	for (int i = 0; i < x->n; i++) {
		struct capture_call *call = &x->calls[i];
		int column = 0;

		call->row = 0;
		call->next = -1;
		for (int k = 0; k < i; k++)
			if (share(x->calls[k].r, call->r) && capture_end(&x->calls[k]) > call->row)
				call->row = capture_end(&x->calls[k]);
		while (column < x->columns && ends[column] > call->row)
			column++;
		if (column == x->columns)
			x->calls[x->columns++].first = i;
		else
			x->calls[last[column]].next = i;
		call->column = column;
		last[column] = i;
		ends[column] = capture_end(call);
		rows = ends[column] > rows ? ends[column] : rows;
	}
	x->tiles = rows * (size_t)x->columns;
}

/* Give the calls their slots: a stream comes to them one after the other. */
static void assign(struct coll_capture *c, struct coll_captured *x)
{
	for (int i = 0; i < x->n; i++) {
		x->calls[i].r->device->captured = x;
		x->calls[i].r->kind = x->calls[i].r->device->launch;
	}
	if (x->direct) {
		x->calls[0].r->device->direct_call.id = x->id;
		return;
	}
	place(x);
	x->slot = c->next_slot;
	c->next_slot = capture_slot(x, x->tiles);
	for (int i = 0; i < x->n; i++)
		for (int half = 0; half < 2; half++) {
			const struct capture_call *call = &x->calls[i];
			struct coll_run_stage *s = &call->r->device->stage[half];

			s->number = x->slot + (uint32_t)call->row * (uint32_t)x->columns + (uint32_t)call->column;
			s->apart = (uint32_t)x->columns;
			s->slots = CAPTURE_SLOTS;
		}
}

/* All of the parts, or none of them. The lock is held. */
static coll_status list(struct coll_capture *c, struct capture_graph *g, struct chain *chain)
{
	coll_status st = COLL_OK;

	for (struct coll_captured *x = chain->parts; x && st == COLL_OK; x = x->next) {
		st = coll_capture_places(c, x);
		if (st == COLL_OK)
			st = need_id(c, x);
	}
	for (struct coll_captured *x = chain->parts; x && st != COLL_OK; x = x->next)
		if (x->id)
			c->ids[x->id - 1] = NULL;
	if (st != COLL_OK)
		return st;
	while (chain->parts) {
		struct coll_captured *x = chain->parts;

		chain->parts = x->next;
		assign(c, x);
		x->graph = g;
		x->next = g->calls;
		g->calls = x;
	}
	return COLL_OK;
}

static coll_status join_streams(struct coll_device *d, const struct coll_request *first, bool before)
{
	coll_device_stream main = first->device->stream;
	coll_status st = COLL_OK;

	for (const struct coll_request *r = first->device->next; r && st == COLL_OK; r = r->device->next)
		if (r->device->user_stream != main)
			st = before ? d->table->order(d, r->device->user_stream, main)
			            : d->table->order(d, main, r->device->user_stream);
	return st;
}

static coll_status put_direct(const struct capture_graph *g, const struct coll_captured *end, coll_device_stream main)
{
	coll_status st = COLL_OK;

	for (const struct coll_captured *x = g->calls; x != end && st == COLL_OK; x = x->next)
		if (x->direct)
			st = coll_mapped_graph_put(x->calls[0].r->comm, &coll_collective_of(x->calls[0].r)->job,
			                           &x->calls[0].r->device->direct_call, main);
	return st;
}

/* Whether a direct call has host memory, which passes through the slots of the others. */
static bool copies(const struct capture_graph *g, const struct coll_captured *end)
{
	bool any = false;

	for (const struct coll_captured *x = g->calls; x != end; x = x->next)
		any |= x->direct && coll_mapped_copies(&x->calls[0].r->device->direct_call);
	return any;
}

static coll_status put(struct coll_stage *ring, const struct coll_captured *x, size_t j, coll_stage_put_fn *work)
{
	size_t t = 0;
	const struct capture_call *call = capture_at(x, j, &t);

	return call ? work(ring, call->r, t) : COLL_OK;
}

/* What is in front of the first wait. */
static coll_status put_first(struct coll_stage *ring, const struct coll_captured *x)
{
	coll_status st = COLL_OK;

	for (size_t j = 0; j < x->tiles && j < CAPTURE_SLOTS && st == COLL_OK; j++)
		st = put(ring, x, j, put_gather);
	return st;
}

static coll_status put_rest(struct coll_stage *ring, const struct coll_captured *x)
{
	coll_status st = COLL_OK;

	for (size_t j = 0; j < x->tiles && st == COLL_OK; j++) {
		st = put(ring, x, j, put_wait);
		if (st == COLL_OK)
			st = put(ring, x, j, put_scatter);
		if (st == COLL_OK && j + CAPTURE_SLOTS < x->tiles)
			st = put(ring, x, j + CAPTURE_SLOTS, put_gather);
	}
	return st;
}

/* Direct calls come in front of what the others wait for, and behind what those have in front of their first wait: as
 * outside of graphs (stage_chain.h). But if they need the slots they come first. */
static coll_status put_calls(struct coll_capture *c, const struct capture_graph *g, const struct coll_captured *rest,
                             const struct coll_captured *end, coll_device_stream main)
{
	const bool first = copies(g, end);
	coll_status st = first ? put_direct(g, end, main) : COLL_OK;

	for (int i = 0; rest && i < rest->n; i++)
		rest->calls[i].r->device->stream = main;
	if (st == COLL_OK && rest)
		st = put_first(c->ring, rest);
	if (st == COLL_OK && !first)
		st = put_direct(g, end, main);
	return st == COLL_OK && rest ? put_rest(c->ring, rest) : st;
}

/* In the graph: behind its calls before, and behind the launches before it. end: the calls before, in the list. */
static coll_status enqueue(struct coll_capture *c, struct capture_graph *g, const struct coll_captured *rest,
                           const struct coll_captured *end, const struct coll_request *first)
{
	struct coll_device *d = c->ring->device;
	coll_device_stream main = first->device->stream;
	coll_status st = d->table->enter(d);

	if (st != COLL_OK)
		return st;
	if (!g->begun)
		st = d->table->fence_wait(d, main, c->fence);
	else if (g->last != main)
		st = d->table->order(d, g->last, main);
	if (st == COLL_OK)
		st = join_streams(d, first, true);
	if (st == COLL_OK)
		st = put_calls(c, g, rest, end, main);
	if (st == COLL_OK)
		st = d->table->fence_record(d, main, c->fence);
	if (st == COLL_OK)
		st = join_streams(d, first, false);
	d->table->leave(d);
	g->begun = true;
	g->last = main;
	return st;
}

static coll_status take_chain(struct coll_request *first)
{
	struct coll_comm *comm = first->comm;
	struct coll_capture *c = comm->capture;
	struct chain chain = {NULL};
	struct coll_captured *end, *rest;
	struct coll_error_box err;
	struct capture_graph *g;
	uint32_t places, syncs;
	coll_status st = find_graph(comm, &first->device->capture, &g);

	if (st != COLL_OK)
		return st;
	places = g->places;
	syncs = g->syncs;
	st = collect(g, first, &chain);
	rest = chain.rest;
	end = g->calls;
	if (st == COLL_OK) {
		coll_async_lock(comm->ctx);
		st = list(c, g, &chain);
		coll_async_call(comm->ctx);
		pthread_mutex_unlock(&comm->ctx->async->lock);
		if (st != COLL_OK)
			coll_comm_refuse(comm, "stream", st, "out of memory for a capture");
	}
	if (st != COLL_OK) {
		discard(&chain);
		g->places = places;
		g->syncs = syncs;
		return st;
	}
	/* From here on the graph has the requests: some of the work may be in it. */
	for (struct coll_request *r = first; r; r = r->device->next)
		r->device->user_stream = r->device->stream;
	st = enqueue(c, g, rest, end, first);
	if (st == COLL_OK) {
		coll_async_lock(comm->ctx);
		for (struct coll_captured *x = g->calls; x != end; x = x->next)
			x->complete = true;
		pthread_mutex_unlock(&comm->ctx->async->lock);
		return COLL_OK;
	}
	coll_device_error(c->ring->device, &err);
	return coll_comm_refuse(comm, "stream", st, "%s", err.message);
}

coll_status coll_capture_take(const struct coll_batch *b)
{
	coll_status st = COLL_OK;

	if (b->outside)
		return coll_comm_refuse(b->chains->comm, "group", COLL_ERR_UNSUPPORTED,
		                        "[COLL-1218] a group with calls inside and outside of a capture, or of one "
		                        "communicator in two captures");
	for (struct coll_request *r = b->chains; r && st == COLL_OK; r = r->device->next_chain)
		if (r->device->chain_calls > CAPTURE_SLOTS)
			st = coll_comm_refuse(r->comm, "group", COLL_ERR_UNSUPPORTED,
			                      "[COLL-1213] %d calls with device memory in one group: at most %d",
			                      r->device->chain_calls, CAPTURE_SLOTS);
	for (struct coll_request *r = b->chains, *next; r && st == COLL_OK; r = next) {
		next = r->device->next_chain;
		st = take_chain(r);
	}
	return st;
}
