/*
 * The table of algorithms: one row per (collective, generator).
 */
#ifndef COLL_ALGOS_ALGOS_H
#define COLL_ALGOS_ALGOS_H

#include "plan/build.h"

enum coll_algo_flag {
	COLL_ALGO_ORDERED = 1 << 0,  /* keeps rank order of operands: usable for non-commutative ops */
	COLL_ALGO_RAGGED = 1 << 1,   /* block kinds: works when blocks differ in length and all know all lengths */
	COLL_ALGO_PAIRWISE = 1 << 2, /* block kinds: works when only the two ends of a step know its length */
};

struct coll_algo {
	enum coll_kind kind;
	const char *name; /* "ring": COLL_ALGO=ring, or COLL_ALGO=all_reduce:ring,broadcast:tree */
	unsigned flags;
	int max_size; /* 0: any number of ranks */
	coll_algo_fn generate;
	/* Cost model inputs (closed form, no plan is built). For n ranks and a vector
	 * (or block, for block kinds) of S bytes: rounds = messages one after the
	 * other on the critical path; sent = multiples of S that the busiest rank
	 * sends; reduced = multiples of S that the busiest rank reduces. */
	void (*cost)(int n, double *rounds, double *sent, double *reduced);
};

extern const struct coll_algo coll_algos[];
extern const size_t coll_algos_count;

/* NULL when there is no such row. */
const struct coll_algo *coll_algo_find(enum coll_kind kind, const char *name);

#endif
