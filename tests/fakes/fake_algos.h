/*
 * A table of a few algorithms with round prices. By kind, in the order of the table:
 *
 *   all_reduce  quick   1 round,  sends 4 S
 *               lean    2 rounds, sends 1 S
 *               few     as quick, no more than 4 ranks, keeps the order of operands
 *   all_gather  uniform 1 round,  sends 1 S
 *               ragged  2 rounds, sends 1 S; blocks may differ
 *               links   1 round,  sends 1/2 S; only where hosts have links
 */
#ifndef COLL_FAKES_FAKE_ALGOS_H
#define COLL_FAKES_FAKE_ALGOS_H

#include "algos/algos.h"

enum { FAKE_QUICK, FAKE_LEAN, FAKE_FEW, FAKE_UNIFORM, FAKE_RAGGED, FAKE_LINKS, FAKE_ALGOS };

#endif
