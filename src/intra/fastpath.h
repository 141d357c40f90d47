/*
 * The shortest call: of two ranks, one line each way, from the beginning to the end in the
 * caller's thread, with no state but the epoch. What does not end at once goes on as any
 * intranode operation, from where this has left it.
 */
#ifndef COLL_INTRA_FASTPATH_H
#define COLL_INTRA_FASTPATH_H

#include "intra/enter.h"

static inline bool coll_intra_is_formed(const struct coll_intra *n)
{
	return n->verdict == INTRA_GOOD;
}

/* Our line, if it can be written at once: nobody reads it any more. NULL: not now. */
static inline struct intra_line *coll_intra_fastpath_line(struct coll_intra *n, uint32_t *epoch)
{
	const uint32_t t = (uint32_t)n->epoch + 1;

	/* Of two ranks the other's evidence is never more than an epoch old, but after rooted ones. */
	if (unlikely(!n->quick_mine) || unlikely(!coll_intra_reached(n->all, t - COLL_DEPTH + 1)))
		return NULL;
	*epoch = t;
	return &n->quick_mine[t % COLL_DEPTH].lines[0];
}

/* The line is full: it goes. */
static inline void coll_intra_fastpath_send(struct coll_intra *n, struct intra_line *line, uint64_t sequence,
                                            uint64_t word)
{
	line->sequence = sequence;
	/* Release: a reader that sees the word sees all of the line. */
	atomic_store_explicit(&line->word, word, memory_order_release);
	n->epoch++;
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(__atomic_load_n(n->quick_asleep, __ATOMIC_RELAXED)))
		n->peers[!n->rank].transport->shared->nudge(n->peers[!n->rank].link);
}

static inline const struct intra_line *coll_intra_fastpath_theirs(const struct coll_intra *n, uint32_t epoch)
{
	return &n->quick_theirs[epoch % COLL_DEPTH].lines[0];
}

static inline void coll_intra_fastpath_end(struct coll_intra *n, uint32_t epoch)
{
	n->all = epoch;
}

/* Where it goes on as any other. */
static inline struct coll_intra_state coll_intra_fastpath_state(uint32_t epoch)
{
	return (struct coll_intra_state){
	        .phase = INTRA_BEGUN, .epoch = epoch, .events = 1, .way = COLL_WAY_EAGER_LINE, .committed = true};
}

#endif
