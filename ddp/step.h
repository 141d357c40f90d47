/*
 * A step.
 */
#ifndef COLL_DDP_STEP_H
#define COLL_DDP_STEP_H

#include "ddp/ddp_inner.h"

/* step.c: let all that runs go on; never waits. */
coll_status ddp_advance(coll_ddp *d);

/* Until buckets 0 .. index, all of which have started, are complete. */
coll_status ddp_wait_for(coll_ddp *d, int index);

#endif
