/*
 * Recursive doubling among the members of a team: partners at distance 1, 2, 4 ... exchange their whole partial
 * sums. Any n: extra members are folded first (see ranks.h). Keeps the order of members, because the
 * groups are contiguous; both partners combine the same operands in the same order, so results are
 * bitwise equal.
 *
 *     {0} {1} {2} {3}  ->  {01} {01} {23} {23}  ->  {0123} x 4
 *
 * Each round reduces from one buffer to another (sum, scratch 0, scratch 1, scratch 0 ... out), so that no
 * receive waits for a send of its own round: two partners that both did would wait for each other.
 */
#ifndef COLL_ALGOS_DOUBLING_H
#define COLL_ALGOS_DOUBLING_H

#include "plan/build.h"

/* Member `me` of n > 1, whose ranks are in ranks (NULL: 0 .. n - 1). Its operand, chunk 0, lies at sum: `in` or a
 * scratch buffer from 2 on. The result goes to out. The operands of members before i hold before[i] contributions, n +
 * 1 entries (NULL: one each). */
void coll_doubling(struct coll_builder *b, int n, int me, const int *ranks, const uint32_t *before, struct coll_at sum);

#endif
