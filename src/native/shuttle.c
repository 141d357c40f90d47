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

enum {
	SLOTS = 4,
	SLOT_BYTES = 32 << 10, /* both rings lie in a second-level cache, beside what is sent */
	SLOT_MIN = 8 << 10,
	SLOT_GAP = 4096 + 256,
	PAGE = 4096,
	PIECES = 8, /* of a short message, at least */
	AHEAD = 2,
	POLL_CHUNKS = 8,
	BLOCK = 512, /* with 1024, fetched 2048 ahead, 1.2 times slower at 2 MiB */
	FETCH_AHEAD = 1024,
	BACKWARDS_MAX = 8 << 20
};
_Static_assert(AHEAD < SLOTS, "a chunk is sent before the one of SLOTS before it has been read");
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
	bool stream; /* what is stored to the result goes past the caches */
};

static struct shuttle shuttle_of(const struct coll_native *n, const struct coll_job *job,
                                 const struct coll_hand_state *s)
{
	struct shuttle t = {.e = coll_native_exchange(n, job), .chunk = s->piece};
	const size_t blocks =
	        job->plan->kind == COLL_KIND_ALL_GATHER || job->plan->kind == COLL_KIND_ALL_TO_ALL ? 2 : 1;

	t.stream = blocks > 1 ? coll_native_streams(n->pull.way) : n->stores.choice.stream;
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

/* A chunk on its way. */
struct leg {
	char *slot;
	size_t at, bytes; /* of the vector or block; no bytes: none */
};

/* The last bytes of what the caller has just written are in its core's cache still, the first
 * are not any more: the vector is gone through backwards, unless it is so long that they hardly matter. */
static struct leg leg_of(const struct coll_native *n, const struct shuttle *t, const struct coll_hand_state *s,
                         uint32_t k, int writer)
{
	const size_t at = (t->e.bytes <= BACKWARDS_MAX ? s->pieces - 1 - k : k) * t->chunk, left = t->e.bytes - at;

	return (struct leg){slot_of(n, k, writer), at, left < t->chunk ? left : t->chunk};
}

static void store(char *to, const char *from, size_t bytes, bool stream)
{
	if (stream)
		coll_reduce_stream(to, from, bytes);
	else
		coll_reduce_copy(to, from, bytes);
}

/* A block, and what belongs to it of our own block: of an all_gather the same bytes, which are read once. */
static void send(const struct shuttle *t, const struct leg *leg, size_t i, size_t bytes)
{
	const size_t at = leg->at + i;

	coll_reduce_copy(leg->slot + i, t->e.send + at, bytes);
	if (t->e.own_to)
		store(t->e.own_to + at, t->e.own + at, bytes, t->stream);
}

static void take(const struct coll_native *n, const struct coll_job *job, const struct shuttle *t,
                 const struct leg *leg, size_t i, size_t bytes)
{
	const char *theirs = leg->slot + i;
	char *to = t->e.to + leg->at + i;
	const char *src[2];

	src[n->rank] = t->e.own + leg->at + i;
	src[!n->rank] = theirs;
	if (!t->e.joins)
		store(to, theirs, bytes, t->stream);
	else if (t->stream)
		coll_reduce_spread(job->reduction, &to, 1, src, 2, true, bytes);
	else
		coll_reduce_run(job->reduction, to, (const void *const *)src, 2, -1, true, bytes / job->elem_bytes);
}

/* The lines of a chunk that are wanted soon, to the second-level cache: far more of them are on their way
 * then than a core has loads in flight. What is past the end is not ours to look at yet. */
static void fetch(const char *from, const struct leg *leg, size_t i)
{
	const size_t end = i + FETCH_AHEAD + BLOCK;

	for (size_t at = i + FETCH_AHEAD; at < end && at < leg->bytes; at += COLL_LINE_BYTES)
		__builtin_prefetch(from + at, 0, 2);
}

static size_t block_of(const struct leg *leg, size_t i, size_t block)
{
	return i >= leg->bytes ? 0 : leg->bytes - i < block ? leg->bytes - i : block;
}

/* One chunk to the other and one from it, either of which may have no bytes: block by block, so that
 * the lines of both are waited for at the same time, those of our memory and those of the other's cache. */
static void weave(const struct coll_native *n, const struct coll_job *job, const struct shuttle *t,
                  const struct leg *to, const struct leg *from)
{
	/* A function of the user's is called for whole chunks. */
	const size_t block = t->e.joins && job->reduction->op == COLL_OP_USER ? t->chunk : BLOCK;

	for (size_t i = 0; i < t->chunk; i += block) {
		const size_t sent = block_of(to, i, block), taken = block_of(from, i, block);

		if (taken > 0)
			fetch(from->slot, from, i);
		if (sent > 0) {
			fetch(t->e.send + to->at, to, i);
			send(t, to, i, sent);
		}
		if (taken > 0)
			take(n, job, t, from, i, taken);
	}
}

/* The next chunk each way, as far as it may be sent and is there. */
static void move(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s, bool sends, bool takes)
{
	const struct shuttle t = shuttle_of(n, job, s);
	struct leg to = {0}, from = {0};
	uint64_t since_ns;

	if (sends)
		to = leg_of(n, &t, s, s->next, n->rank);
	if (takes)
		from = leg_of(n, &t, s, s->done, !n->rank);
	since_ns = coll_native_stores_since(n);
	weave(n, job, &t, &to, &from);
	coll_native_stores_until(n, since_ns);
	if (sends) {
		s->next++;
		s->events++;
		atomic_store_explicit(&n->mine->steps, n->turn << COLL_STEP_BITS | s->next, memory_order_release);
		coll_native_nudge(n);
	}
	if (takes) {
		s->done++;
		s->events++;
	}
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
	const size_t piece = t->e.bytes / PIECES & ~(size_t)(PAGE - 1);

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

static void begin(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct shuttle t = shuttle_of(n, job, s);

	s->phase = NATIVE_TILES;
	s->done = s->next = 0;
	cut(&t, s);
	/* What has just been read is in the cache and is overwritten there. */
	if (!t.e.joins || t.e.own == t.e.to)
		coll_native_stores_none(n);
	else
		coll_native_stores_begin(n, COLL_STORES_STAGED, 2 * t.e.bytes);
}

/* The same, looking for a while: it is about to come. */
static coll_status await_sent(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	coll_status st = sent(n, job, s);

	for (int left = n->looks; st == COLL_AGAIN && left > 0; left--) {
		coll_cpu_relax();
		st = sent(n, job, s);
	}
	return st;
}

/* One chunk each way. Two are sent ahead, so that the other's is there as a rule. */
static coll_status step(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	coll_status st;

	while (s->next < s->pieces && s->next < s->done + AHEAD)
		move(n, job, s, true, false);
	st = await_sent(n, job, s);
	if (st != COLL_OK)
		return coll_native_not_now(n, s, st);
	assert(s->done < s->next);
	move(n, job, s, s->next < s->pieces, true);
	return COLL_OK;
}

/* Some chunks at a time: whoever polls looks at other things in between. */
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
	st = COLL_OK;
	for (int i = 0; i < POLL_CHUNKS && s->done < s->pieces && st == COLL_OK; i++)
		st = step(n, job, s);
	if (st != COLL_OK)
		return st;
	if (s->done < s->pieces)
		return COLL_AGAIN;
	t = shuttle_of(n, job, s);
	if (t.stream)
		coll_reduce_fence();
	coll_native_stores_end(n);
	n->all = s->turn;
	n->shuttled += s->pieces;
	n->direct.stats.shuttled += t.e.bytes;
	coll_native_pull_ended(n, job);
	return COLL_OK;
}
