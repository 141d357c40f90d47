/*
 * Two ranks, an all_reduce of a long vector in plain memory.
 */
#ifndef COLL_INTRA_PAIR_REDUCE_H
#define COLL_INTRA_PAIR_REDUCE_H

#include "intra/enter.h"

/* pair_reduce.c, pair_stream.c: the same of two ranks, an all_reduce and the others. */
bool coll_intra_pair_reduce_serve(const struct coll_intra *n, const struct coll_job *job);
coll_status coll_intra_poll_pair_reduce(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);

#endif
