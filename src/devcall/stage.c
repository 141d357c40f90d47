/*
 * Staged calls: see stage.h. Owns how they are prepared, how far they are, and their end. What is enqueued for them:
 * stage_chain.c; the ring of slots: stage_ring.c.
 */
#include "devcall/stage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/messages.h"
#include "base/planted.h"
#include "core/error.h"
#include "devcall/capture.h"
#include "devcall/capture_launch.h"
#include "devcall/capture_ring.h"
#include "devcall/mapped_call.h"
#include "devcall/mapped_graphs.h"
#include "devcall/mapped_region.h"
#include "devcall/stage_ring.h"
#include "device/device.h"
#include "engine/bind.h"
#include "engine/run.h"
#include "inflight/drive.h"
#include "inflight/queue.h"
#include "inflight/thread.h"
#include "select/bind_pair.h"

enum { SLOTS = COLL_STAGE_SLOTS, SLOT_BYTES = COLL_STAGE_SLOT_BYTES, FORWARD_EVERY = 1 << 28, MANY = (1 << 27) + 5 };

/* Far behind every number in use, so that each wait of a stream passes. */
static const uint32_t RELEASED = (uint32_t)1 << 30;

/* ---- Life ---- */

/* Some drivers refuse the operations that all calls need: then a rank has no device, and not a call that fails. The
 * driver says so as they are enqueued, so nobody waits for them. */
static coll_status try_words(struct coll_stage *s, struct coll_error_box *err)
{
	const struct coll_device_word word = {coll_stage_address(s, &s->words->trial), 0};
	const struct coll_device_table *table = s->device->table;
	struct coll_error_box why;
	coll_status st = table->wait(s->device, s->own, word.at, word.value);

	if (st == COLL_OK)
		st = table->gather(s->device, s->own, NULL, 0, word.at, word.value);
	if (st == COLL_OK)
		return COLL_OK;
	coll_device_error(s->device, &why);
	return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1118] the driver does not let streams wait for words: %s",
	                      coll_message_split(why.status, why.message).text);
}

coll_status coll_stage_create(struct coll_comm *comm, struct coll_error_box *err)
{
	struct coll_device *d = comm->ctx->device;
	coll_status st;

	if (!d)
		return COLL_OK;
	st = coll_stage_ring_open(comm, &comm->stage, err);
	if (st != COLL_OK)
		return st;
	if (!coll_stage_order_open(&comm->stage->chain.order, comm->size))
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for staging");
	st = d->table->stream_create(d, &comm->stage->own);
	if (st != COLL_OK)
		coll_device_error(d, err);
	else
		st = try_words(comm->stage, err);
	if (st == COLL_OK)
		coll_async_thread(comm->ctx);
	return st;
}

static void sleep_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static bool left(const struct coll_stage *s)
{
	return !s->used || coll_stage_has_done(s, s->last_done);
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
	while (s->words && !left(s) && coll_clock_ns() < until) {
		if (comm->failed)
			coll_mapped_release(comm);
		sleep_us(50);
	}
	stuck = s->words && !left(s);
	if (stuck)
		coll_device_hold(s->device, &s->words->done, s->last_done);
	coll_mapped_destroy(comm, stuck, coll_capture_keeps(comm));
	coll_stage_order_close(&s->chain.order);
	coll_stage_turns_close(s);
	if (stuck) {
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

	struct coll_device *d = comm->stage->device;

	coll_device_error(d, &err);
	/* Other errors leave the work that is enqueued already, and is waited for. */
	if (d->table->fault(d) != COLL_OK)
		atomic_store_explicit(&comm->stage->broken, true, memory_order_relaxed);
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

/* These say whether the call has to do with the device at all. */

static bool prepare_collective(struct coll_request *r, struct coll_stage *s, bool streamed)
{
	struct coll_collective_request *c = coll_collective_of(r);
	struct coll_device_call *d = r->device;
	/* What only the root has may be any pointer elsewhere. */
	const bool root = r->comm->rank == c->call.root;
	const void *in = c->call.kind == COLL_KIND_SCATTER && !root ? NULL : c->call.in;
	const void *out = c->call.kind == COLL_KIND_GATHER && !root ? NULL : c->call.out;
	const bool in_staged = on_device(r->comm, in), out_staged = in == out ? in_staged : on_device(r->comm, out);

	c->job.stage = NULL;
	/* A direct call that moves nothing has no plan, and ends at once. */
	d->direct = coll_mapped_is(r->comm, c->intra) && coll_mapped_prepare(r->comm, &c->job, !in_staged, !out_staged,
	                                                                     s != r->comm->stage, &d->direct_call);
	if (d->direct) {
		d->tiles = 0;
		c->job.stage = &d->direct_call.stage;
		return true;
	}
	if (coll_mapped_is(r->comm, c->intra))
		c->intra = NULL;
	if (!(in_staged || out_staged || streamed) || !c->job.plan || coll_run_span(&c->job) == 0)
		return false;
	if (planted(HOST_TOUCH) && in_staged)
		(void)*(const volatile char *)in;
	d->stage[0] = slots_of(s, 0);
	d->stage[0].in = in_staged ? s->in : NULL;
	d->stage[0].out = !out_staged ? NULL : in == out ? s->in : s->out;
	d->tiles = coll_stage_job_tiles(&c->job);
	c->job.stage = &d->stage[0];
	return true;
}

/* The host copies the tiles. */
static void prepare_local(struct coll_request *r, struct coll_stage *s, const void *from, bool from_staged, void *to,
                          bool to_staged, size_t len_bytes)
{
	struct coll_device_call *d = r->device;

	d->local = (struct coll_stage_local){.from = from ? from : "", .to = to, .len_bytes = len_bytes};
	d->stage[0] = slots_of(s, 0);
	d->stage[0].in = from_staged ? s->in : NULL;
	d->stage[0].out = to_staged ? s->out : NULL;
	d->tiles = len_bytes > SLOT_BYTES ? (len_bytes + SLOT_BYTES - 1) / SLOT_BYTES : 1;
}

static bool prepare_tag(struct coll_request *r, struct coll_stage *s)
{
	const struct coll_tag_request *t = coll_tag_of(r);
	const size_t bytes = t->pair.send_count * coll_dtype_size(t->pair.type);

	if (t->later)
		prepare_local(r, s, t->payload, bytes > 0 && on_device(r->comm, t->payload), t->pack, false, bytes);
	return t->later;
}

static bool prepare_pair(struct coll_request *r, struct coll_stage *s, bool streamed)
{
	struct coll_pair_request *q = coll_pair_of(r);
	struct coll_device_call *d = r->device;
	struct coll_comm *comm = r->comm;
	const struct coll_pair *p = &q->pair;
	const bool send = p->dest >= 0 && p->send_count > 0, recv = p->source >= 0 && p->recv_count > 0;
	const bool send_staged = send && on_device(comm, p->send), recv_staged = recv && on_device(comm, p->recv);

	if (!(send_staged || recv_staged || streamed) || !(send || recv))
		return false;
	d->tiles = send_staged && recv_staged;
	if (coll_pair_self(comm, p)) {
		/* Within the device its stream does all. */
		if (!d->tiles)
			prepare_local(r, s, p->send, send_staged, p->recv, recv_staged,
			              p->send_count * coll_dtype_size(p->type));
		return true;
	}
	d->tiles = 0;
	for (int half = 0; half < 2; half++) {
		struct coll_job job;
		size_t tiles;

		d->stage[half] = slots_of(s, half);
		q->stage[half] = &d->stage[half];
		if (!q->plan[half])
			continue;
		coll_pair_job(comm, p, half, q->plan[half], &job);
		tiles = coll_stage_job_tiles(&job);
		d->tiles = tiles > d->tiles ? tiles : d->tiles;
	}
	d->stage[0].in = send_staged ? s->in : NULL;
	d->stage[1].out = recv_staged ? s->out : NULL;
	return true;
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

/* A direct call with host memory alone may be in a stream of the host: the device waits until that comes to it. */
static bool has_host_buffers(const struct coll_request *r)
{
	return r->device->direct && !on_device(r->comm, coll_collective_of(r)->call.in) &&
	       !on_device(r->comm, coll_collective_of(r)->call.out);
}

static bool prepare_kind(struct coll_request *r, struct coll_stage *s, bool streamed)
{
	switch (r->is) {
	case COLL_IS_PAIR: return prepare_pair(r, s, streamed);
	case COLL_IS_COLLECTIVE: return prepare_collective(r, s, streamed);
	default: return prepare_tag(r, s);
	}
}

/* *has: the request has to do with the device. */
static coll_status prepare(struct coll_request *r, const struct coll_stream *stream, bool *has)
{
	struct coll_device_capture *capture = &r->device->capture;
	const bool streamed = stream && stream->device;
	struct coll_stage *s = r->comm->stage;
	coll_status st = streamed ? check_stream(r, stream, capture) : COLL_OK;

	if (st == COLL_OK && capture->id)
		st = coll_capture_ring(r->comm, &s);
	if (st != COLL_OK)
		return st;
	*has = prepare_kind(r, s, streamed);
	if (capture->id && (!*has || r->is == COLL_IS_TAG)) {
		st = coll_capture_empty(r);
		*has = st == COLL_OK;
	}
	if (!*has)
		return st;
	if (stream && !stream->device && !has_host_buffers(r)) {
		*has = false;
		return coll_comm_refuse(
		        r->comm, "stream", COLL_ERR_UNSUPPORTED,
		        "[COLL-1212] device memory in a stream of the host: wrap a stream of the device, or "
		        "pass NULL");
	}
	r->device->stream = streamed ? stream->handle : r->comm->stage->own;
	return COLL_OK;
}

static void chain(struct coll_batch *b, struct coll_request *r)
{
	struct coll_request *first = b->chains;
	struct coll_device_call *d = r->device;

	while (first && first->comm != r->comm)
		first = first->device->next_chain;
	if (first) {
		b->outside |= first->device->capture.id != d->capture.id;
		first->device->chain_last->device->next = r;
		first->device->chain_last = r;
		first->device->chain_calls++;
		return;
	}
	d->chain_last = r;
	d->chain_calls = 1;
	d->next_chain = b->chains;
	b->chains = r;
}

coll_status coll_stage_add(struct coll_batch *b, struct coll_request *r, const struct coll_stream *stream, bool *has)
{
	coll_status st;

	*has = false;
	if (!r->comm->stage) {
		b->outside = true;
		return COLL_OK;
	}
	if (!r->device && !(r->device = malloc(sizeof(*r->device))))
		return coll_comm_refuse(r->comm, "stream", COLL_ERR_MEMORY, "no memory for a request");
	*r->device = (struct coll_device_call){.host = r->kind};
	st = prepare(r, stream, has);
	/* A later call may pass the same address for other memory. */
	memset(r->comm->seen, 0, sizeof(r->comm->seen));
	b->captured |= r->device->capture.id != 0;
	b->outside |= r->device->capture.id == 0;
	if (*has)
		chain(b, r);
	return st;
}

/*
 * Numbers are compared cyclically, so a word is right while the numbers that it is compared with are less than 2^31
 * away. Some words may be idle for long: `taken` of a slot and half that no tile uses, `given` without turns, and
 * `ready` while calls go direct. So every 2^28 numbers all words are brought forward.
 *
 * All numbers below `done` are those of tiles that are over, on the device and on the host. So no stream waits for such
 * a number, and none of a greater one is let go. Under the lock, since drivers store greater numbers in the same words.
 *
 * What is compared is then less than 2^28 numbers behind the words, and those of the calls in flight: a queue of the
 * device would have to hold 2^28 operations for as many.
 */
static void bring_forward(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;
	uint32_t done;

	if (s->next - s->forward_at < FORWARD_EVERY)
		return;
	coll_async_lock(comm->ctx);
	done = atomic_load_explicit(&s->words->done, memory_order_acquire);
	for (uint32_t back = 1; back <= SLOTS; back++)
		for (int half = 0; half < 2; half++) {
			_Atomic uint32_t *word = &s->words->taken[half][(done - back) % SLOTS];

			if ((int32_t)(done - back + 1 - atomic_load_explicit(word, memory_order_relaxed)) > 0)
				atomic_store_explicit(word, done - back + 1, memory_order_release);
		}
	if ((int32_t)(done - atomic_load_explicit(&s->words->given, memory_order_relaxed)) > 0)
		atomic_store_explicit(&s->words->given, done, memory_order_release);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	s->forward_at = s->forward_ready = s->next;
	s->forward = true;
}

/* Calls that go direct come first, each with one number, and then the tiles of the others: as they end. alone: this
 * thread does not enqueue for other ranks meanwhile, which may have to be in front of a turn. */
static void assign(struct coll_request *first, bool alone)
{
	struct coll_stage *s = first->comm->stage;
	struct coll_stage_chain *c = &s->chain;

	bring_forward(first->comm);
	for (struct coll_request *r = first; r; r = r->device->next)
		if (r->device->direct) {
			coll_mapped_assign(r->comm, &r->device->direct_call);
			r->device->last = ++s->next;
		}
	coll_stage_order_assign(&c->order, first, s->next, false);
	c->rotation = NULL;
	if (alone && c->order.total > SLOTS) {
		coll_stage_order_assign(&c->order, first, s->next, true);
		c->rotation = coll_stage_turns_assign(s, first, s->next + (uint32_t)c->order.total);
		if (!c->rotation)
			coll_stage_order_assign(&c->order, first, s->next, false);
	}
	if (!planted(STALE_WORDS))
		s->next = c->rotation ? c->rotation->end : s->next + (uint32_t)c->order.total;
	if (planted(MANY_NUMBERS))
		s->next += MANY;
}

coll_status coll_stage_assign(const struct coll_batch *b)
{
	if (b->captured)
		return coll_capture_take(b);
	for (struct coll_request *r = b->chains; r; r = r->device->next_chain)
		assign(r, r == b->chains && !r->device->next_chain);
	return COLL_OK;
}

/* ---- Progress ---- */

bool coll_stage_has_left(const struct coll_comm *comm)
{
	return !comm->stage || !comm->stage->words || left(comm->stage);
}

void coll_stage_release(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;

	if (!s || !s->words)
		return;
	coll_mapped_release(comm);
	/* The guard first: a kernel that starts because one of these waits has ended sees it. */
	atomic_store_explicit(&s->words->guard, 1, memory_order_release);
	atomic_store_explicit(&s->words->given, s->last_done + RELEASED, memory_order_release);
	for (int half = 0; half < 2; half++)
		for (int i = 0; i < SLOTS; i++)
			atomic_store_explicit(&s->words->taken[half][i], s->last_done + RELEASED, memory_order_release);
}

/* Two threads may ask at once: once too often. */
static bool has_asked(struct coll_async *a)
{
	const uint64_t now = coll_clock_ns();

	if (now - atomic_load_explicit(&a->asked_ns, memory_order_relaxed) < COLL_DELAY_NS(DEVICE_LOOK))
		return true;
	atomic_store_explicit(&a->asked_ns, now, memory_order_relaxed);
	return false;
}

void coll_stage_look(struct coll_context *ctx, bool query)
{
	struct coll_async *a = ctx->async;
	struct coll_error_box err;
	struct coll_link *next;
	coll_status st;

	if (query && has_asked(a))
		return;
	st = ctx->device->table->fault(ctx->device);
	if (st == COLL_OK)
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
