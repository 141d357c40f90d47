/*
 * The shortest call.
 */
#ifndef COLL_CALL_FASTPATH_H
#define COLL_CALL_FASTPATH_H

#include "core/comm.h"

/* What is prepared (job, of memo) may be called on the shortest way from now on. */
void coll_fastpath_prepare(struct coll_comm *comm, const struct coll_call *call, struct coll_memo *memo,
                           const struct coll_job *job);

#endif
