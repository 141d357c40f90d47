/*
 * What a transport does where it says nothing.
 */
#ifndef COLL_TRANSPORTS_COMMON_DUMMY_H
#define COLL_TRANSPORTS_COMMON_DUMMY_H

#include "transport/transport.h"
#include "transport/transport_shared.h"

/* The table of a transport without shared memory: says so everywhere. */
extern const struct coll_transport_shared coll_transport_shared_none;

/* A copy of t with every missing (NULL) member replaced by the dummy's, and
 * members beyond t->size likewise. full->shared is never NULL. */
void coll_transport_complete(const struct coll_transport *t, struct coll_transport *full);

#endif
