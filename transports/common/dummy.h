/*
 * What a transport does where it says nothing.
 */
#ifndef COLL_TRANSPORTS_COMMON_DUMMY_H
#define COLL_TRANSPORTS_COMMON_DUMMY_H

#include "transports/common/registry.h"

/* A copy of t with every missing (NULL) member replaced by the dummy's, and
 * members beyond t->size likewise. */
void coll_transport_complete(const struct coll_transport *t, struct coll_transport *full);

#endif
