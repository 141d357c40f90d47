/*
 * The fast path of small intranode calls.
 */
#ifndef COLL_CALL_FASTPATH_H
#define COLL_CALL_FASTPATH_H

#include "core/comm.h"

/* From now on, calls like the prepared one (its job and memo) may take the fast path. */
void coll_fastpath_prepare(struct coll_comm *comm, const struct coll_call *call, struct coll_memo *memo,
                           const struct coll_job *job);

#endif
