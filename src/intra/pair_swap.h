/*
 * Two ranks, more than a few lines.
 */
#ifndef COLL_INTRA_PAIR_SWAP_H
#define COLL_INTRA_PAIR_SWAP_H

#include "intra/enter.h"

struct coll_exchange coll_intra_exchange(const struct coll_intra *n, const struct coll_job *job);

/* Polls of the operations: eager_line.c, eager_chunk.c, eager_block.c, pair_swap.c, eager_bcast.c. */
coll_status coll_intra_poll_pair_swap(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
