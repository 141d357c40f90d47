/*
 * Choice: from agreed facts to an algorithm, a tile and a window count.
 * Closed-form costs; never builds a plan; the same inputs give the same answer
 * on every rank.
 */
#ifndef COLL_SELECT_SELECT_H
#define COLL_SELECT_SELECT_H

#include "algos/algos.h"
#include "core/select_facts.h"

struct coll_select_call {
	enum coll_kind kind;
	size_t count; /* elements: of the vector, or of the (largest known) block */
	size_t elem_bytes;
	bool ordered;
	bool ragged;   /* v-variant whose lengths all ranks know */
	bool pairwise; /* v-variant whose lengths only the ends know */
};

struct coll_select_choice {
	const struct coll_algo *algo;
	double cost_ns;
	uint32_t windows;  /* the most tiles worth having in flight */
	size_t tile_bytes; /* no longer tiles; 0: as long as slots allow */
	bool forced;       /* by COLL_ALGO */
	char why[160];     /* one line for humans: the winner and the runner-up */
};

/* The layout that a row reads; NULL: none. */
static inline const struct coll_layout *coll_select_layout(const struct coll_select_facts *f, const struct coll_algo *a)
{
	return !f->layout && (a->flags & COLL_ALGO_CHAIN) ? f->chain : f->layout;
}

/* COLL_ERR_CONFIG when COLL_ALGO names an unknown algorithm or one that cannot
 * serve this call. why == NULL inside choice is never read on failure. explain:
 * fill choice->why (costs time). */
coll_status coll_select_plan(const struct coll_select_facts *facts, const struct coll_select_call *call, bool explain,
                             struct coll_select_choice *choice);

#endif
