/*
 * Flights.
 */
#ifndef COLL_ENGINE_SENDS_H
#define COLL_ENGINE_SENDS_H

#include "engine/state.h"

/* Move the SENDs of an instance that are under way. */
coll_status coll_run_reap(struct coll_run *run, struct instance *inst);

#endif
