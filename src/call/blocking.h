/*
 * One collective call.
 */
#ifndef COLL_CALL_BLOCKING_H
#define COLL_CALL_BLOCKING_H

#include "core/comm.h"

/* Inside a group: nothing but noted. */
coll_status coll_comm_call(struct coll_comm *comm, const struct coll_call *call);

/* Its first half: comm->run is started, comm->call is its record; whoever polls the run
 * to its end retires the record. Of a communicator on which nothing runs. */
coll_status coll_comm_begin(struct coll_comm *comm, const struct coll_call *call);

#endif
