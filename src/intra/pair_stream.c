/*
 * Two ranks, long messages in plain memory: all_gather, reduce_scatter and all_to_all, chunk by
 * chunk through slots that change hands. (An all_reduce: pair_reduce.c.)
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
 * Ordering. A chunk is stored, then `steps` (turn << COLL_STEP_BITS | chunks sent) with release; the
 * other loads it with acquire, then reads. A rank's stores to a slot come after its own loads of it, in one
 * thread. Of chunk k nothing is stored to the result before chunk k has been sent: they may be the
 * same memory. An operation ends when all chunks are sent and taken; the last of them are read by the other
 * later, in slots, which are not written before it has.
 *
 * Only their owner reads or writes the caller's buffers: a call may fail at any moment.
 */
#include <assert.h>

#include "intra/cma.h"
#include "intra/nt_stores.h"
#include "intra/pair_stream.h"
#include "intra/pair_swap.h"
#include "intra/stream_kernel.h"
#include "reduce/copy.h"

enum { AHEAD = 2 };
_Static_assert((int)AHEAD < (int)COLL_RING_SLOTS, "a chunk is sent before the one of SLOTS before it has been read");

/* What pair_swap.c does not. */
bool coll_intra_pair_stream_serves(const struct coll_intra *n, const struct coll_job *job)
{
	const enum coll_kind kind = job->plan->kind;
	const size_t bytes = job->in.count * job->elem_bytes;

	if (n->size != 2 || bytes / COLL_PAIR_SLOT_BYTES >= (1 << COLL_STEP_BITS) - 4 || bytes < COLL_PAIR_STREAM_MIN)
		return false;
	if (kind != COLL_KIND_ALL_GATHER && kind != COLL_KIND_REDUCE_SCATTER && kind != COLL_KIND_ALL_TO_ALL)
		return false;
	return !coll_intra_serves(kind, 2, false, job->in.count, job->elem_bytes, n->payload_bytes);
}

/* Of chunk k as the rank `writer` sends it. */
static char *slot_of(const struct coll_intra *n, uint32_t k, int writer)
{
	const uint64_t c = n->streamed_in + k;

	return coll_intra_slot(n, COLL_RING_SHUTTLE, c, (int)(c / COLL_RING_SLOTS + (uint64_t)writer) % 2);
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
		atomic_store_explicit(&n->mine->steps, n->epoch << COLL_STEP_BITS | s->next, memory_order_release);
		coll_intra_nudge(n);
	}
	if (takes) {
		s->done++;
		s->events++;
	}
}

/* The other's next chunk is there; before the first one it is known to make the same call. */
static coll_status sent(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct intra_region *theirs = n->peers[!n->rank].region;

	if (s->done == 0) {
		const coll_status st = coll_intra_check(job, s, &theirs->entries[s->epoch % COLL_DEPTH].lines[0], true);

		if (st != COLL_OK)
			return st;
	}
	/* Of a later turn: it has sent them all. */
	return atomic_load_explicit(&theirs->steps, memory_order_acquire) > (n->epoch << COLL_STEP_BITS | s->done)
	               ? COLL_OK
	               : COLL_AGAIN;
}

static void begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct coll_exchange e = coll_intra_exchange(n, job);

	s->way = COLL_WAY_PAIR_STREAM;
	s->phase = INTRA_CICO;
	s->done = s->next = 0;
	s->piece = coll_intra_chunk(e.bytes);
	s->pieces = (uint32_t)((e.bytes + s->piece - 1) / s->piece);
	if (coll_intra_cma_serves(n, job))
		coll_intra_nt_as(n, coll_intra_streams(n->pull.way));
	/* What has just been read is in the cache and is overwritten there. */
	else if (e.own == e.to)
		coll_intra_nt_none(n);
	else
		coll_intra_nt_begin(n, COLL_NT_STAGED, 2 * e.bytes);
}

/* One chunk each way. Two are sent ahead, so that the other's is there as a rule. */
static coll_status step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_status st;

	while (s->next < s->pieces && s->next < s->done + AHEAD)
		move(n, job, s, true, false);
	st = coll_intra_look(n, job, s, sent);
	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	assert(s->done < s->next);
	move(n, job, s, s->next < s->pieces, true);
	return COLL_OK;
}

coll_status coll_intra_poll_pair_stream(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_status st;

	s->pending = (uint32_t)!n->rank;
	if (s->phase != INTRA_CICO) {
		st = coll_intra_poll_cma(n, job, s);
		if (s->phase != INTRA_SLOTS_NEW)
			return st;
		begin(n, job, s);
	}
	st = coll_intra_step_some(n, job, s, step);
	if (st != COLL_OK)
		return st;
	if (n->nt.choice.stream)
		coll_reduce_fence();
	coll_intra_nt_end(n);
	n->all = s->epoch;
	n->streamed_in += s->pieces;
	n->direct.stats.streamed_in += job->in.count * job->elem_bytes;
	coll_intra_cma_ended(n, job);
	return COLL_OK;
}
