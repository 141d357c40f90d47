/*
 * Blocks in plain memory, read by the kernel where that is quicker than slots; private to src/intra but for the poll.
 */
#ifndef COLL_INTRA_CMA_H
#define COLL_INTRA_CMA_H

#include "intra/enter.h"

/* UNSUPPORTED: the call goes by slots, on all ranks; n->pull.way says how these are stored. */
coll_status coll_intra_poll_cma(void *arg, const struct coll_job *job, struct coll_intra_state *s);
/* A call by slots has ended well that was part of a trial. */
void coll_intra_cma_ended(struct coll_intra *n, const struct coll_job *job);

#endif
