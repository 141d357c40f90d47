/*
 * Blocks in plain memory: by slots, or read by the kernel; private to src/intra.
 */
#ifndef COLL_INTRA_CMA_H
#define COLL_INTRA_CMA_H

#include "intra/enter.h"

/* Phases behind INTRA_CICO: of pair_stream.c and cico.c, and of cma.c from INTRA_CMA_NEW on. */
enum { INTRA_SLOTS_NEW = INTRA_CICO + 1, INTRA_CMA_NEW };

/* Whether such a call has several ways: n->pull.way says then how it goes. */
bool coll_intra_cma_serves(const struct coll_intra *n, const struct coll_job *job);
/* In all phases but INTRA_CICO, and of all calls. It may come to INTRA_SLOTS_NEW, on all ranks, whatever it
 * says. */
coll_status coll_intra_poll_cma(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);
/* A call by slots has ended well. */
void coll_intra_cma_ended(struct coll_intra *n, const struct coll_job *job);

#endif
