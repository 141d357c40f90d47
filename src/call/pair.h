/*
 * Send and receive between two ranks.
 */
#ifndef COLL_CALL_PAIR_H
#define COLL_CALL_PAIR_H

#include "core/comm.h"

coll_status coll_comm_pair(struct coll_comm *comm, const struct coll_pair *pair);

#endif
