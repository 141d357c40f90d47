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
	COLL_ALGO_LINKS = 1 << 3,    /* only chosen where ranks of several hosts have links of their own */
	COLL_ALGO_SHORT = 1 << 4, /* goes through one rank of each host: chosen for short vectors, and only for them */
	COLL_ALGO_MESH = 1 << 5,  /* every two ranks exchange frames, so each pair opens a link: cost.c */
	COLL_ALGO_CHAIN =
	        1 << 6, /* from host to host: also serves hosts of one rank, whose layout no other row reads */
};

/*
 * What an algorithm costs for n ranks, the worst root taken. S is one vector
 * (vector kinds) or one block (block kinds).
 */
struct coll_algo_cost {
	double rounds;   /* the longest chain of frames, as coll_plan_rounds() counts */
	double frames;   /* sent plus received, by the busiest rank */
	double sent;     /* multiples of S that the busiest rank sends */
	double received; /* ... that the busiest rank receives */
	double reduced;  /* ... that the busiest rank reduces: operands beyond the first */
	double copied;   /* ... that the busiest rank stores without reducing: receives and copies */
	double frame;    /* the largest frame, in multiples of S */
	double scratch;  /* scratch memory of the hungriest rank, in multiples of S */
	double aside;    /* copied before it is sent, where the call is in place */
	/* Of all ranks together; 0: what the busiest one does, n times. */
	double all_frames;
	double all_sent;
};

/* What the busiest host, and the busiest group of level 0 (a site, or a host), sends or receives over links, in
 * multiples of S, the worst root taken. */
struct coll_algo_links {
	double host, outermost;
};

struct coll_algo {
	enum coll_kind kind;
	const char *name; /* "ring": COLL_ALGO=ring, or COLL_ALGO=all_reduce:ring,broadcast:tree */
	unsigned flags;
	int max_size; /* 0: any number of ranks */
	coll_algo_fn generate;
	/* Price tag for n ranks, in closed form: no plan is built. NULL: the row needs a layout. */
	void (*cost)(int n, struct coll_algo_cost *cost);
	/* The same for a layout, of rows that read it: what a rank does within its host, what it does between hosts,
	 * and over links. NULL: the row takes no notice of layouts. */
	void (*split)(const struct coll_layout *layout, struct coll_algo_cost *inside, struct coll_algo_cost *between,
	              struct coll_algo_links *links);
};

extern const struct coll_algo coll_algos[];
extern const size_t coll_algos_count;

/* The price tag of a row for n ranks and their layout (NULL: none), inside and between hosts together. */
void coll_algo_cost(const struct coll_algo *algo, int n, const struct coll_layout *layout, struct coll_algo_cost *cost);

/* NULL when there is no such row. */
const struct coll_algo *coll_algo_find(enum coll_kind kind, const char *name);

#endif
