/*
 * Two ranks, an all_reduce of a long vector in plain memory: each reduces half of it, chunk by chunk, in
 * slots that go to the other and come back.
 *
 * The vector is cut into chunks; of chunks 2k and 2k + 1, pair k, the first is rank 0's to reduce and the second
 * rank 1's. A rank copies its input of the other's chunk to a slot of its own ring. The other joins that
 * with its input, stores the sum to its result and to the slot, where it has read the line a moment ago; the owner
 * copies it from there to its result. So a byte of a vector is loaded and stored twice (sent and taken, or joined),
 * where two ranks that send each other all of it and both join all of it load three times, their own input twice. Lines
 * cross as often: half of the vector there and half back.
 *
 * Step k of an operation does the three things for three pairs:
 *
 *   take   pair k - 2 AHEAD   own slot -> result
 *   join   pair k - AHEAD     the other's slot, own input -> that slot, result
 *   send   pair k             own input -> own slot
 *
 * and begins when the other has made step k - AHEAD: it has sent there what is joined now, and joined what is taken
 * now. Pair k's slot is that of pair k - 2 AHEAD, which is taken in the same step, before, block by block.
 *
 * Ordering. A step's bytes are stored before `steps` is, with release; the other loads it with acquire before it reads
 * them. A slot is written by its owner after its own loads of what came back, by the other after it has seen
 * (acquire) that it was sent, which is after those loads (release). Between operations: who ends one has taken all
 * its slots, and the other has nothing more to do there; it does not touch them before this rank has made steps of the
 * next one. pair_stream_model_test.c explores it.
 *
 * Only their owner reads or writes the caller's buffers: a call may fail at any moment.
 */
#include "intra/pair_reduce.h"
#include "intra/enter.h"
#include "intra/nt_stores.h"
#include "intra/stream_kernel.h"
#include "reduce/copy.h"

enum { AHEAD = COLL_RING_SLOTS / 2, POLL_STEPS = 8 };
_Static_assert(2 * AHEAD == COLL_RING_SLOTS, "a slot is taken in the step that sends it again");

/* What pair_swap.c does not. */
bool coll_intra_pair_reduce_serve(const struct coll_intra *n, const struct coll_job *job)
{
	const size_t bytes = job->in.count * job->elem_bytes;

	return n->size == 2 && job->plan->kind == COLL_KIND_ALL_REDUCE && bytes >= COLL_PAIR_STREAM_MIN &&
	       bytes / COLL_PAIR_SLOT_BYTES < (1 << COLL_STEP_BITS) - 2 * COLL_RING_SLOTS &&
	       !coll_intra_serves(job->plan->kind, 2, false, job->in.count, job->elem_bytes, n->payload_bytes);
}

/* The chunk of pair k that `joiner` reduces, in the ring of the other. */
static struct coll_leg leg_of(const struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s,
                              uint32_t k, int joiner)
{
	const size_t all = job->in.count * job->elem_bytes;
	const struct coll_span here = coll_intra_span(all, s->piece, 2 * (size_t)k + (size_t)joiner);
	const struct coll_span next = coll_intra_span(all, s->piece, 2 * (size_t)(k + 1) + (size_t)joiner);

	return (struct coll_leg){.slot = coll_intra_slot(n, COLL_RING_HALVES, k, !joiner),
	                         .own = job->in.base + here.at,
	                         .next = next.bytes ? job->in.base + next.at : NULL,
	                         .next_bytes = next.bytes,
	                         .to = job->out.base + here.at,
	                         .bytes = here.bytes};
}

static void make_step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const uint32_t k = s->next;
	const uint64_t since_ns = coll_intra_nt_since(n);
	struct coll_weave w = {
	        .reduction = job->reduction, .own_first = n->rank == 0, .returns = true, .stream = n->nt.choice.stream};

	if (k >= 2 * AHEAD)
		w.taken = leg_of(n, job, s, k - 2 * AHEAD, !n->rank);
	if (k >= AHEAD && k - AHEAD < s->pieces)
		w.joined = leg_of(n, job, s, k - AHEAD, n->rank);
	if (k < s->pieces) {
		w.sent = leg_of(n, job, s, k, !n->rank);
		w.sent.to = NULL;
	}
	coll_intra_stream_kernel(&w);
	coll_intra_nt_until(n, since_ns);
	s->next++;
	s->events++;
	if (k < s->pieces + AHEAD) { /* nobody waits for those behind */
		atomic_store_explicit(&n->mine->steps, n->epoch << COLL_STEP_BITS | s->next, memory_order_release);
		coll_intra_nudge(n);
	}
}

/* The other has made the step of AHEAD before this one; before the first, it is known to make the same call. */
static coll_status ready(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct intra_region *theirs = n->peers[!n->rank].region;

	if (s->next < AHEAD)
		return COLL_OK;
	if (s->next == AHEAD) {
		const coll_status st = coll_intra_check(job, s, &theirs->entries[s->epoch % COLL_DEPTH].lines[0], true);

		if (st != COLL_OK)
			return st;
	}
	/* Of a later turn: it has made them all. */
	return atomic_load_explicit(&theirs->steps, memory_order_acquire) >
	                       (n->epoch << COLL_STEP_BITS | (s->next - AHEAD))
	               ? COLL_OK
	               : COLL_AGAIN;
}

static coll_status enter(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const coll_status st = coll_intra_enter_as(n, s, true);

	if (st == COLL_OK)
		coll_intra_publish(n, job, s); /* readers are told with the first step */
	return st;
}

static void begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const size_t bytes = job->in.count * job->elem_bytes;

	s->way = COLL_WAY_PAIR_STREAM;
	s->committed = true;
	s->phase = INTRA_CICO;
	s->done = s->next = 0;
	s->piece = coll_intra_chunk(bytes / 2);
	s->pieces = (uint32_t)((bytes + 2 * s->piece - 1) / (2 * s->piece));
	/* What has just been read is in the cache and is overwritten there. */
	if (job->in.base == job->out.base)
		coll_intra_nt_none(n);
	else
		coll_intra_nt_begin(n, COLL_NT_STAGED, 2 * bytes);
}

/* Some steps at a time: whoever polls looks at other things in between. */
coll_status coll_intra_poll_pair_reduce(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_status st = COLL_OK;

	s->pending = (uint32_t)!n->rank;
	if (s->phase == INTRA_CICO_NEW)
		st = enter(n, job, s);
	if (st == COLL_OK && s->phase != INTRA_CICO)
		begin(n, job, s);
	for (int i = 0; i < POLL_STEPS && st == COLL_OK && s->next < s->pieces + 2 * AHEAD; i++) {
		st = coll_intra_look(n, job, s, ready);
		if (st == COLL_OK)
			make_step(n, job, s);
	}
	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	if (s->next < s->pieces + 2 * AHEAD)
		return COLL_AGAIN;
	if (n->nt.choice.stream)
		coll_reduce_fence();
	coll_intra_nt_end(n);
	n->all = s->epoch;
	n->direct.stats.streamed_in += job->in.count * job->elem_bytes;
	return COLL_OK;
}
