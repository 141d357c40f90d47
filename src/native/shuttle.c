/*
 * Two ranks, long messages in plain memory: all_reduce, all_gather, reduce_scatter and
 * all_to_all, chunk by chunk through slots that change hands.
 *
 * Each rank sends the other what it needs of its input (all of it in an all_reduce, which
 * is at two ranks no more than contributions and results would be) and takes the other's chunk as it
 * comes: copied, or reduced with its own, to its result. There are two rings of SLOTS slots,
 * one in the region of each rank. Chunk c, counted over all operations, is written by rank r to
 * ring (c / SLOTS + r) % 2 and read from the other. So chunk c + SLOTS goes where this rank has read
 * the other's chunk c: its lines are in this core's caches, and are written there at once. Where always the same
 * rank wrote a slot each line would be fetched back from its reader first; between cores that share no
 * cache that is five times as slow (shm-large.md). And nobody needs to be told that a slot is free: its
 * only reader is who writes it next, c - SLOTS having been taken being enough.
 *
 * Ordering. A chunk is stored, then `steps` (turn << COLL_STEP_BITS | chunks sent) with release; the
 * other loads it with acquire, then reads. A rank's stores to a slot come after its own loads of it, in one
 * thread. Of chunk k nothing is stored to the result before chunk k has been sent: they may be the
 * same memory. An operation ends when all chunks are sent and taken; the last of them are read by the other
 * later, in slots, which are not written before it has.
 *
 * Only their owner reads or writes the caller's buffers: a call may fail at any moment.
 */
#include <assert.h>

#include "native/pull.h"

enum { SLOTS = 8, SLOT_BYTES = 64 << 10, SLOT_MIN = 8 << 10, SLOT_GAP = 4096 + 256, BLOCK = 4096 };
_Static_assert(SLOTS *(SLOT_BYTES + SLOT_GAP) <= COLL_TILE_AREAS * (COLL_TILE_BYTES + SLOT_GAP),
               "a ring lies where more than two ranks have tiles");

/* What pair.c does not. */
bool coll_native_shuttle_serves(const struct coll_native *n, const struct coll_job *job)
{
	const enum coll_kind kind = job->plan->kind;
	const size_t bytes = job->in.count * job->elem_bytes;

	if (n->size != 2 || bytes / SLOT_BYTES >= (1 << COLL_STEP_BITS) - 4 || bytes < SLOT_MIN)
		return false;
	if (kind != COLL_KIND_ALL_REDUCE && kind != COLL_KIND_ALL_GATHER && kind != COLL_KIND_REDUCE_SCATTER &&
	    kind != COLL_KIND_ALL_TO_ALL)
		return false;
	return !coll_native_serves(kind, 2, false, job->in.count, job->elem_bytes, n->payload_bytes);
}

struct shuttle {
	struct coll_exchange e;
	size_t chunk;
	bool stream; /* what is copied to the result goes past the caches */
	bool stream_joined;
};

static struct shuttle shuttle_of(const struct coll_native *n, const struct coll_job *job,
                                 const struct coll_hand_state *s)
{
	struct shuttle t = {.e = coll_native_exchange(n, job), .chunk = s->piece};
	const size_t blocks =
	        job->plan->kind == COLL_KIND_ALL_GATHER || job->plan->kind == COLL_KIND_ALL_TO_ALL ? 2 : 1;

	t.stream = blocks > 1 ? coll_native_streams(n->pull.way)
	                      : n->fabric.stores && coll_stores_by_size(n->fabric.stores, 2 * t.e.bytes);
	/* What has just been read is in the cache and is overwritten there. */
	t.stream_joined = t.stream && t.e.own != t.e.to;
	return t;
}

/* Of chunk k as the rank `writer` sends it. */
static char *slot_of(const struct coll_native *n, uint32_t k, int writer)
{
	const uint64_t c = n->shuttled + k;
	const int ring = (int)(c / SLOTS + (uint64_t)writer) % 2;
	struct native_region *r = ring == n->rank ? n->mine : (struct native_region *)(uintptr_t)n->peers[ring].region;

	return (char *)r + coll_native_tiles_at(n->payload_bytes) + c % SLOTS * (SLOT_BYTES + SLOT_GAP);
}

static size_t bytes_of(const struct shuttle *t, uint32_t k)
{
	const size_t left = t->e.bytes - k * t->chunk;

	return left < t->chunk ? left : t->chunk;
}

static void store(char *to, const char *from, size_t bytes, bool stream)
{
	if (stream)
		coll_reduce_stream(to, from, bytes);
	else
		coll_reduce_copy(to, from, bytes);
}

/* The next chunk, and what belongs to it of our own block: of an all_gather the same bytes, which are read
 * once. */
static void send(struct coll_native *n, const struct shuttle *t, struct coll_hand_state *s)
{
	const uint32_t k = s->next;
	const size_t at = k * t->chunk, bytes = bytes_of(t, k);
	char *slot = slot_of(n, k, n->rank);

	for (size_t i = 0; i < bytes; i += BLOCK) {
		const size_t len = bytes - i < BLOCK ? bytes - i : BLOCK;

		coll_reduce_copy(slot + i, t->e.send + at + i, len);
		if (t->e.own_to && t->e.own == t->e.send)
			store(t->e.own_to + at + i, t->e.own + at + i, len, t->stream);
	}
	s->next++;
	s->events++;
	atomic_store_explicit(&n->mine->steps, n->turn << COLL_STEP_BITS | s->next, memory_order_release);
	coll_native_nudge(n);
	if (t->e.own_to && t->e.own != t->e.send)
		store(t->e.own_to + at, t->e.own + at, bytes, t->stream);
}

static void take(struct coll_native *n, const struct coll_job *job, const struct shuttle *t, struct coll_hand_state *s)
{
	const size_t at = s->done * t->chunk, bytes = bytes_of(t, s->done);
	const char *theirs = slot_of(n, s->done, !n->rank);
	char *to = t->e.to + at;
	const char *src[2];

	src[n->rank] = t->e.own + at;
	src[!n->rank] = theirs;
	if (!t->e.joins)
		store(to, theirs, bytes, t->stream);
	else if (t->stream_joined)
		coll_reduce_spread(job->reduction, &to, 1, src, 2, true, bytes);
	else
		coll_reduce_run(job->reduction, to, (const void *const *)src, 2, -1, true, bytes / job->elem_bytes);
	s->done++;
	s->events++;
}

/* The other's next chunk is there; before the first one it is known to make the same call. */
static coll_status sent(const struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct native_region *theirs = n->peers[!n->rank].region;

	if (s->done == 0) {
		const coll_status st = coll_native_check(job, s, &theirs->entries[s->turn % COLL_DEPTH].lines[0], true);

		if (st != COLL_OK)
			return st;
	}
	/* Of a later turn: it has sent them all. */
	return atomic_load_explicit(&theirs->steps, memory_order_acquire) > (n->turn << COLL_STEP_BITS | s->done)
	               ? COLL_OK
	               : COLL_AGAIN;
}

/* Chunks of whole lines: many enough that both ranks are at work most of the time. */
static void cut(const struct shuttle *t, struct coll_hand_state *s)
{
	const size_t piece = t->e.bytes / SLOTS & ~(size_t)(BLOCK - 1);

	s->piece = piece < SLOT_MIN ? SLOT_MIN : piece > SLOT_BYTES ? SLOT_BYTES : piece;
	s->pieces = (uint32_t)((t->e.bytes + s->piece - 1) / s->piece);
}

/* Which way it goes is known then, or is about to be: pull.c. */
static coll_status enter(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	if (s->phase == NATIVE_TILES_NEW) {
		const coll_status st = coll_native_enter_as(n, s, true);

		if (st != COLL_OK)
			return st;
		coll_native_publish(n, job, s); /* readers are told with the first chunk, or the offer */
	}
	s->committed = true;
	coll_native_pull_choose(n, job, s);
	return COLL_OK;
}

static void begin(const struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct shuttle t = shuttle_of(n, job, s);

	s->phase = NATIVE_TILES;
	s->done = s->next = 0;
	cut(&t, s);
}

static bool may_send(const struct coll_hand_state *s)
{
	return s->next < s->pieces && s->next < s->done + SLOTS;
}

/* The same, looking for a while when there is nothing else to do. */
static coll_status await_sent(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	coll_status st = sent(n, job, s);

	for (int left = may_send(s) ? 0 : n->looks; st == COLL_AGAIN && left > 0; left--) {
		coll_cpu_relax();
		st = sent(n, job, s);
	}
	return st;
}

/* One chunk each way: whoever polls looks at other things in between. */
coll_status coll_native_poll_shuttle(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	struct shuttle t;
	coll_status st;

	s->pending = (uint32_t)!n->rank;
	if (s->phase < NATIVE_TILES) {
		st = enter(n, job, s);
		if (st != COLL_OK)
			return coll_native_not_now(n, s, st);
	}
	if (s->phase >= NATIVE_PULL_NEW) {
		st = coll_native_poll_pull(n, job, s);
		if (s->phase != NATIVE_SLOTS_NEW)
			return st;
	}
	if (s->phase == NATIVE_SLOTS_NEW)
		begin(n, job, s);
	t = shuttle_of(n, job, s);
	if (may_send(s))
		send(n, &t, s);
	st = await_sent(n, job, s);
	if (st != COLL_OK)
		return may_send(s) ? st : coll_native_not_now(n, s, st);
	assert(s->done < s->next);
	take(n, job, &t, s);
	if (s->done < s->pieces)
		return COLL_AGAIN;
	if (t.stream)
		coll_reduce_fence();
	n->all = s->turn;
	n->shuttled += s->pieces;
	n->direct.stats.shuttled += t.e.bytes;
	coll_native_pull_ended(n, job);
	return COLL_OK;
}
