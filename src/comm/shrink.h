/*
 * Shrinking a communicator to its living members.
 */
#ifndef COLL_COMM_SHRINK_H
#define COLL_COMM_SHRINK_H

#include "core/comm.h"

/* shrunk is not NULL. lost, nlost: see coll_comm_shrink(). */
coll_status coll_comm_shrink_living(struct coll_comm *comm, struct coll_comm **shrunk, int *lost, int *nlost);

#endif
