/*
 * Two ranks, blocks of all_gather and all_to_all in plain memory: each has its kernel copy the other's
 * block from where it lies to its own result, one copy where slots take two. Whether that is quicker is found out
 * (trial.h).
 *
 *   1  Each rank writes in a line of its entry where its block is, and whether it may read the other's memory at
 *      all. It copies its own block to its result meanwhile.
 *   2  When it has read the other's line, and both may, it reads the other's block, in units. Else both go by
 *      slots; as they do where a rank's result of the other comes where its own block for the other lies, as in an
 *      all_to_all in place: who read first would be given, or give, what has just been read.
 *   3  It says in another line that it has, or could not, and returns when both have: then nobody
 *      reads its buffer any more. If one could not, both go by slots, and so do the next 1, 2, 4 ... 64 calls of that
 *      kind and size: it may be this buffer alone. A rank that cannot read the other at all says so in its
 *      first line, and both go by slots always.
 *
 * Ordering. A line's payload is stored, then its word with release; the word is loaded with
 * acquire, then the payload, then the block, by a system call. What the kernel has read comes before the release
 * store that says so, and that before the acquire load after which the owner writes again.
 *
 * Failure. A rank whose call ends with an error may write its buffer again; the other, if it reads at that
 * moment, must not take what it gets for the block. It is the rule of direct.c: busy = 1; if revoked, stop; the unit;
 * busy = 0; if revoked, stop. A process that has died, or become another program, is told by the transport.
 */
#include "native/pull.h"

#include "base/clock.h"

enum { UNIT_BYTES = 1 << 20, LINE_OFFER = 3, LINE_TAKEN = 4 };
enum { OFFERED = NATIVE_PULL_NEW + 1, PULLING, TAKEN };

struct offer {
	uint64_t address;
	uint32_t never;    /* this rank cannot read the other's memory */
	uint32_t in_place; /* what the other reads lies where this rank's result comes */
	uint32_t ns[COLL_TRIED_WAYS];
};
_Static_assert(sizeof(struct offer) <= COLL_FIRST_PAYLOAD, "one line");

/* ---- Which way ---- */

static size_t size_class(const struct coll_job *job)
{
	return (63 - __builtin_clzll(job->in.count * job->elem_bytes | 1)) % COLL_SIZES;
}

/* NULL: this kind always goes by slots. */
static struct native_trial *trial_of(struct coll_native *n, const struct coll_job *job)
{
	const enum coll_kind kind = job->plan->kind;

	if (kind != COLL_KIND_ALL_GATHER && kind != COLL_KIND_ALL_TO_ALL)
		return NULL;
	return &n->pull.trials[kind == COLL_KIND_ALL_TO_ALL][size_class(job)];
}

static struct native_shy *shyness(struct coll_native *n, const struct coll_job *job)
{
	return &n->pull.shy[job->plan->kind == COLL_KIND_ALL_TO_ALL][size_class(job)];
}

/* The setting's way; COLL_TRIED_WAYS: the quickest. */
static enum native_way forced(const struct coll_native *n, const struct coll_job *job)
{
	const bool stream =
	        n->fabric.stores && coll_stores_by_size(n->fabric.stores, 4 * job->in.count * job->elem_bytes);

	switch (n->fabric.way) {
	case COLL_NATIVE_CACHED: return COLL_SLOTS;
	case COLL_NATIVE_STREAMED: return COLL_SLOTS_STREAMED;
	case COLL_NATIVE_PULLED: return stream ? COLL_PULL_STREAMED : COLL_PULL;
	default: return COLL_TRIED_WAYS;
	}
}

void coll_native_pull_choose(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	struct native_trial *t = trial_of(n, job);

	n->pull.settles = false;
	n->pull.way = forced(n, job);
	s->phase = NATIVE_SLOTS_NEW;
	if (!t)
		return;
	n->pull.may = !n->pull.never && !coll_native_shies(shyness(n, job));
	if (n->pull.way == COLL_TRIED_WAYS) {
		n->pull.way = coll_native_trial_begin(t, n->pull.may, &n->pull.settles);
		n->pull.since_ns = coll_clock_ns();
	}
	if (n->pull.settles || (coll_native_pulls(n->pull.way) && n->pull.may))
		s->phase = NATIVE_PULL_NEW;
}

void coll_native_pull_ended(struct coll_native *n, const struct coll_job *job)
{
	struct native_trial *t = trial_of(n, job);

	if (t && n->fabric.way == COLL_NATIVE_AUTO)
		coll_native_trial_end(t, n->pull.way, coll_clock_ns() - n->pull.since_ns);
}

/* ---- The other rank ---- */

static struct native_peer *other(struct coll_native *n)
{
	return &n->peers[!n->rank];
}

static const struct native_line *line_of(const struct native_region *r, const struct coll_hand_state *s, int line)
{
	return &r->entries[s->turn % COLL_DEPTH].lines[line];
}

static bool revoked(struct coll_native *n)
{
	return atomic_load(&other(n)->region->revoked);
}

static coll_status not_yet(struct coll_native *n, struct coll_hand_state *s, coll_status st)
{
	return st == COLL_AGAIN && revoked(n) ? COLL_ERR_ABORTED : coll_native_not_now(n, s, st);
}

/* ---- Offers ---- */

static bool in_place(const struct coll_native *n, const struct coll_job *job)
{
	const struct coll_exchange e = coll_native_exchange(n, job);

	return e.send == e.to;
}

static void make_offer(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct coll_exchange e = coll_native_exchange(n, job);
	struct native_peer *p = other(n);
	const struct native_trial *t = trial_of(n, job);
	struct offer mine = {.address = (uint64_t)(uintptr_t)e.send,
	                     .never = p->transport->pull(p->link, 0, NULL, 0) != COLL_OK,
	                     .in_place = in_place(n, job)};

	memcpy(mine.ns, t->ns, sizeof(mine.ns));
	memcpy(n->mine->entries[s->turn % COLL_DEPTH].lines[LINE_OFFER].payload, &mine, sizeof(mine));
	n->pull.never |= mine.never;
	/* Who fails from here on waits for the other's unit: coll_native_revoke(). */
	n->direct.lent = true;
	n->direct.written = NULL;
	s->phase = OFFERED;
	s->done = s->next = 0;
	coll_native_tell(n, s, LINE_OFFER, job->signature);
}

/* What goes from our own input to our own result: a unit. False: there is no more. */
static bool copy_own(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct coll_exchange e = coll_native_exchange(n, job);
	const size_t at = (size_t)s->next * UNIT_BYTES, left = at < e.bytes ? e.bytes - at : 0;
	const size_t bytes = left < UNIT_BYTES ? left : UNIT_BYTES;

	if (bytes == 0 || e.own_to == e.own || !coll_native_pulls(n->pull.way))
		return false;
	if (coll_native_streams(n->pull.way))
		coll_reduce_stream(e.own_to + at, e.own + at, bytes);
	else
		coll_reduce_copy(e.own_to + at, e.own + at, bytes);
	s->next++;
	s->events++;
	return true;
}

static void decide(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s,
                   const struct offer *theirs)
{
	const bool apart = !theirs->in_place && !in_place(n, job);

	n->pull.never |= theirs->never;
	n->pull.may &= !n->pull.never;
	n->pull.address = theirs->address;
	/* What copy_own() has stored past the caches: the way it goes on may have no fence. */
	if (coll_native_streams(n->pull.way))
		coll_reduce_fence();
	if (n->pull.settles)
		n->pull.way = coll_native_trial_settle(trial_of(n, job), theirs->ns, n->pull.may);
	if (coll_native_pulls(n->pull.way) && n->pull.may && apart) {
		s->phase = PULLING;
		return;
	}
	n->pull.way = (enum native_way)(n->pull.way & 1);
	n->direct.lent = false;
	s->phase = NATIVE_SLOTS_NEW;
}

static coll_status await_offer(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct native_region *r = other(n)->region;
	struct offer theirs;
	coll_status st = coll_native_await(n, job, s, line_of(r, s, 0), true);

	if (st == COLL_OK)
		st = coll_native_await(n, job, s, line_of(r, s, LINE_OFFER), false);
	if (st != COLL_OK)
		return not_yet(n, s, st);
	memcpy(&theirs, line_of(r, s, LINE_OFFER)->payload, sizeof(theirs));
	s->events++;
	decide(n, job, s, &theirs);
	return COLL_OK;
}

/* ---- The other's block ---- */

/* One unit. */
static coll_status pull(struct coll_native *n, const struct coll_exchange *e, struct coll_hand_state *s)
{
	const size_t at = (size_t)s->done * UNIT_BYTES, left = e->bytes - at;
	const size_t bytes = left < UNIT_BYTES ? left : UNIT_BYTES;
	struct native_peer *p = other(n);
	coll_status st = COLL_ERR_ABORTED;

	/* Sequentially consistent, as direct.c has it: of two ranks one sees what the other wrote. */
	atomic_store(&n->mine->busy, 1);
	if (!revoked(n))
		st = p->transport->pull(p->link, n->pull.address + at, e->to + at, bytes);
	coll_native_after_reading();
	atomic_store_explicit(&n->mine->busy, 0, memory_order_release);
	if (revoked(n))
		return COLL_ERR_ABORTED;
	if (st != COLL_OK)
		return st;
	n->direct.stats.pulled += bytes;
	s->done++;
	s->events++;
	return COLL_OK;
}

static coll_status pull_next(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct coll_exchange e = coll_native_exchange(n, job);
	coll_status st;

	if (copy_own(n, job, s))
		return COLL_OK;
	st = pull(n, &e, s);
	if (st != COLL_OK && st != COLL_ERR_UNSUPPORTED)
		return st;
	if (st == COLL_OK && (size_t)s->done * UNIT_BYTES < e.bytes)
		return COLL_OK;
	if (coll_native_streams(n->pull.way))
		coll_reduce_fence();
	n->pull.taken = st == COLL_OK;
	coll_native_tell(n, s, LINE_TAKEN, st == COLL_OK ? NATIVE_GOOD : NATIVE_BAD);
	s->phase = TAKEN;
	return COLL_OK;
}

static coll_status await_taken(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const struct native_line *line = line_of(other(n)->region, s, LINE_TAKEN);
	uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

	for (int left = n->looks; left > 0 && (uint32_t)(word >> 32) != s->turn; left--) {
		coll_cpu_relax();
		word = atomic_load_explicit(&line->word, memory_order_acquire);
	}
	/* Turn 0 once in a while is that of a line that was never written, which says neither. */
	if (word != coll_native_word(s->turn, NATIVE_GOOD) && word != coll_native_word(s->turn, NATIVE_BAD))
		return not_yet(n, s, COLL_AGAIN);
	n->direct.lent = false;
	coll_native_encourage(shyness(n, job), n->pull.taken && (uint32_t)word == NATIVE_GOOD);
	if (n->pull.taken && (uint32_t)word == NATIVE_GOOD) {
		coll_native_pull_ended(n, job);
		coll_native_heard_all(n, s);
		return COLL_OK;
	}
	s->events++;
	n->pull.way = (enum native_way)(n->pull.way & 1);
	s->phase = NATIVE_SLOTS_NEW;
	return COLL_OK;
}

/* A unit at a time: whoever polls looks at other things in between. */
coll_status coll_native_poll_pull(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	coll_status st = COLL_OK;

	if (s->phase == NATIVE_PULL_NEW)
		make_offer(n, job, s);
	if (s->phase == OFFERED) {
		if (copy_own(n, job, s) && (size_t)s->next * UNIT_BYTES < job->in.count * job->elem_bytes)
			return COLL_AGAIN;
		st = await_offer(n, job, s);
	}
	while (st == COLL_OK && s->phase == PULLING) {
		st = pull_next(n, job, s);
		if (st == COLL_OK && s->phase == PULLING)
			return COLL_AGAIN;
	}
	if (st == COLL_OK && s->phase == TAKEN)
		st = await_taken(n, job, s);
	return st;
}
