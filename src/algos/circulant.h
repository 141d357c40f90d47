/*
 * The two phases on the circulant graph that several collectives are made of.
 *
 * J. L. Traff, Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms
 * (arXiv 2410.14234). The skips are n, ceil(n/2), ceil(n/4) ... 1. Blocks are
 * counted from the own one: block j of rank r is block (r + j) mod n. In a round
 * of the reduce-scatter with skip s (previous skip p) a rank sends its blocks
 * [s, p) forward by s ranks, where they are blocks [0, p - s), and adds what it
 * gets from s ranks back to its own first p - s blocks:
 *
 *     n = 5, skips 5 3 2 1        own blocks   0 1 2 3 4
 *     skip 3: send 3 4, add to 0 1              . . . s s
 *     skip 2: send 2,   add to 0                . . s
 *     skip 1: send 1,   add to 0                . s
 *
 * ceil(log2 n) rounds, n-1 blocks sent by each rank, for every n: both optimal.
 * The all-gather is the same way back. The reduction combines blocks round the
 * circle, so it is for commutative operations.
 *
 * With a layout each phase runs on the rings of one stage after the other, see levels.h: the reduce-scatter
 * from the innermost outwards, the all-gather back. "Own block" then means what the rank owns in
 * the ring. Block kinds on uneven groups go round the ring between hosts instead, see coll_levels_round().
 */
#ifndef COLL_ALGOS_CIRCULANT_H
#define COLL_ALGOS_CIRCULANT_H

#include "algos/levels.h"

/* Reduce all of `in`. Partial sums live in buffer acc (COLL_BUF_OUT or a scratch buffer) under their
 * chunk ids; `in` is read there where it is touched first. final: what this rank owns at the end is the
 * result and goes to `out`; else it is in acc, or still in `in` if *raw (may be NULL): no ring had a second member. */
coll_status coll_circulant_reduce_scatter(struct coll_levels *v, struct coll_builder *b, uint8_t acc, bool final,
                                          bool *raw);

/* From what this rank owns in `out` to all chunks in out. own_in: it is this rank's one block, still in `in`, and the
 * copy to `out` is made on the way. root: a rank that has all chunks in `in` and needs none; -1: no such rank. */
coll_status coll_circulant_all_gather(struct coll_levels *v, struct coll_builder *b, bool own_in, int root);

#endif
