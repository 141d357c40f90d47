/*
 * Two ranks, a long broadcast in plain memory.
 */
#ifndef COLL_INTRA_PAIR_BCAST_H
#define COLL_INTRA_PAIR_BCAST_H

#include "intra/enter.h"

/* pair_bcast.c: a broadcast of two ranks; phases as those of cico.c. */
bool coll_intra_pair_bcast_serves(const struct coll_intra *n, const struct coll_job *job);
coll_status coll_intra_poll_pair_bcast(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);

#endif
