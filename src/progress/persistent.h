/*
 * Persistent operations.
 */
#ifndef COLL_PROGRESS_PERSISTENT_H
#define COLL_PROGRESS_PERSISTENT_H

#include "progress/async.h"

/* An operation that makes this call each time it is started. Collective: all ranks compare what they prepare. call is
 * copied, with its arrays of counts; its buffers are the caller's. */
coll_status coll_operation_make(struct coll_comm *comm, const struct coll_call *call, struct coll_operation **out);

/* Start the run of an operation for its request. */
coll_status coll_operation_run(struct coll_request *r);

/* Noted in a group so far. */
void coll_operation_leaves_group(struct coll_request *r);

/* Its request is the caller's again. */
void coll_operation_ended(struct coll_request *r);

/* The communicator goes; its operations stay as empty shells. */
void coll_operations_orphan(struct coll_comm *comm);

/* What was started inline becomes a request like others. */
void coll_operation_hand_over(struct coll_comm *comm);

/* The same of all that this thread has started inline on communicators of the context: it
 * waits for something else there, and other ranks may wait for these. */
void coll_operations_sweep(struct coll_context *ctx);

#endif
