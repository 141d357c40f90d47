/*
 * Whether this process is the one that logs a failure that it has found.
 */
#ifndef COLL_CONTROL_FIRST_FINDER_H
#define COLL_CONTROL_FIRST_FINDER_H

#include "control/state.h"

/* The communicator has failed, and this process found out by itself. False: another one found it before, as is known
 * after ms at most. Any thread except the service thread. */
bool coll_control_found_first(struct coll_control *c, uint64_t comm, int ms);

#endif
