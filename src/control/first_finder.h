/*
 * Whether this process is the one that logs a failure that it has found.
 */
#ifndef COLL_CONTROL_FIRST_FINDER_H
#define COLL_CONTROL_FIRST_FINDER_H

#include "control/state.h"

/* Stands for the end of a process where that of a communicator is meant: no communicator has so small an id, which is a
 * hash. */
static inline uint64_t coll_control_death_id(int process)
{
	return (uint64_t)process + 1;
}

/* The communicator has failed, and this process found out by itself. False: another one found it before, as is known
 * after ms at most. Any thread except the service thread. */
bool coll_control_found_first(struct coll_control *c, uint64_t comm, int ms);

#endif
