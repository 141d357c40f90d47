/*
 * Persistent operations.
 */
#ifndef COLL_PROGRESS_PERSISTENT_H
#define COLL_PROGRESS_PERSISTENT_H

#include "progress/async.h"

/* Create an operation that makes this call each time it is started. Collective: all ranks compare
 * what they prepare. Copies the call and its count arrays; the buffers stay the caller's. */
coll_status coll_operation_make(struct coll_comm *comm, const struct coll_call *call, struct coll_operation **out);

/* Start the run of an operation for its request. */
coll_status coll_operation_run(struct coll_request *r);

/* The operation was noted in a group until now. */
void coll_operation_leaves_group(struct coll_request *r);

/* The request has ended. The caller may start the operation again. */
void coll_operation_ended(struct coll_request *r);

/* The communicator is being destroyed. Its operations release all they own and stay as empty
 * objects. */
void coll_operations_orphan(struct coll_comm *comm);

/* Turn the operation that was started inline into an ordinary request. */
void coll_operation_hand_over(struct coll_comm *comm);

/* The same for all operations that this thread has started inline on communicators of the context.
 * The thread waits for something else there, and other ranks may wait for these operations. */
void coll_operations_sweep(struct coll_context *ctx);

#endif
