/*
 * Waiting inline in the caller's thread.
 */
#ifndef COLL_CALL_WAIT_H
#define COLL_CALL_WAIT_H

#include "core/comm.h"

/* Poll the runs until all are done, with progress, sleep, deadlines and alarms. On an error the box
 * is filled and the communicator has failed. */
coll_status coll_comm_wait(struct coll_comm *comm, const struct coll_wait *wait);

/* Only the beginning of that wait: a few polls of the first run. Returns OK, AGAIN, or the error of
 * the run, which is sticky. */
coll_status coll_comm_wait_eagerly(struct coll_comm *comm, const struct coll_wait *wait);

#endif
