/*
 * Two ranks, a long broadcast in plain memory: the root fills slots, chunk by chunk, and the other empties them, so
 * that both cores copy at the same time.
 *
 * There are SLOTS slots, in the region of rank 0. Chunks are counted over all operations, whichever rank is root;
 * chunk c lies in slot c % SLOTS. Each rank has two words in its own region: how many chunks have gone when it filled
 * one last (`poured`), and when it emptied one last (`drained`). A root may be as many chunks ahead as there are slots,
 * in this operation or a later one: nobody waits for the end of the other.
 *
 * Ordering. A chunk is stored, then poured with release; the other loads it with acquire, then reads the chunk, then
 * stores drained with release; the root loads that with acquire before it stores chunk c + SLOTS. Chunks that this rank
 * has read itself need no such evidence: it was their only reader. Those are all before `chute_run`, the first
 * one of the operations since this rank was not the root. A count of an earlier operation is never taken for one of a
 * later: they only grow. pair_bcast_model_test.c explores it.
 *
 * Only their owner reads or writes the caller's buffers: a call may fail at any moment.
 */
#include "intra/pair_bcast.h"

#include "intra/enter.h"
#include "intra/nt_stores.h"
#include "reduce/copy.h"

enum { SLOTS = 4 };
/* Where more than two ranks have tiles, behind what pair_stream.c has there. */
enum { SLOTS_AT = (COLL_TILE_AREAS - 2) * (COLL_TILE_BYTES + COLL_AREA_GAP) };
_Static_assert(SLOTS *(COLL_BCAST_SLOT_BYTES + COLL_AREA_GAP) <= 2 * (COLL_TILE_BYTES + COLL_AREA_GAP),
               "room for the slots");

static bool is_root(const struct coll_intra *n, const struct coll_job *job)
{
	return job->plan->root == n->rank;
}

static char *slot_of(const struct coll_intra *n, uint64_t chunk)
{
	return (char *)coll_intra_region(n, 0) + coll_intra_cico_at(n->payload_bytes) + SLOTS_AT +
	       chunk % SLOTS * (COLL_BCAST_SLOT_BYTES + COLL_AREA_GAP);
}

static coll_status begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const size_t bytes = coll_intra_block_bytes(job);
	const coll_status st = coll_intra_enter_once(n, job, s);

	if (st != COLL_OK)
		return st;
	coll_intra_nudge(n);
	s->way = COLL_WAY_PAIR_BCAST;
	s->phase = INTRA_OWN;
	s->done = 0;
	s->pieces = (uint32_t)((bytes + COLL_BCAST_SLOT_BYTES - 1) / COLL_BCAST_SLOT_BYTES);
	coll_intra_nt_slots(n, s, bytes, is_root(n, job));
	return COLL_OK;
}

/* Of the vector. */
struct part {
	size_t at, bytes;
};

static struct part part_of(const struct coll_job *job, const struct coll_intra_state *s)
{
	const size_t at = (size_t)s->done * COLL_BCAST_SLOT_BYTES, left = job->in.count * job->elem_bytes - at;

	return (struct part){at, left < COLL_BCAST_SLOT_BYTES ? left : COLL_BCAST_SLOT_BYTES};
}

static coll_status pour(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct intra_region *theirs = n->peers[!n->rank].region;
	const uint64_t chunk = n->chuted + s->done;
	const struct part p = part_of(job, s);

	if (chunk >= n->chute_run + SLOTS &&
	    atomic_load_explicit(&theirs->drained, memory_order_acquire) + SLOTS <= chunk)
		return COLL_AGAIN;
	coll_reduce_copy(slot_of(n, chunk), job->in.base + p.at, p.bytes);
	atomic_store_explicit(&n->mine->poured, chunk + 1, memory_order_release);
	coll_intra_nudge(n);
	coll_reduce_copy(job->out.base + p.at, job->in.base + p.at, p.bytes);
	return COLL_OK;
}

static coll_status drain(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct intra_region *theirs = n->peers[!n->rank].region;
	const uint64_t chunk = n->chuted + s->done;
	const struct part p = part_of(job, s);
	uint64_t since_ns;

	/* Before the first one it is known to make the same call. */
	if (s->done == 0) {
		const coll_status st = coll_intra_check(job, s, &theirs->entries[s->epoch % COLL_DEPTH].lines[0], true);

		if (st != COLL_OK)
			return st;
	}
	if (atomic_load_explicit(&theirs->poured, memory_order_acquire) <= chunk)
		return COLL_AGAIN;
	since_ns = coll_intra_nt_since(n);
	if (n->nt.choice.stream)
		coll_reduce_stream(job->out.base + p.at, slot_of(n, chunk), p.bytes);
	else
		coll_reduce_copy(job->out.base + p.at, slot_of(n, chunk), p.bytes);
	coll_intra_nt_until(n, since_ns);
	atomic_store_explicit(&n->mine->drained, chunk + 1, memory_order_release);
	coll_intra_nudge(n);
	return COLL_OK;
}

/* The next chunk: it is about to come, or to be taken. */
static coll_status step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const coll_status st = coll_intra_look(n, job, s, is_root(n, job) ? pour : drain);

	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	s->done++;
	s->events++;
	return COLL_OK;
}

static void end(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	n->chuted += s->pieces;
	if (is_root(n, job))
		return;
	n->chute_run = n->chuted;
	n->all = s->epoch;
	if (n->nt.choice.stream)
		coll_reduce_fence();
	coll_intra_nt_end(n);
	n->direct.stats.streamed_in += job->in.count * job->elem_bytes;
}

coll_status coll_intra_poll_pair_bcast(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st;

	s->pending = (uint32_t)!n->rank;
	if (s->phase != INTRA_OWN) {
		st = begin(n, job, s);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
	}
	st = coll_intra_step_some(n, job, s, step);
	if (st == COLL_OK)
		end(n, job, s);
	return st;
}
