/*
 * Race: what one plan can be checked for without its peers.
 *
 * Well-formed steps, buffers that this rank really has, chunks within extents,
 * flags where they belong, bounds that are true, and every two accesses of one
 * place, one of them a write, ordered by lanes and waits. `in` and `out` count
 * as one buffer.
 */
#ifndef COLL_PROOF_RACE_H
#define COLL_PROOF_RACE_H

#include "proof/replay.h"

coll_status coll_race_check(const struct coll_plan *plan, const struct coll_model *model, char *why, size_t why_bytes);

#endif
