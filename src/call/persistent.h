/*
 * Persistent operations.
 */
#ifndef COLL_CALL_PERSISTENT_H
#define COLL_CALL_PERSISTENT_H

#include "inflight/async.h"

/* Create an operation that makes this call each time it is started. Collective: all ranks compare
 * what they prepare. Copies the call and its count arrays; the buffers stay the caller's. */
coll_status coll_operation_make(struct coll_comm *comm, const struct coll_call *call, struct coll_operation **out);

/* The communicator is being destroyed. Its operations release all they own and stay as empty
 * objects. */
void coll_operations_orphan(struct coll_comm *comm);

#endif
