/*
 * A fault.
 */
#ifndef COLL_WATCH_DIAGNOSE_H
#define COLL_WATCH_DIAGNOSE_H

#include "watch/watchdog.h"

/* A run of the wait has ended with an error (sticky: it may be polled again): find the
 * cause, about which another rank may have better information. OK: not found yet, call again. */
coll_status coll_comm_inquire(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                              struct coll_run *run, coll_status status);

#endif
