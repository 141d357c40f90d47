/*
 * Staged calls whose stream is late: see stage_late.c.
 */
#ifndef COLL_PROGRESS_STAGE_LATE_H
#define COLL_PROGRESS_STAGE_LATE_H

#include "progress/async.h"

/* The stream of a staged request has not come to it, or not to its end, in time: the communicator fails. The lock is
 * held. */
coll_status coll_stage_late(struct coll_request *r);

#endif
