/*
 * Two ranks, more than a few lines: each copies what the other needs to a place, piece by piece,
 * and takes the other's from another place, when it is there.
 *
 * The two places, one in the region of each rank, change hands with every operation: what a rank
 * has read it writes next. Its lines are in this core's cache then, and are written at once;
 * a place that always the same rank writes would have to be fetched back from its reader first,
 * line by line, which is half of all that moves (measured: 1.9 times the time at 4 KiB, 2.3 at 32).
 *
 * Ordering. Operation number k (n->exchanges, alike on both ranks) is written by rank r to place
 * (k + r) % 2, and read from the other. A piece is stored, then its word with release; it is awaited with
 * acquire, then read. A rank writes to a place what it has read completely in the operation
 * before, so nobody reads there any more; the other reads it again only after this
 * operation's word, which is new: it has the number of the epoch. So there is no evidence to look for, and
 * one place for each direction is enough. epoch_model_test.c has it as EXCHANGE.
 */
#include "intra/pair_swap.h"

#include "intra/enter.h"
#include "reduce/copy.h"

struct coll_exchange coll_intra_exchange(const struct coll_intra *n, const struct coll_job *job)
{
	const size_t bytes = job->in.count * job->elem_bytes;
	const size_t mine = (size_t)n->rank * bytes, others = (size_t)!n->rank * bytes;
	const char *in = job->in.base;
	char *out = job->out.base;

	switch (job->plan->kind) {
	case COLL_KIND_REDUCE_SCATTER: return (struct coll_exchange){in + others, in + mine, NULL, out, bytes, true};
	case COLL_KIND_ALL_GATHER: return (struct coll_exchange){in, in, out + mine, out + others, bytes, false};
	case COLL_KIND_ALL_TO_ALL:
		return (struct coll_exchange){in + others, in + mine, out + mine, out + others, bytes, false};
	default: return (struct coll_exchange){in, in, NULL, out, bytes, true};
	}
}

/* A region, of whoever: the peer's is mapped to be written, too, for this. */
static struct intra_region *place_of(const struct coll_intra *n, const struct coll_intra_state *s, int rank)
{
	return coll_intra_region(n, (int)(s->cell + (uint32_t)rank) % 2);
}

static coll_status begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                         const struct coll_exchange *e)
{
	const coll_status st = coll_intra_enter_once(n, job, s); /* for who makes a different call: it looks there */
	struct intra_region *place;

	if (unlikely(st != COLL_OK))
		return st;
	s->cell = (uint32_t)(n->exchanges++ % 2);
	place = place_of(n, s, n->rank);
	coll_intra_put(job, s, place->exchange.pieces, coll_intra_cell(n, place, COLL_CELLS), e->send, e->bytes);
	coll_intra_nudge(n);
	if (e->own_to)
		coll_reduce_copy(e->own_to, e->own, e->bytes);
	return COLL_OK;
}

static void take(const struct coll_intra *n, const struct coll_job *job, const struct coll_exchange *e,
                 const char *theirs, size_t at, size_t bytes)
{
	const void *src[2];

	if (!e->joins) {
		coll_intra_copy_lines(e->to + at, theirs + at, bytes);
		return;
	}
	src[n->rank] = e->own + at;
	src[!n->rank] = theirs + at;
	coll_reduce_run(job->reduction, e->to + at, src, 2, -1, true, bytes / job->elem_bytes);
}

coll_status coll_intra_poll_pair_swap(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	const struct coll_exchange e = coll_intra_exchange(n, job);
	const size_t piece = coll_intra_piece(e.bytes);
	const struct intra_region *place;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_PAIR_SWAP;
		st = begin(n, job, s, &e);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
	}
	place = place_of(n, s, !n->rank);
	/* All of ours is written before anything of the other's is taken: they may be in place. */
	for (size_t at = s->done * piece; at < e.bytes; at += piece) {
		st = coll_intra_await(n, job, s, &place->exchange.pieces[s->done], true);
		if (unlikely(st != COLL_OK)) {
			s->pending = (uint32_t)!n->rank;
			return coll_intra_not_yet(n, s, st);
		}
		take(n, job, &e, coll_intra_cell(n, place, COLL_CELLS), at, coll_intra_piece_at(e.bytes, at, piece));
		s->done++;
		s->events++;
	}
	n->all = s->epoch;
	return COLL_OK;
}
