/*
 * Every row that reads the layout, proved and counted for many layouts. Shared by coll-plan verify --layouts and
 * the test of it.
 */
#ifndef COLL_TOOLS_LAYOUT_SWEEP_H
#define COLL_TOOLS_LAYOUT_SWEEP_H

struct layout_sweep {
	int most;        /* every factorisation in 2 to 4 levels of every n up to this, and n hosts of one rank */
	int randoms;     /* and so many random uneven layouts */
	int random_most; /* of up to so many ranks */
	int threads;
};

struct layout_sweep_result {
	long layouts, plans, failed;
};

/*
 * All roots up to 12 ranks, else four; ranks numbered in order of places and at random. Proves what coll-plan verify
 * proves, and counts. Even layouts: each group at each level sends and receives exactly its bound (all_reduce,
 * reduce_scatter, all_gather), in no more rounds than 2 (ceil(log2 n) + levels), half for the one-way
 * kinds; broadcast and reduce: at most the vector once into and out of each host. Uneven
 * layouts: each host exactly its bound. A failure is printed, one line each.
 */
struct layout_sweep_result layout_sweep_run(const struct layout_sweep *sweep);

#endif
