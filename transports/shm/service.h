/*
 * shm: what the service thread does: accepting, connecting, reading sockets, noticing deaths.
 */
#ifndef COLL_TRANSPORTS_SHM_SERVICE_H
#define COLL_TRANSPORTS_SHM_SERVICE_H

#include "transports/shm/shm.h"

/* service.c */
void coll_shm_service(void *inst);

/* The service thread's work, done by whoever calls; nothing if another is at it and !wait. */
void coll_shm_service_step(struct shm_inst *in, bool wait);

#endif
