/*
 * The thread of a communicator that maps what peers announce of their users' memory: see mapper.c.
 */
#ifndef COLL_MAPPED_MAPPER_H
#define COLL_MAPPED_MAPPER_H

#include "devcall/mapped_state.h"

/* Start it, in the first long call: by the communicator's thread. */
void coll_mapper_start(struct coll_mapped *d);
/* Drivers: call it if a peer has announced something. */
void coll_mapper_look(struct coll_mapped *d);
/* End it, and let go of all regions. False: it is in the driver, and does not come back. */
bool coll_mapper_stop(struct coll_mapped *d);

#endif
