/*
 * One blocking collective call.
 */
#ifndef COLL_CALL_BLOCKING_H
#define COLL_CALL_BLOCKING_H

#include "core/comm.h"

/* Make one collective call. Inside a group the call is only noted. */
coll_status coll_comm_call(struct coll_comm *comm, const struct coll_call *call);

/* The first half of a call: starts comm->run and makes comm->call its record. The code that polls
 * the run to its end retires the record. Nothing else may run on the communicator. */
coll_status coll_comm_begin(struct coll_comm *comm, const struct coll_call *call);

#endif
