/*
 * Staged calls whose stream is late: see stage_late.c.
 */
#ifndef COLL_DEVCALL_STAGE_LATE_H
#define COLL_DEVCALL_STAGE_LATE_H

#include "inflight/async.h"

/* It has taken too long: the communicator fails by an error that says what this rank knows. The lock is held. */
coll_status coll_stage_late(struct coll_request *r);

#endif
