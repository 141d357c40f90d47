/*
 * Staged calls: see stage.h. Owns the ring of slots, its words, and what is enqueued for a call.
 *
 * In the stream, for the tiles of a call in the order of their numbers, with S slots:
 *
 *	gather 0 .. S-1             in -> slot, then ready = number + 1
 *	for each tile j:  wait      until its taken word is number + 1
 *	                  scatter   slot -> out, unless the guard is set; after the last tile done = number + 1
 *	                  gather    tile j + S
 *
 * So slot j % S is filled again only when tile j has left it in both directions.
 */
#include "progress/stage.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"
#include "base/delay.h"
#include "core/error.h"
#include "device/device.h"
#include "direct/direct.h"
#include "engine/bind.h"
#include "engine/run.h"
#include "progress/drive.h"
#include "progress/inflight.h"
#include "select/bind_pair.h"

enum { SLOTS = COLL_STAGE_SLOTS, SLOT_BYTES = COLL_STAGE_SLOT_BYTES, LINE = 64, PAGE = 4096 };

#define MEMORY_BYTES (PAGE + (size_t)2 * SLOTS * SLOT_BYTES)

/* Far behind every number in use, so that each wait of a stream passes. */
static const uint32_t RELEASED = (uint32_t)1 << 30;

/* The words, each written by one side only, on lines of their own. */
struct words {
	_Alignas(LINE) _Atomic uint32_t guard; /* host: not 0, kernels leave the user's memory alone */
	_Alignas(LINE) _Atomic uint32_t ready; /* device: see engine/stage.h */
	_Alignas(LINE) _Atomic uint32_t done;  /* device: number + 1 of the last tile of the last call that has ended */
	_Alignas(LINE) _Atomic uint32_t taken[2][SLOTS]; /* host: by half of a pair; collectives use the first */
};
static_assert(sizeof(struct words) <= PAGE, "the words fit in a page");

struct coll_stage {
	struct coll_device *device;
	void *memory;     /* a page of words, then SLOTS slots for input and SLOTS for output */
	uint64_t address; /* of memory, as kernels see it */
	struct words *words;
	char *in, *out;
	coll_device_stream own;  /* of blocking calls */
	coll_device_stream last; /* of the last call, if there was one */
	bool has_last, used;     /* used: something was enqueued */
	uint32_t next;           /* number of the next tile */
	uint32_t last_done;      /* `done` when all that was enqueued has ended */
	/* The device has failed: what it has not ended it never will. */
	atomic_bool broken;
	struct coll_device_piece *pieces; /* one for each rank */
};

static uint64_t address_of(const struct coll_stage *s, const volatile void *p)
{
	return s->address + (uint64_t)((const volatile char *)p - (const char *)s->memory);
}

/* ---- Life ---- */

coll_status coll_stage_create(struct coll_comm *comm, struct coll_error_box *err)
{
	const size_t bytes = MEMORY_BYTES;
	struct coll_device *d = comm->ctx->device;
	struct coll_stage *s;
	coll_status st;

	if (!d)
		return COLL_OK;
	s = comm->stage = calloc(1, sizeof(*s));
	if (s)
		s->pieces = calloc((size_t)comm->size, sizeof(*s->pieces));
	if (!s || !s->pieces)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for staging");
	s->device = d;
	/* Memory that no transport knows: so a call goes the way of a call with plain host buffers, and has its
	 * rounding. Shared: after a fork, pages that the parent writes must stay those that the device has. */
	s->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->memory == MAP_FAILED) {
		s->memory = NULL;
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for %zu bytes of staging", bytes);
	}
	st = d->table->pin(d, s->memory, bytes, &s->address);
	if (st == COLL_OK)
		st = d->table->stream_create(d, &s->own);
	if (st != COLL_OK) {
		coll_device_error(d, err);
		return st;
	}
	coll_async_thread(comm->ctx);
	s->words = s->memory;
	s->in = (char *)s->memory + PAGE;
	s->out = s->in + (size_t)SLOTS * SLOT_BYTES;
	return COLL_OK;
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

static bool all_left(const struct coll_comm *comm, const struct coll_stage *s)
{
	return left(s) && (coll_direct_drained(comm) || atomic_load_explicit(&s->broken, memory_order_relaxed));
}

void coll_stage_destroy(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;
	uint64_t until;
	bool stuck;

	if (!s)
		return;
	comm->stage = NULL;
	until = coll_clock_ns() + COLL_DELAY_NS(DEVICE_DRAIN);
	while (s->words && !all_left(comm, s) && coll_clock_ns() < until) {
		if (comm->failed)
			coll_direct_release(comm);
		sleep_us(50);
	}
	stuck = s->words && !all_left(comm, s);
	coll_direct_destroy(comm, stuck);
	if (stuck) {
		coll_log(&comm->ctx->logger, COLL_LOG_WARN,
		         "[COLL-5112] %s has not finished its work of a communicator that has ended: %zu MiB of pinned "
		         "memory stay",
		         s->device->name, MEMORY_BYTES >> 20);
	} else {
		if (s->own)
			s->device->table->stream_destroy(s->device, s->own);
		if (s->address)
			s->device->table->unpin(s->device, s->memory);
		if (s->memory)
			munmap(s->memory, MEMORY_BYTES);
	}
	free(s->pieces);
	free(s);
}

/* ---- Preparation ---- */

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
	return d->table->identify(d, ptr, 1, &range) && range.kind != COLL_DEVICE_HOST;
}

static struct coll_run_stage slots_of(const struct coll_stage *s, int half)
{
	return (struct coll_run_stage){
	        .slot_bytes = SLOT_BYTES, .slots = SLOTS, .ready = &s->words->ready, .taken = s->words->taken[half]};
}

static size_t tiles_of(const struct coll_job *job)
{
	const size_t elements = coll_run_span(job);

	return elements / job->tile + (elements % job->tile != 0);
}

static void prepare_collective(struct coll_request *r, bool streamed)
{
	struct coll_stage *s = r->comm->stage;
	/* What only the root has may be any pointer elsewhere. */
	const bool root = r->comm->rank == r->call.root;
	const void *in = r->call.kind == COLL_KIND_SCATTER && !root ? NULL : r->call.in;
	const void *out = r->call.kind == COLL_KIND_GATHER && !root ? NULL : r->call.out;
	const bool in_staged = on_device(r->comm, in), out_staged = in == out ? in_staged : on_device(r->comm, out);

	r->job.stage = NULL;
	r->direct = coll_direct_is(r->comm, r->intra) &&
	            coll_direct_prepare(r->comm, &r->job, !in_staged, !out_staged, &r->direct_call);
	if (r->direct) {
		r->staged = true;
		r->stage_tiles = 0;
		r->job.stage = &r->direct_call.stage;
		return;
	}
	if (coll_direct_is(r->comm, r->intra))
		r->intra = NULL; /* it moves nothing */
	r->staged = (in_staged || out_staged || streamed) && coll_run_span(&r->job) > 0;
	if (!r->staged)
		return;
	r->stage[0] = slots_of(s, 0);
	r->stage[0].in = in_staged ? s->in : NULL;
	r->stage[0].out = !out_staged ? NULL : in == out ? s->in : s->out;
	r->stage_tiles = tiles_of(&r->job);
	r->job.stage = &r->stage[0];
}

static coll_status prepare_pair(struct coll_request *r, bool streamed)
{
	struct coll_comm *comm = r->comm;
	struct coll_stage *s = comm->stage;
	const struct coll_pair *p = &r->pair;
	const bool send = p->dest >= 0 && p->send_count > 0, recv = p->source >= 0 && p->recv_count > 0;
	const bool send_staged = send && on_device(comm, p->send), recv_staged = recv && on_device(comm, p->recv);

	r->staged = (send_staged || recv_staged || streamed) && (send || recv);
	if (!r->staged)
		return COLL_OK;
	r->stage_tiles = 0;
	if (coll_pair_self(comm, p)) {
		if (send_staged && recv_staged) {
			r->stage_tiles = 1;
			return COLL_OK;
		}
		r->staged = send_staged || recv_staged;
		return r->staged ? coll_comm_refuse(comm, "send_recv", COLL_ERR_UNSUPPORTED,
		                                    "a message to this rank itself from device to host memory or back")
		                 : COLL_OK;
	}
	for (int half = 0; half < 2; half++) {
		struct coll_job job;
		size_t tiles;

		r->stage[half] = slots_of(s, half);
		if (!r->pair_plan[half])
			continue;
		coll_pair_job(comm, p, half, r->pair_plan[half], &job);
		tiles = tiles_of(&job);
		r->stage_tiles = tiles > r->stage_tiles ? tiles : r->stage_tiles;
	}
	r->stage[0].in = send_staged ? s->in : NULL;
	r->stage[1].out = recv_staged ? s->out : NULL;
	return COLL_OK;
}

/* A direct call with host memory alone may be in a stream of the host: the device waits until that comes to it. */
static bool has_host_buffers(const struct coll_request *r)
{
	return r->direct && !on_device(r->comm, r->call.in) && !on_device(r->comm, r->call.out);
}

static coll_status prepare(struct coll_request *r, const struct coll_stream *stream)
{
	const bool streamed = stream && stream->device;
	coll_status st = COLL_OK;

	if (r->kind == COLL_REQUEST_PAIR)
		st = prepare_pair(r, streamed);
	else if (r->kind == COLL_REQUEST_COLLECTIVE)
		prepare_collective(r, streamed);
	if (st != COLL_OK || !r->staged)
		return st;
	if (stream && !stream->device && !has_host_buffers(r)) {
		r->staged = r->direct = false;
		return coll_comm_refuse(
		        r->comm, "stream", COLL_ERR_UNSUPPORTED,
		        "[COLL-1212] device memory in a stream of the host: wrap a stream of the device, or "
		        "pass NULL");
	}
	r->device_stream = streamed ? stream->handle : r->comm->stage->own;
	if (streamed) {
		struct coll_device *d = r->comm->stage->device;
		const char *why = "";

		st = d->table->stream_check(d, stream->handle, &why);
		if (st != COLL_OK)
			r->staged = false;
		if (st != COLL_OK)
			return coll_comm_refuse(r->comm, "stream", st, "[COLL-1215] the stream cannot be used: %s",
			                        why);
	}
	return COLL_OK;
}

coll_status coll_stage_add(struct coll_stage_batch *b, struct coll_request *r, const struct coll_stream *stream)
{
	struct coll_request *first = b->chains;
	coll_status st;

	r->staged = r->direct = false;
	r->next_staged = r->next_chain = NULL;
	if (!r->comm->stage)
		return COLL_OK;
	st = prepare(r, stream);
	/* A later call may pass the same address for other memory. */
	memset(r->comm->seen, 0, sizeof(r->comm->seen));
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

/* The requests of a chain that pass through slots. */
static int staged_calls(const struct coll_request *first)
{
	int n = 0;

	for (const struct coll_request *r = first; r; r = r->next_staged)
		n += !r->direct;
	return n;
}

static void deal(struct coll_request *first)
{
	const uint32_t n = (uint32_t)staged_calls(first);
	struct coll_stage *s = first->comm->stage;
	uint32_t number = s->next;
	size_t tiles = 0;

	for (struct coll_request *r = first; r; r = r->next_staged) {
		if (r->direct) {
			coll_direct_deal(r->comm, &r->direct_call);
			continue;
		}
		for (int half = 0; half < 2; half++) {
			r->stage[half].number = number;
			r->stage[half].apart = n;
		}
		r->stage_last = number + (uint32_t)(r->stage_tiles - 1) * n + 1;
		tiles = r->stage_tiles > tiles ? r->stage_tiles : tiles;
		number++;
	}
	s->next += (uint32_t)tiles * n;
}

coll_status coll_stage_deal(const struct coll_stage_batch *b)
{
	for (const struct coll_request *r = b->chains; r; r = r->next_chain)
		if (staged_calls(r) > SLOTS)
			return coll_comm_refuse(r->comm, "group", COLL_ERR_UNSUPPORTED,
			                        "[COLL-1213] %d calls with device memory in one group: at most %d",
			                        staged_calls(r), SLOTS);
	for (struct coll_request *r = b->chains; r; r = r->next_chain)
		deal(r);
	return COLL_OK;
}

/* ---- Enqueueing ---- */

/* One buffer of a request. */
struct side {
	const struct coll_extent *e;
	const struct coll_plan *plan;
	char *slots;
	size_t tile, elem_bytes;
	bool out;
};

static size_t block_count(const struct side *x, int b)
{
	if (!x->e->counts)
		return x->e->count;
	return x->e->counts[x->e->single ? x->plan->rank : b];
}

/* Add a piece, to the last one where it goes on from there. */
static int add(struct coll_device_piece *pieces, int n, uint64_t dst, uint64_t src, size_t len_bytes)
{
	struct coll_device_piece *last = n > 0 ? &pieces[n - 1] : NULL;

	if (last && last->dst + last->len_bytes == dst && last->src + last->len_bytes == src) {
		last->len_bytes += len_bytes;
		return n;
	}
	pieces[n] = (struct coll_device_piece){.dst = dst, .src = src, .len_bytes = len_bytes};
	return n + 1;
}

/* The pieces of tile t between a buffer and the slot. */
static int pieces_of(struct coll_stage *s, const struct side *x, const struct coll_run_stage *stage, size_t t)
{
	const bool block = coll_plan_kind_is_block(x->plan->kind);
	const int blocks = block && !x->e->single ? x->plan->size : 1;
	const uint64_t slot = x->slots ? address_of(s, coll_stage_slot(stage, x->slots, t)) : 0;
	const size_t first = t * x->tile;
	size_t at = 0;
	int n = 0;

	if (!x->slots || !x->e->base)
		return 0;
	for (int b = 0; b < blocks; b++) {
		const size_t count = block_count(x, b), begin = x->e->offsets && !x->e->single ? x->e->offsets[b] : at;
		size_t len;
		uint64_t user, staged;

		at += count;
		if (count <= first)
			continue;
		len = count - first < x->tile ? count - first : x->tile;
		user = (uint64_t)(uintptr_t)x->e->base + (begin + first) * x->elem_bytes;
		staged = slot + (uint64_t)b * x->tile * x->elem_bytes;
		n = add(s->pieces, n, x->out ? user : staged, x->out ? staged : user, len * x->elem_bytes);
	}
	return n;
}

/* The buffer that half `half` of a request reads (out: writes). False: there is none. job: room for that of a pair. */
static bool side_of(const struct coll_request *r, int half, bool out, struct coll_job *job, struct side *x)
{
	const struct coll_job *j = &r->job;

	if (r->kind == COLL_REQUEST_PAIR) {
		if (!r->pair_plan[half] || half != (int)out)
			return false;
		coll_pair_job(r->comm, &r->pair, half, r->pair_plan[half], job);
		j = job;
	}
	*x = (struct side){.e = out ? &j->out : &j->in,
	                   .plan = j->plan,
	                   .slots = out ? r->stage[half].out : r->stage[half].in,
	                   .tile = j->tile,
	                   .elem_bytes = j->elem_bytes,
	                   .out = out};
	return true;
}

static coll_status put_gather(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const uint32_t number = coll_stage_number(&r->stage[0], t);
	struct coll_job job;
	struct side x;
	int n = 0;

	if (side_of(r, 0, false, &job, &x))
		n = pieces_of(s, &x, &r->stage[0], t);
	return s->device->table->gather(s->device, r->device_stream, s->pieces, n, address_of(s, &s->words->ready),
	                                number + 1);
}

static coll_status put_wait(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const uint32_t number = coll_stage_number(&r->stage[0], t);
	coll_status st = COLL_OK;

	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		struct coll_job job;

		if (r->kind == COLL_REQUEST_PAIR) {
			if (!r->pair_plan[half])
				continue;
			coll_pair_job(r->comm, &r->pair, half, r->pair_plan[half], &job);
			if (t >= tiles_of(&job))
				continue;
		} else if (half == 1) {
			continue;
		}
		st = s->device->table->wait(s->device, r->device_stream,
		                            address_of(s, &r->stage[half].taken[number % SLOTS]), number + 1);
	}
	return st;
}

static coll_status put_scatter(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const bool last = t + 1 == r->stage_tiles, pair = r->kind == COLL_REQUEST_PAIR;
	const uint64_t done = last ? address_of(s, &s->words->done) : 0;
	struct coll_job job;
	struct side x;
	int n = 0;

	if (side_of(r, pair ? 1 : 0, true, &job, &x)) {
		n = pieces_of(s, &x, &r->stage[pair ? 1 : 0], t);
	} else if (pair && coll_pair_self(r->comm, &r->pair)) {
		n = add(s->pieces, 0, (uint64_t)(uintptr_t)r->pair.recv, (uint64_t)(uintptr_t)r->pair.send,
		        r->pair.send_count * coll_dtype_size(r->pair.type));
	}
	if (n == 0 && !last)
		return COLL_OK;
	return s->device->table->scatter(s->device, r->device_stream, s->pieces, n, address_of(s, &s->words->guard),
	                                 done, r->stage_last);
}

/* What is done for tile j of n requests that take turns. */
static coll_status put(struct coll_stage *s, struct coll_request *const *by, int n, size_t j,
                       coll_status (*work)(struct coll_stage *s, const struct coll_request *r, size_t t))
{
	const struct coll_request *r = by[j % (size_t)n];
	const size_t t = j / (size_t)n;

	return t < r->stage_tiles ? work(s, r, t) : COLL_OK;
}

/* What comes before the first wait, and the rest: direct calls of the same group lie between the two. */
static coll_status enqueue(struct coll_stage *s, struct coll_request *const *by, int n, bool rest)
{
	size_t total = 0;
	coll_status st = COLL_OK;

	for (int i = 0; i < n; i++)
		if (by[i]->stage_tiles * (size_t)n > total)
			total = by[i]->stage_tiles * (size_t)n;
	for (size_t j = 0; j < total && j < SLOTS && st == COLL_OK && !rest; j++)
		st = put(s, by, n, j, put_gather);
	for (size_t j = 0; j < total && st == COLL_OK && rest; j++) {
		st = put(s, by, n, j, put_wait);
		if (st == COLL_OK)
			st = put(s, by, n, j, put_scatter);
		if (st == COLL_OK && j + SLOTS < total)
			st = put(s, by, n, j + SLOTS, put_gather);
	}
	return st;
}

/* All work of a chain goes into the stream of its first request, in front of and behind what the others' streams hold.
 */
static coll_status join_streams(struct coll_stage *s, const struct coll_request *first, bool before)
{
	coll_device_stream main = first->device_stream;
	coll_status st = COLL_OK;

	if (before && s->has_last && s->last != main)
		st = s->device->table->order(s->device, s->last, main);
	for (const struct coll_request *r = first->next_staged; r && st == COLL_OK; r = r->next_staged)
		if (r->user_stream != main)
			st = before ? s->device->table->order(s->device, r->user_stream, main)
			            : s->device->table->order(s->device, main, r->user_stream);
	return st;
}

/* What is in the streams may never end. */
static void give_up(struct coll_comm *comm, coll_status st)
{
	struct coll_error_box err;

	atomic_store_explicit(&comm->stage->broken, true, memory_order_relaxed);
	coll_device_error(comm->stage->device, &err);
	coll_comm_lose(comm, st, comm->rank, err.message);
}

/* A chain that is being enqueued. */
struct cursor {
	struct coll_request *first;
	struct coll_request *direct; /* the direct call at which it stands; NULL: they are done */
	size_t segment;
	bool begun, ended;
};

static struct coll_request *direct_from(struct coll_request *r)
{
	while (r && !r->direct)
		r = r->next_staged;
	return r;
}

static coll_status put_staged(struct coll_stage *s, struct coll_request *first, bool rest)
{
	struct coll_request *by[SLOTS];
	int n = 0;

	for (struct coll_request *r = first; r; r = r->next_staged)
		if (!r->direct)
			by[n++] = r;
	return n ? enqueue(s, by, n, rest) : COLL_OK;
}

/* If the communicator has failed by now, its requests are complete, and nothing needs the device. AGAIN: it is going to
 * fail. */
static coll_status claim(struct coll_request *first)
{
	struct coll_comm *comm = first->comm;
	struct coll_stage *s = comm->stage;
	const struct coll_request *last = NULL;
	coll_status st;

	for (struct coll_request *r = first; r; r = r->next_staged)
		last = r->direct ? r : last;
	coll_async_lock(comm->ctx);
	st = comm->failed;
	if (st == COLL_OK && last && !coll_direct_claim(comm, &last->direct_call))
		st = COLL_AGAIN;
	for (struct coll_request *r = first; r && st == COLL_OK; r = r->next_staged) {
		r->enqueued = true;
		r->user_stream = r->device_stream;
		r->device_stream = first->device_stream;
		if (!r->direct && (!s->used || (int32_t)(r->stage_last - s->last_done) > 0))
			s->last_done = r->stage_last;
		s->used |= !r->direct;
	}
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return st;
}

static coll_status begin_chain(struct cursor *c)
{
	struct coll_stage *s = c->first->comm->stage;
	coll_status st = join_streams(s, c->first, true);

	s->last = c->first->device_stream;
	s->has_last = true;
	if (st == COLL_OK)
		st = put_staged(s, c->first, false);
	c->direct = direct_from(c->first);
	c->begun = true;
	return st;
}

/* As far as the next wait of a direct call. Without one, all of it. */
static coll_status advance_chain(struct cursor *c)
{
	struct coll_stage *s = c->first->comm->stage;
	coll_status st = c->begun ? COLL_OK : begin_chain(c);

	while (c->direct && st == COLL_OK) {
		struct coll_request *r = c->direct;
		const bool last = c->segment + 1 == coll_direct_segments(&r->direct_call);

		st = coll_direct_put(r->comm, &r->job, &r->direct_call, c->segment++, r->device_stream);
		if (!last)
			return st;
		c->direct = direct_from(r->next_staged);
		c->segment = 0;
	}
	if (st == COLL_OK)
		st = put_staged(s, c->first, true);
	if (st == COLL_OK)
		st = join_streams(s, c->first, false);
	c->ended = true;
	return st;
}

/* alone: no other chain takes turns with it. */
static void advance_within(struct cursor *c, bool alone)
{
	struct coll_comm *comm = c->first->comm;
	const struct coll_device_table *table = comm->stage->device->table;
	coll_status st = table->enter(comm->stage->device);

	if (st == COLL_OK) {
		do
			st = advance_chain(c);
		while (alone && st == COLL_OK && !c->ended);
		table->leave(comm->stage->device);
	}
	c->ended |= st != COLL_OK;
	if (st != COLL_OK)
		give_up(comm, st);
}

/* Communicators take turns, a segment each: then a thread that drives several of them has enqueued what one waits for
 * before it enqueues what is behind that wait. */
void coll_stage_enqueue(const struct coll_stage_batch *b)
{
	enum { CURSORS = 64 };
	struct cursor cursors[CURSORS];
	struct coll_request *r = b->chains;

	while (r) {
		int n = 0, left;

		for (struct coll_request *next; r && n < CURSORS; r = next) {
			next = r->next_chain;
			if (claim(r) == COLL_OK)
				cursors[n++] = (struct cursor){.first = r};
		}
		do {
			left = 0;
			for (int i = 0; i < n; i++) {
				if (!cursors[i].ended)
					advance_within(&cursors[i], n == 1);
				left += !cursors[i].ended;
			}
		} while (left);
	}
}

/* ---- Progress ---- */

bool coll_stage_drained(const struct coll_request *r)
{
	if (r->direct)
		return r->enqueued && (coll_direct_ended(r->comm, &r->direct_call) ||
		                       atomic_load_explicit(&r->comm->stage->broken, memory_order_relaxed));
	return r->enqueued && has_done(r->comm->stage, r->stage_last);
}

bool coll_stage_waits_for_stream(const struct coll_request *r)
{
	if (!r->staged)
		return false;
	if (r->direct)
		return coll_direct_waits_for_stream(r->comm, &r->direct_call);
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
	coll_direct_release(comm);
	/* The guard first: a kernel that starts because one of these waits has ended sees it. */
	atomic_store_explicit(&s->words->guard, 1, memory_order_release);
	for (int half = 0; half < 2; half++)
		for (int i = 0; i < SLOTS; i++)
			atomic_store_explicit(&s->words->taken[half][i], s->last_done + RELEASED, memory_order_release);
}

static void look(struct coll_context *ctx, coll_device_stream stream)
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
		look(ctx, stream);
	}
}
