/*
 * Schedules that broadcast any number of blocks in the fewest rounds, on a circulant graph.
 *
 * J. L. Traff, Optimal Broadcast Schedules in Logarithmic Time with Applications to Broadcast,
 * All-Broadcast, Reduction and All-Reduction (arXiv 2407.18004). With q = ceil(log2 n) and skips
 * n, ceil(n/2), ceil(n/4) ... 1 = skip[0], every rank r sends to r + skip[k] and receives from
 * r - skip[k] in round k, modulo q, and in q rounds it receives q different blocks. Ranks
 * count from the root. Block b of a schedule, that is in round k of phase 0, is block b + q t
 * in phase t; negative ones belong to the phase before.
 *
 * A rank's base block is the one that reaches it in phase 0: the last skip of the greedy way
 * from the root, largest skips first. In each round it receives the base block of a rank on whose
 * way it lies and whose base block it has not yet: the first that a search finds in decreasing skips.
 */
#ifndef COLL_ALGOS_BLOCKS_H
#define COLL_ALGOS_BLOCKS_H

#include <stdint.h>

enum { COLL_BLOCKS_ROUNDS_MAX = 31 };

struct coll_blocks_graph {
	int n, q;
	int64_t skip[COLL_BLOCKS_ROUNDS_MAX + 1]; /* ascending; skip[q] = n */
};

/* n >= 2. */
void coll_blocks_graph(struct coll_blocks_graph *g, int n);

/* What rank r receives in round k: O(log n). The root's is what it would receive. */
void coll_blocks_received(const struct coll_blocks_graph *g, int r, int8_t block[COLL_BLOCKS_ROUNDS_MAX]);

/* What rank r sends in round k: O(log n), by rules that leave at most four rounds open (returned:
 * how many), for which it is asked what the peer receives. */
int coll_blocks_sent(const struct coll_blocks_graph *g, int r, int8_t block[COLL_BLOCKS_ROUNDS_MAX]);

#endif
