/*
 * The shortest call: of two ranks, one line each way, from the beginning to the end in the
 * caller's thread, with no state but the turn. What does not end at once goes on as any
 * operation made by hand, from where this has left it.
 */
#ifndef COLL_NATIVE_QUICK_H
#define COLL_NATIVE_QUICK_H

#include "intra/enter.h"

static inline bool coll_native_is_formed(const struct coll_native *n)
{
	return n->verdict == NATIVE_GOOD;
}

/* Our line, if it can be written at once: nobody reads it any more. NULL: not now. */
static inline struct native_line *coll_native_quick_line(struct coll_native *n, uint32_t *turn)
{
	const uint32_t t = (uint32_t)n->turn + 1;

	/* Of two ranks the other's evidence is never more than a turn old, but after rooted ones. */
	if (unlikely(!n->quick_mine) || unlikely(!coll_native_reached(n->all, t - COLL_DEPTH + 1)))
		return NULL;
	*turn = t;
	return &n->quick_mine[t % COLL_DEPTH].lines[0];
}

/* The line is full: it goes. */
static inline void coll_native_quick_send(struct coll_native *n, struct native_line *line, uint64_t sequence,
                                          uint64_t word)
{
	line->sequence = sequence;
	/* Release: a reader that sees the word sees all of the line. */
	atomic_store_explicit(&line->word, word, memory_order_release);
	n->turn++;
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(__atomic_load_n(n->quick_asleep, __ATOMIC_RELAXED)))
		n->peers[!n->rank].transport->nudge(n->peers[!n->rank].link);
}

static inline const struct native_line *coll_native_quick_theirs(const struct coll_native *n, uint32_t turn)
{
	return &n->quick_theirs[turn % COLL_DEPTH].lines[0];
}

static inline void coll_native_quick_end(struct coll_native *n, uint32_t turn)
{
	n->all = turn;
}

/* Where it goes on as any other. */
static inline struct coll_hand_state coll_native_quick_state(uint32_t turn)
{
	return (struct coll_hand_state){
	        .phase = NATIVE_BEGUN, .turn = turn, .events = 1, .way = COLL_WAY_EAGER_LINE, .committed = true};
}

#endif
