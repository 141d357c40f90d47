/*
 * Receives.
 */
#ifndef COLL_ENGINE_RECEIVE_H
#define COLL_ENGINE_RECEIVE_H

#include "engine/state.h"

/* A lane begins: say where frames by reference are going to be taken to. */
void coll_run_invite(struct coll_run *run, struct instance *inst, struct lane *lane);

#endif
