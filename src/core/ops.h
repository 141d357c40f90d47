/*
 * Operations of a communicator, beside the public functions.
 */
#ifndef COLL_CORE_OPS_H
#define COLL_CORE_OPS_H

#include "coll/coll.h"

/* Give a premultiplied sum another factor for the calls that are made from now on. Its value stays. */
coll_status coll_op_rescale(coll_op op, coll_comm *comm, const void *scale);

#endif
