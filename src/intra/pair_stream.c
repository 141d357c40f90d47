/*
 * Two ranks, long messages in plain memory, chunk by chunk through slots in both regions: two schedules, one for an
 * all_reduce and one for blocks. stream_kernel.h has the slots, the cut and the loop over the bytes.
 *
 * Only their owner reads or writes the caller's buffers: a call may fail at any moment.
 *
 * Halves: an all_reduce. Each rank reduces half of the vector, chunk by chunk, in slots that go to the other and come
 * back.
 *
 * The vector is cut into chunks; of chunks 2k and 2k + 1, pair k, the first is rank 0's to reduce and the second
 * rank 1's. A rank copies its input of the other's chunk to a slot of its own region. The other joins that
 * with its input, stores the sum to its result and to the slot, where it has read the line a moment ago; the owner
 * copies it from there to its result. So a byte of a vector is loaded and stored twice (sent and taken, or joined),
 * where two ranks that send each other all of it and both join all of it load three times, their own input twice. Lines
 * cross as often: half of the vector there and half back.
 *
 * Ranks in step do three things in a step, for three pairs, block by block:
 *
 *   take   pair k - 2 AHEAD   own slot -> result
 *   join   pair k - AHEAD     the other's slot, own input -> that slot, result
 *   send   pair k             own input -> own slot
 *
 * and go on so while they find what they take and join, which the other has joined and sent. A rank that does not find
 * it looks for a while. Then it takes or joins what there is; or else it sends further pairs, into slots that ahead.h
 * owns, as the other does not run. When the other runs again, it finds all that at once; nothing more is sent before
 * all but 2 AHEAD pairs are taken, and both keep step again.
 *
 * Ordering. What a rank has sent is stored, with the slot's number, before `steps` is, with release; what it has joined
 * before `joined` is. The other loads each with acquire before it reads those bytes. A slot is written by its owner
 * after its own loads of what came back, by the other after it has seen (acquire) that it was sent, which is after
 * those loads (release). So a slot is the owner's, or the other's, and the two counts hand it over. Between operations:
 * who ends one has taken all its slots, and the other has nothing more to do there; it does not touch them before this
 * rank has sent in the next one. pair_stream_model_test.c explores it.
 *
 * Swap: all_gather, reduce_scatter and all_to_all.
 *
 * Each rank sends the other what it needs of its input and takes the other's chunk as it
 * comes: copied, or reduced with its own, to its result. There are two rings of SLOTS slots,
 * one in the region of each rank. Chunk c, counted over all operations, is written by rank r to
 * ring (c / SLOTS + r) % 2 and read from the other. So chunk c + SLOTS goes where this rank has read
 * the other's chunk c: its lines are in this core's caches, and are written there at once. Where always the same
 * rank wrote a slot each line would be fetched back from its reader first; between cores that share no
 * cache that is five times as slow (shm-large.md). And nobody needs to be told that a slot is free: its
 * only reader is who writes it next, c - SLOTS having been taken being enough.
 *
 * Ordering. A chunk is stored, then `steps` (epoch << COLL_STEP_BITS | chunks sent) with release; the
 * other loads it with acquire, then reads. A rank's stores to a slot come after its own loads of it, in one
 * thread. Of chunk k nothing is stored to the result before chunk k has been sent: they may be the
 * same memory. An operation ends when all chunks are sent and taken; the last of them are read by the other
 * later, in slots, which are not written before it has.
 */
#include "intra/pair_stream.h"

#include <assert.h>

#include "intra/ahead.h"
#include "intra/cma.h"
#include "intra/nt_stores.h"
#include "intra/pair_swap.h"
#include "intra/stream_kernel.h"
#include "reduce/copy.h"

/* The other has made so many steps or chunks of this call, or it makes a later one. Before the first, it is known to
 * make the same call. */
static coll_status reached(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, uint32_t steps)
{
	const struct intra_region *theirs = n->peers[!n->rank].region;

	if (steps == 1) {
		const coll_status st = coll_intra_check(job, s, &theirs->entries[s->epoch % COLL_DEPTH].lines[0], true);

		if (st != COLL_OK)
			return st;
	}
	return atomic_load_explicit(&theirs->steps, memory_order_acquire) >= (n->epoch << COLL_STEP_BITS | steps)
	               ? COLL_OK
	               : COLL_AGAIN;
}

/* So many of ours are made. */
static void publish_steps(struct coll_intra *n, uint32_t steps)
{
	atomic_store_explicit(&n->mine->steps, n->epoch << COLL_STEP_BITS | steps, memory_order_release);
	coll_intra_nudge(n);
}

static void end(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s)
{
	if (n->nt.choice.stream)
		coll_reduce_fence();
	coll_intra_nt_end(n);
	n->all = s->epoch;
	n->direct.stats.streamed_in += coll_intra_block_bytes(job);
}

/* ---- Halves ---- */

enum { HALVES_AHEAD = COLL_RING_SLOTS / 2, IN_STEP = 2 * HALVES_AHEAD, POLL_STEPS = 8, POLL_STEPS_CROWDED = 128 };

/* What is made in one step; or none of it is possible. */
struct turn {
	bool takes, joins, sends;
	bool late; /* a rank in step would find more */
};

/* The chunk of pair k that `joiner` reduces, in the slot of the other. */
static struct coll_leg half_of(const struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s,
                               uint32_t k, int joiner)
{
	const size_t all = job->in.count * job->elem_bytes;
	const struct coll_span here = coll_intra_span(all, s->piece, 2 * (size_t)k + (size_t)joiner);
	const struct coll_span next = coll_intra_span(all, s->piece, 2 * (size_t)(k + 1) + (size_t)joiner);

	return (struct coll_leg){.slot = coll_ahead_slot(n, !joiner, *coll_ahead_entry(n, !joiner, k)),
	                         .own = job->in.base + here.at,
	                         .next = next.bytes ? job->in.base + next.at : NULL,
	                         .next_bytes = next.bytes,
	                         .to = job->out.base + here.at,
	                         .bytes = here.bytes};
}

static bool is_over(const struct coll_intra_state *s)
{
	return s->done == s->pieces && s->taken == s->pieces;
}

/* So many pairs of this call; all of them when the word is of a later one. */
static uint32_t pairs_in(const struct coll_intra *n, const struct coll_intra_state *s, const _Atomic uint64_t *word)
{
	const uint64_t made = atomic_load_explicit(word, memory_order_acquire), none = n->epoch << COLL_STEP_BITS;

	return made < none ? 0 : made - none < s->pieces ? (uint32_t)(made - none) : s->pieces;
}

/* How many pairs may be under way. Ranks that share a core wait for each other all the time: they stay in the caches
 * unless others want the core, too. */
static uint32_t room(const struct coll_intra *n)
{
	return n->alone || coll_intra_is_crowded(n) ? coll_ahead_slots(n) : 4 * IN_STEP;
}

/* What may be made now; what the other has made, in all. */
static coll_status plan(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, struct turn *t,
                        uint32_t *made)
{
	const struct intra_region *theirs = n->peers[!n->rank].region;
	const bool all_sent = s->next == s->pieces;
	/* In step: what is next. */
	const bool join = s->done < s->pieces && (s->done + HALVES_AHEAD <= s->next || all_sent);
	const bool take = s->taken < s->pieces && (s->taken + IN_STEP <= s->next || all_sent);
	uint32_t sent = 0, joined = 0;

	/* Before anything of the other's is touched, it is known to make the same call. */
	if (s->done == 0) {
		const coll_status st = coll_intra_check(job, s, &theirs->entries[s->epoch % COLL_DEPTH].lines[0], true);

		if (st != COLL_OK && st != COLL_AGAIN)
			return st;
		if (st == COLL_OK)
			sent = pairs_in(n, s, &theirs->steps);
	} else {
		sent = pairs_in(n, s, &theirs->steps);
	}
	if (sent > 0)
		joined = pairs_in(n, s, &theirs->joined);
	*made = sent + joined;
	*t = (struct turn){.takes = s->taken < joined, .joins = s->done < sent};
	t->late = (join && !t->joins) || (take && !t->takes);
	if (t->late) {
		t->sends = !t->joins && !t->takes && !all_sent && s->next - s->taken < room(n);
		return COLL_OK;
	}
	t->takes &= take;
	t->joins &= join;
	t->sends = !all_sent && s->next - s->taken - t->takes < IN_STEP;
	return COLL_OK;
}

/* The same, after a look for what a rank in step waits for; but only one look while the other does not move. */
static coll_status look_around(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                               struct turn *t)
{
	uint32_t made = 0;
	coll_status st = plan(n, job, s, t, &made);

	for (int left = made == s->cell ? 0 : coll_intra_looks(n, s); st == COLL_OK && t->late && left > 0; left--) {
		coll_cpu_relax();
		st = plan(n, job, s, t, &made);
	}
	if (t->late)
		s->cell = made;
	return st;
}

static void make_step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                      const struct turn *t)
{
	const uint64_t since_ns = coll_intra_nt_since(n), base = n->epoch << COLL_STEP_BITS;
	struct coll_weave w = {
	        .reduction = job->reduction, .own_first = n->rank == 0, .returns = true, .stream = n->nt.choice.stream};

	if (t->takes) {
		w.taken = half_of(n, job, s, s->taken, !n->rank);
		coll_ahead_give(n, s->taken++);
	}
	if (t->joins)
		w.joined = half_of(n, job, s, s->done++, n->rank);
	if (t->sends) {
		coll_ahead_take(n, s->next); /* the slot that is taken, if it is the first */
		w.sent = half_of(n, job, s, s->next++, !n->rank);
		w.sent.to = NULL;
	}
	coll_intra_stream_kernel(&w);
	coll_intra_nt_until(n, since_ns);
	s->events++;
	if (t->joins)
		atomic_store_explicit(&n->mine->joined, base | s->done, memory_order_release);
	if (t->sends)
		atomic_store_explicit(&n->mine->steps, base | s->next, memory_order_release);
}

static void begin_halves(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const size_t bytes = coll_intra_block_bytes(job);

	s->piece = coll_intra_chunk(bytes / 2);
	s->pieces = (uint32_t)((bytes + 2 * s->piece - 1) / (2 * s->piece));
	coll_intra_nt_slots(n, s, 2 * bytes, job->in.base == job->out.base);
}

/* Some steps at a time: whoever polls looks at other things in between. The other is woken up behind them: it has more
 * to do than one step then. Where it must wait for a core it is worth while to have much more. */
static coll_status go_halves(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const int steps = coll_intra_is_crowded(n) ? POLL_STEPS_CROWDED : POLL_STEPS;
	coll_status st = COLL_OK;
	bool tells = s->next == 0;
	struct turn t = {0};

	for (int i = 0; i < steps && !is_over(s) && st == COLL_OK; i++) {
		st = look_around(n, job, s, &t);
		if (st == COLL_OK && !t.takes && !t.joins && !t.sends)
			st = COLL_AGAIN;
		if (st == COLL_OK)
			make_step(n, job, s, &t);
		tells |= st == COLL_OK;
	}
	if (tells)
		coll_intra_nudge(n);
	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	return is_over(s) ? COLL_OK : COLL_AGAIN;
}

/* ---- Swap ---- */

enum { SWAP_AHEAD = 2 };
_Static_assert((int)SWAP_AHEAD < (int)COLL_RING_SLOTS,
               "a chunk is sent before the one of SLOTS before it has been read");

/* Of chunk k as the rank `writer` sends it. */
static char *slot_of(const struct coll_intra *n, uint32_t k, int writer)
{
	const uint64_t c = n->streamed_in + k;

	return coll_intra_slot(n, COLL_RING_SWAP, c, (int)(c / COLL_RING_SLOTS + (uint64_t)writer) % 2);
}

/* Of the caller's buffers both may be nowhere: what is only taken, what is only sent. */
static struct coll_leg leg_of(const struct coll_intra_state *s, size_t all_bytes, uint32_t k, const char *own, char *to)
{
	const struct coll_span here = coll_intra_span(all_bytes, s->piece, k);
	const struct coll_span next = coll_intra_span(all_bytes, s->piece, k + 1);

	return (struct coll_leg){.own = own ? own + here.at : NULL,
	                         .next = own && next.bytes ? own + next.at : NULL,
	                         .next_bytes = next.bytes,
	                         .to = to ? to + here.at : NULL,
	                         .bytes = here.bytes};
}

/* The next chunk each way, as far as it may be sent and is there. */
static void move(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, bool sends, bool takes)
{
	const struct coll_exchange e = coll_intra_exchange(n, job);
	struct coll_weave w = {.reduction = job->reduction, .own_first = n->rank == 0, .stream = n->nt.choice.stream};
	struct coll_leg *from = e.joins ? &w.joined : &w.taken;
	uint64_t since_ns;

	if (sends) {
		w.sent = leg_of(s, e.bytes, s->next, e.send, e.own_to);
		w.sent.kept = e.own + (w.sent.own - e.send);
		w.sent.slot = slot_of(n, s->next, n->rank);
	}
	if (takes) {
		*from = leg_of(s, e.bytes, s->done, e.joins ? e.own : NULL, e.to);
		from->slot = slot_of(n, s->done, !n->rank);
	}
	since_ns = coll_intra_nt_since(n);
	coll_intra_stream_kernel(&w);
	coll_intra_nt_until(n, since_ns);
	if (sends) {
		s->next++;
		s->events++;
		publish_steps(n, s->next);
	}
	if (takes) {
		s->done++;
		s->events++;
	}
}

/* The other's next chunk is there. */
static coll_status sent(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	return reached(n, job, s, s->done + 1);
}

static void begin_swap(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct coll_exchange e = coll_intra_exchange(n, job);

	s->piece = coll_intra_chunk(e.bytes);
	s->pieces = (uint32_t)((e.bytes + s->piece - 1) / s->piece);
	coll_intra_nt_slots(n, s, 2 * e.bytes, e.own == e.to);
}

/* One chunk each way. Two are sent ahead, so that the other's is there as a rule. */
static coll_status step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_status st;

	while (s->next < s->pieces && s->next < s->done + SWAP_AHEAD)
		move(n, job, s, true, false);
	st = coll_intra_look(n, job, s, sent);
	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	assert(s->done < s->next);
	move(n, job, s, s->next < s->pieces, true);
	return COLL_OK;
}

/* ---- A call ---- */

static coll_status begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const coll_status st = coll_intra_enter_once(n, job, s); /* readers are told with the first step or chunk */

	if (st != COLL_OK)
		return st;
	s->way = COLL_WAY_PAIR_STREAM;
	s->phase = INTRA_OWN;
	s->done = s->next = s->taken = 0;
	s->cell = UINT32_MAX; /* nothing was looked at */
	/* What has just been read is in the cache and is overwritten there. */
	if (job->plan->kind == COLL_KIND_ALL_REDUCE)
		begin_halves(n, job, s);
	else
		begin_swap(n, job, s);
	return COLL_OK;
}

coll_status coll_intra_poll_pair_stream(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	const bool halves = job->plan->kind == COLL_KIND_ALL_REDUCE;
	struct coll_intra *n = arg;
	coll_status st;

	s->pending = (uint32_t)!n->rank;
	if (s->phase != INTRA_OWN) {
		st = begin(n, job, s);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
	}
	st = halves ? go_halves(n, job, s) : coll_intra_step_some(n, job, s, step);
	if (st != COLL_OK)
		return st;
	end(n, job, s);
	if (halves)
		coll_ahead_end(n);
	else
		n->streamed_in += s->pieces;
	if (s->trial)
		coll_intra_cma_ended(n, job);
	return COLL_OK;
}
