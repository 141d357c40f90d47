/*
 * Staged calls: see stage.h. Owns what is enqueued for a call, and its order. The ring of slots: stage_ring.c.
 *
 * In the stream, for the tiles of a call in the order of their numbers, with S slots:
 *
 *	gather 0 .. S-1             in -> slot, then ready = number + 1
 *	for each tile j:  wait      until its taken word is number + 1
 *	                  scatter   slot -> out, unless the guard is set; after the last tile done = number + 1
 *	                  gather    tile j + S
 *
 * So slot j % S is filled again only when tile j has left it in both directions.
 *
 * In blocking calls the caller's thread waits for the word instead, and enqueues what comes behind: a stream that
 * waits would keep its hardware queue from other ranks of this process.
 */
#include "progress/stage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/bind.h"
#include "engine/run.h"
#include "progress/capture.h"
#include "progress/drive.h"
#include "progress/inflight.h"
#include "progress/stage_ring.h"
#include "select/bind_pair.h"

enum { SLOTS = COLL_STAGE_SLOTS, SLOT_BYTES = COLL_STAGE_SLOT_BYTES };

/* Far behind every number in use, so that each wait of a stream passes. */
static const uint32_t RELEASED = (uint32_t)1 << 30;

/* ---- Life ---- */

coll_status coll_stage_create(struct coll_comm *comm, struct coll_error_box *err)
{
	struct coll_device *d = comm->ctx->device;
	coll_status st;

	if (!d)
		return COLL_OK;
	st = coll_stage_ring_open(comm, &comm->stage, err);
	if (st != COLL_OK)
		return st;
	st = d->table->stream_create(d, &comm->stage->own);
	if (st == COLL_OK)
		coll_async_thread(comm->ctx);
	else
		coll_device_error(d, err);
	return st;
}

static void sleep_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* Whether the device has ended a call. Acquire: it has written all of the user's memory before. */
static bool has_done(const struct coll_stage *s, uint32_t number)
{
	return (int32_t)(atomic_load_explicit(&s->words->done, memory_order_acquire) - number) >= 0 ||
	       atomic_load_explicit(&s->broken, memory_order_relaxed);
}

static bool left(const struct coll_stage *s)
{
	return !s->used || has_done(s, s->last_done);
}

void coll_stage_destroy(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;
	uint64_t until;

	if (!s)
		return;
	comm->stage = NULL;
	until = coll_clock_ns() + COLL_DELAY_NS(DEVICE_DRAIN);
	while (s->words && !left(s) && coll_clock_ns() < until)
		sleep_us(50);
	if (s->words && !left(s)) {
		coll_log(&comm->ctx->logger, COLL_LOG_WARN,
		         "[COLL-5112] %s has not finished its work of a communicator that has ended: %zu MiB of pinned "
		         "memory stay",
		         s->device->name, COLL_STAGE_MEMORY_BYTES >> 20);
		free(s->pieces);
		free(s);
		return;
	}
	if (s->own)
		s->device->table->stream_destroy(s->device, s->own);
	coll_stage_ring_close(&s);
}

/* ---- Preparation ---- */

coll_status coll_stage_give_up(struct coll_comm *comm, coll_status st)
{
	struct coll_error_box err;

	atomic_store_explicit(&comm->stage->broken, true, memory_order_relaxed);
	coll_device_error(comm->stage->device, &err);
	return coll_comm_lose(comm, st, comm->rank, err.message);
}

/* The check of the arguments has identified the buffers of a call; those of calls that were noted before it are asked
 * for again. */
static bool on_device(struct coll_comm *comm, const void *ptr)
{
	struct coll_device *d = comm->stage->device;
	struct coll_device_range range = {.kind = COLL_DEVICE_HOST};

	if (!ptr)
		return false;
	for (unsigned i = 0; i < COLL_SEEN; i++)
		if (comm->seen[i].ptr == ptr)
			return comm->seen[i].kind != COLL_DEVICE_HOST;
	/* A driver that has failed says nothing: then the host must not touch the memory, and enqueueing fails. */
	return !d->table->identify(d, ptr, 1, &range) || range.kind != COLL_DEVICE_HOST;
}

bool coll_stage_on_device(struct coll_comm *comm, const void *ptr, size_t len_bytes)
{
	const bool is = comm->stage && len_bytes > 0 && on_device(comm, ptr);

	/* A later call may pass the same address for other memory. */
	memset(comm->seen, 0, sizeof(comm->seen));
	return is;
}

static struct coll_run_stage slots_of(const struct coll_stage *s, int half)
{
	return (struct coll_run_stage){
	        .slot_bytes = SLOT_BYTES, .slots = SLOTS, .ready = &s->words->ready, .taken = s->words->taken[half]};
}

static void prepare_collective(struct coll_request *r, struct coll_stage *s, bool streamed)
{
	/* What only the root has may be any pointer elsewhere. */
	const bool root = r->comm->rank == r->call.root;
	const void *in = r->call.kind == COLL_KIND_SCATTER && !root ? NULL : r->call.in;
	const void *out = r->call.kind == COLL_KIND_GATHER && !root ? NULL : r->call.out;
	const bool in_staged = on_device(r->comm, in), out_staged = in == out ? in_staged : on_device(r->comm, out);

	r->job.stage = NULL;
	r->staged = (in_staged || out_staged || streamed) && coll_run_span(&r->job) > 0;
	if (!r->staged)
		return;
	if (planted(HOST_TOUCH) && in_staged)
		(void)*(const volatile char *)in;
	r->stage[0] = slots_of(s, 0);
	r->stage[0].in = in_staged ? s->in : NULL;
	r->stage[0].out = !out_staged ? NULL : in == out ? s->in : s->out;
	r->stage_tiles = coll_stage_job_tiles(&r->job);
	r->job.stage = &r->stage[0];
}

/* The host copies the tiles. */
static void prepare_local(struct coll_request *r, struct coll_stage *s, const void *from, bool from_staged, void *to,
                          bool to_staged, size_t len_bytes)
{
	r->local = (struct coll_stage_local){.from = from ? from : "", .to = to, .len_bytes = len_bytes};
	r->stage[0] = slots_of(s, 0);
	r->stage[0].in = from_staged ? s->in : NULL;
	r->stage[0].out = to_staged ? s->out : NULL;
	r->stage_tiles = len_bytes > SLOT_BYTES ? (len_bytes + SLOT_BYTES - 1) / SLOT_BYTES : 1;
}

static void prepare_tag(struct coll_request *r, struct coll_stage *s)
{
	const size_t bytes = r->pair.send_count * coll_dtype_size(r->pair.type);

	r->staged = r->detour;
	if (r->staged)
		prepare_local(r, s, r->pair.send, bytes > 0 && on_device(r->comm, r->pair.send), r->pack, false, bytes);
}

static void prepare_pair(struct coll_request *r, struct coll_stage *s, bool streamed)
{
	struct coll_comm *comm = r->comm;
	const struct coll_pair *p = &r->pair;
	const bool send = p->dest >= 0 && p->send_count > 0, recv = p->source >= 0 && p->recv_count > 0;
	const bool send_staged = send && on_device(comm, p->send), recv_staged = recv && on_device(comm, p->recv);

	r->staged = (send_staged || recv_staged || streamed) && (send || recv);
	if (!r->staged)
		return;
	r->stage_tiles = send_staged && recv_staged;
	if (coll_pair_self(comm, p)) {
		/* Within the device its stream does all. */
		if (!r->stage_tiles)
			prepare_local(r, s, p->send, send_staged, p->recv, recv_staged,
			              p->send_count * coll_dtype_size(p->type));
		return;
	}
	r->stage_tiles = 0;
	for (int half = 0; half < 2; half++) {
		struct coll_job job;
		size_t tiles;

		r->stage[half] = slots_of(s, half);
		if (!r->pair_plan[half])
			continue;
		coll_pair_job(comm, p, half, r->pair_plan[half], &job);
		tiles = coll_stage_job_tiles(&job);
		r->stage_tiles = tiles > r->stage_tiles ? tiles : r->stage_tiles;
	}
	r->stage[0].in = send_staged ? s->in : NULL;
	r->stage[1].out = recv_staged ? s->out : NULL;
}

static coll_status check_stream(struct coll_request *r, const struct coll_stream *stream,
                                struct coll_device_capture *capture)
{
	struct coll_device *d = r->comm->stage->device;
	const char *why = "";
	const coll_status st = d->table->stream_check(d, stream->handle, capture, &why);

	if (st == COLL_ERR_SYSTEM)
		coll_stage_give_up(r->comm, st);
	else if (st != COLL_OK)
		return coll_comm_refuse(r->comm, "stream", st, "[COLL-1215] the stream cannot be used: %s", why);
	return st;
}

static coll_status prepare(struct coll_request *r, const struct coll_stream *stream,
                           struct coll_device_capture *capture)
{
	const bool streamed = stream && stream->device;
	struct coll_stage *s = r->comm->stage;
	coll_status st = streamed ? check_stream(r, stream, capture) : COLL_OK;

	if (st == COLL_OK && capture->id)
		st = coll_capture_ring(r->comm, &s);
	if (st != COLL_OK)
		return st;
	if (r->kind == COLL_REQUEST_PAIR)
		prepare_pair(r, s, streamed);
	else if (r->kind == COLL_REQUEST_COLLECTIVE)
		prepare_collective(r, s, streamed);
	else
		prepare_tag(r, s);
	if (capture->id && (!r->staged || r->kind == COLL_REQUEST_TAG))
		st = coll_capture_empty(r);
	if (st != COLL_OK)
		r->staged = false;
	if (st != COLL_OK || !r->staged)
		return st;
	if (stream && !stream->device) {
		r->staged = false;
		return coll_comm_refuse(
		        r->comm, "stream", COLL_ERR_UNSUPPORTED,
		        "[COLL-1212] device memory in a stream of the host: wrap a stream of the device, or "
		        "pass NULL");
	}
	r->device_stream = streamed ? stream->handle : r->comm->stage->own;
	return COLL_OK;
}

coll_status coll_stage_add(struct coll_stage_batch *b, struct coll_request *r, const struct coll_stream *stream)
{
	struct coll_device_capture capture = {0};
	struct coll_request *first = b->chains;
	coll_status st;

	r->staged = r->in_graph = false;
	r->local.from = NULL;
	r->next_staged = r->next_chain = NULL;
	if (!r->comm->stage) {
		b->outside = true;
		return COLL_OK;
	}
	st = prepare(r, stream, &capture);
	/* A later call may pass the same address for other memory. */
	memset(r->comm->seen, 0, sizeof(r->comm->seen));
	if (st == COLL_OK && capture.id && !b->capture.id)
		b->capture = capture;
	b->outside |= capture.id != b->capture.id || !capture.id;
	if (st != COLL_OK || !r->staged)
		return st;
	while (first && first->comm != r->comm)
		first = first->next_chain;
	if (first) {
		first->chain_last->next_staged = r;
		first->chain_last = r;
		first->chain_calls++;
		return COLL_OK;
	}
	r->chain_last = r;
	r->chain_calls = 1;
	r->next_chain = b->chains;
	b->chains = r;
	return COLL_OK;
}

static void deal(struct coll_request *first)
{
	const uint32_t n = (uint32_t)first->chain_calls;
	struct coll_stage *s = first->comm->stage;
	uint32_t number = s->next;
	size_t tiles = 0;

	for (struct coll_request *r = first; r; r = r->next_staged, number++) {
		for (int half = 0; half < 2; half++) {
			r->stage[half].number = number;
			r->stage[half].apart = n;
		}
		r->stage_last = number + (uint32_t)(r->stage_tiles - 1) * n + 1;
		tiles = r->stage_tiles > tiles ? r->stage_tiles : tiles;
	}
	if (!planted(STALE_WORDS))
		s->next += (uint32_t)tiles * n;
}

coll_status coll_stage_deal(const struct coll_stage_batch *b)
{
	if (b->capture.id)
		return coll_capture_take(b);
	for (const struct coll_request *r = b->chains; r; r = r->next_chain)
		if (r->chain_calls > SLOTS)
			return coll_comm_refuse(r->comm, "group", COLL_ERR_UNSUPPORTED,
			                        "[COLL-1213] %d calls with device memory in one group: at most %d",
			                        r->chain_calls, SLOTS);
	for (struct coll_request *r = b->chains; r; r = r->next_chain)
		deal(r);
	return COLL_OK;
}

/* ---- Enqueueing ---- */

static coll_status put_gather(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const int n = coll_stage_pieces_in(s, r, t);

	return s->device->table->gather(s->device, r->device_stream, s->pieces, n,
	                                coll_stage_address(s, &s->words->ready),
	                                coll_stage_number(&r->stage[0], t) + 1);
}

/* The word that says that half `half` of tile t has been taken, or NULL: the half has no such tile. */
static _Atomic uint32_t *word_of(const struct coll_request *r, int half, size_t t)
{
	if (t >= coll_stage_half_tiles(r, half))
		return NULL;
	return &r->stage[half].taken[coll_stage_number(&r->stage[0], t) % SLOTS];
}

static coll_status put_wait(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	coll_status st = COLL_OK;

	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		const _Atomic uint32_t *word = word_of(r, half, t);

		if (word)
			st = s->device->table->wait(s->device, r->device_stream, coll_stage_address(s, word),
			                            coll_stage_number(&r->stage[0], t) + 1);
	}
	return st;
}

/* What put_wait() waits for, asked by this thread. Acquire: the scatter that follows reads the slot. */
static bool is_taken(const struct coll_request *r, size_t t)
{
	for (int half = 0; half < 2 && t < r->stage_tiles; half++) {
		const _Atomic uint32_t *word = word_of(r, half, t);

		if (word && (int32_t)(atomic_load_explicit(word, memory_order_acquire) -
		                      coll_stage_number(&r->stage[0], t)) <= 0)
			return false;
	}
	return true;
}

static coll_status put_scatter(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const bool last = t + 1 == r->stage_tiles;
	const uint64_t done = last ? coll_stage_address(s, &s->words->done) : 0;
	const int n = coll_stage_pieces_out(s, r, t);

	if (n == 0 && !last)
		return COLL_OK;
	return s->device->table->scatter(s->device, r->device_stream, s->pieces, n,
	                                 coll_stage_address(s, &s->words->guard), done, r->stage_last);
}

static const struct coll_stage_puts counted = {put_gather, put_wait, put_scatter};

/* Blocking calls. A persistent operation may be started now and waited for later. */
static bool is_paced(const struct coll_stage *s, struct coll_request *const *by, int n)
{
	for (int i = 0; i < n; i++)
		if (by[i]->user_stream != s->own || by[i]->operation)
			return false;
	return true;
}

static coll_status begin_pace(struct coll_stage *s, struct coll_request *const *by, int n)
{
	const size_t total = coll_stage_places(by, n);
	const coll_status st = coll_stage_put_first(s, by, n, &counted, total);

	if (st != COLL_OK)
		return st;
	memcpy(s->paced.by, by, (size_t)n * sizeof(by[0]));
	s->paced.n = n;
	s->paced.next = 0;
	s->paced.total = total;
	return COLL_OK;
}

/* Behind the call before, by the word which that one stores at its end: its stream may be gone by now, or be
 * captured. */
static coll_status follow(struct coll_stage *s, coll_device_stream stream, uint32_t before)
{
	if (has_done(s, before))
		return COLL_OK;
	return s->device->table->wait(s->device, stream, coll_stage_address(s, &s->words->done), before);
}

/* All work of these requests goes into the stream of the first, in front of and behind what the others' streams hold.
 */
static coll_status join_streams(struct coll_stage *s, struct coll_request *const *by, int n, bool before)
{
	coll_device_stream main = by[0]->device_stream;
	coll_status st = COLL_OK;

	for (int i = 1; i < n && st == COLL_OK; i++)
		if (by[i]->user_stream != main)
			st = before ? s->device->table->order(s->device, by[i]->user_stream, main)
			            : s->device->table->order(s->device, main, by[i]->user_stream);
	return st;
}

/* alone: there is no other communicator, whose device would be bound above this one. */
static void enqueue_chain(struct coll_request *first, bool alone)
{
	struct coll_comm *comm = first->comm;
	struct coll_stage *s = comm->stage;
	const int n = first->chain_calls;
	const uint32_t before = s->last_done;
	const bool follows = s->used;
	struct coll_request *by[SLOTS];
	coll_status st;
	int i = 0;

	/* If it has failed by now, its requests are complete, and nothing needs the device. */
	coll_async_lock(comm->ctx);
	st = comm->failed;
	for (struct coll_request *r = first; r && st == COLL_OK; r = r->next_staged) {
		r->enqueued = true;
		r->user_stream = r->device_stream;
		r->device_stream = first->device_stream;
		if (!s->used || (int32_t)(r->stage_last - s->last_done) > 0)
			s->last_done = r->stage_last;
		s->used = true;
		by[i++] = r;
	}
	pthread_mutex_unlock(&comm->ctx->async->lock);
	if (st != COLL_OK)
		return;
	st = s->device->table->enter(s->device);
	if (st != COLL_OK) {
		coll_stage_give_up(comm, st);
		return;
	}
	if (follows)
		st = follow(s, by[0]->device_stream, before);
	if (st == COLL_OK)
		st = join_streams(s, by, n, true);
	if (st == COLL_OK)
		st = is_paced(s, by, n) ? begin_pace(s, by, n) : coll_stage_put(s, by, n, &counted);
	if (st == COLL_OK)
		st = join_streams(s, by, n, false);
	s->paced.entered = alone && st == COLL_OK && s->paced.n > 0;
	if (!s->paced.entered)
		s->device->table->leave(s->device);
	if (st != COLL_OK)
		coll_stage_give_up(comm, st);
}

static void stop_pace(struct coll_stage *s)
{
	s->paced.n = 0;
	if (s->paced.entered)
		s->device->table->leave(s->device);
	s->paced.entered = false;
}

void coll_stage_pace(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;
	coll_status st = COLL_OK;

	while (s && s->paced.n > 0 && st == COLL_OK) {
		const int n = s->paced.n;
		const size_t j = s->paced.next;

		if (!is_taken(s->paced.by[j % (size_t)n], j / (size_t)n))
			return;
		st = coll_stage_put_next(s, s->paced.by, n, &counted, j, s->paced.total);
		if (++s->paced.next == s->paced.total || st != COLL_OK)
			stop_pace(s);
	}
	if (st != COLL_OK)
		coll_stage_give_up(comm, st);
}

void coll_stage_end_pace(struct coll_comm *comm)
{
	if (!comm->stage)
		return;
	/* What was taken last: the next call waits for the end of this one. */
	coll_stage_pace(comm);
	stop_pace(comm->stage);
}

void coll_stage_enqueue(const struct coll_stage_batch *b)
{
	for (struct coll_request *r = b->chains, *next; r; r = next) {
		next = r->next_chain;
		enqueue_chain(r, r == b->chains && !next);
	}
}

/* ---- Progress ---- */

bool coll_stage_is_copied(const struct coll_request *r)
{
	return !r->local.from || r->local.tiles == r->stage_tiles;
}

bool coll_stage_copy(struct coll_request *r)
{
	const struct coll_run_stage *s = &r->stage[0];
	const size_t t = r->local.tiles, at = t * SLOT_BYTES, left = r->local.len_bytes - at;

	if (coll_stage_is_copied(r) || !coll_stage_is_ready(s, t))
		return false;
	if (left > 0)
		memmove(s->out ? coll_stage_slot(s, s->out, t) : r->local.to + at,
		        s->in ? coll_stage_slot(s, s->in, t) : r->local.from + at,
		        left < SLOT_BYTES ? left : SLOT_BYTES);
	coll_stage_give(s, t);
	r->local.tiles++;
	return true;
}

bool coll_stage_drained(const struct coll_request *r)
{
	if (r->captured)
		return coll_capture_left(r);
	return r->enqueued && has_done(r->comm->stage, r->stage_last);
}

bool coll_stage_waits_for_stream(const struct coll_request *r)
{
	if (!r->staged)
		return false;
	if (r->local.from)
		return !coll_stage_is_copied(r);
	for (int i = 0; i < r->wait.nruns; i++)
		if (!coll_run_waits_for_stream(r->wait.runs[i]))
			return false;
	return true;
}

void coll_stage_release(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;

	if (!s || !s->words)
		return;
	/* The guard first: a kernel that starts because one of these waits has ended sees it. */
	atomic_store_explicit(&s->words->guard, 1, memory_order_release);
	for (int half = 0; half < 2; half++)
		for (int i = 0; i < SLOTS; i++)
			atomic_store_explicit(&s->words->taken[half][i], s->last_done + RELEASED, memory_order_release);
}

void coll_stage_look(struct coll_context *ctx, void *stream)
{
	struct coll_async *a = ctx->async;
	const coll_status st = ctx->device->table->stream_query(ctx->device, stream);
	struct coll_error_box err;
	struct coll_link *next;

	if (st == COLL_OK || st == COLL_AGAIN)
		return;
	coll_device_error(ctx->device, &err);
	coll_async_lock(ctx);
	for (struct coll_link *l = a->comms.next; l != &a->comms; l = next) {
		struct coll_comm *comm = COLL_ENTRY(l, struct coll_comm, inflight.link);

		next = l->next;
		if (!comm->stage || comm->failed)
			continue;
		atomic_store_explicit(&comm->stage->broken, true, memory_order_relaxed);
		coll_comm_fail(comm, st, comm->rank, err.message, "");
		coll_inflight_lost(comm);
	}
	coll_async_unlock(ctx);
}

/* Two threads may ask at once: once too often. */
void coll_stage_look_sometimes(struct coll_context *ctx, void *stream)
{
	_Atomic uint64_t *asked = &ctx->async->asked_ns;
	const uint64_t now = coll_clock_ns();

	if (now - atomic_load_explicit(asked, memory_order_relaxed) < COLL_DELAY_NS(DEVICE_LOOK))
		return;
	atomic_store_explicit(asked, now, memory_order_relaxed);
	coll_stage_look(ctx, stream);
}

coll_status coll_stage_await(struct coll_context *ctx, struct coll_comm *comm, void *stream, bool (*done)(void *arg),
                             void *arg, int timeout_ms)
{
	const uint64_t ms = 1000000, until = timeout_ms < 0 ? 0 : coll_clock_ns() + (uint64_t)timeout_ms * ms;

	for (;;) {
		const uint64_t now = until ? coll_clock_ns() : 0;
		const uint64_t left_ms = until ? (until > now ? (until - now) / ms + 1 : 0) : UINT64_MAX;
		const int slice = left_ms < COLL_DELAY_DEVICE_LOOK_MS ? (int)left_ms : COLL_DELAY_DEVICE_LOOK_MS;
		const coll_status st = comm ? coll_async_await_comm(comm, done, arg, slice)
		                            : coll_async_await(&ctx, 1, done, arg, slice);

		if (st != COLL_AGAIN || left_ms == 0)
			return st;
		coll_stage_look(ctx, stream);
	}
}
