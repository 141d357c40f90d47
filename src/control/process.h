/*
 * Processes of this host that have met us: a descriptor says when one has ended.
 */
#ifndef COLL_CONTROL_PROCESS_H
#define COLL_CONTROL_PROCESS_H

#include "control/state.h"

/* A link to it has just been authenticated, so its process id is its own. */
void coll_control_watch_process(struct coll_control *c, int peer);

/* Its descriptor was readable, or nobody watches any more. */
void coll_control_forget_process(struct coll_control *c, int peer);

#endif
