/*
 * Diagnosis: where a run is, and whom it waits for.
 */
#ifndef COLL_ENGINE_POSITION_H
#define COLL_ENGINE_POSITION_H

#include "engine/engine.h"

void coll_run_where(const struct coll_run *run, struct coll_run_where *where);

#endif
