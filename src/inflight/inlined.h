/*
 * The operation of a communicator that was started inline.
 */
#ifndef COLL_INFLIGHT_INLINED_H
#define COLL_INFLIGHT_INLINED_H

#include "core/comm.h"

/* Its request; NULL: there is none. */
static inline struct coll_request *coll_inlined_current(const struct coll_comm *comm)
{
	return atomic_load_explicit(&comm->inflight.current, memory_order_acquire);
}

/* From here on only this thread may touch it: see inlined.c. */
void coll_inlined_become_starter(struct coll_comm *comm);
/* A request has been started inline by this thread, which is the starter. */
void coll_inlined_set(struct coll_request *r);

/* Turn the operation that was started inline into an ordinary request. */
void coll_inlined_hand_over(struct coll_comm *comm);

/* The same for all operations that this thread has started inline on communicators of the context.
 * The thread waits for something else there, and other ranks may wait for these operations. */
void coll_inlined_sweep(struct coll_context *ctx);

#endif
