/*
 * The transports built in: the one place that names each. No transport includes it.
 */
#ifndef COLL_TRANSPORTS_REGISTRY_H
#define COLL_TRANSPORTS_REGISTRY_H

#include "transport/transport.h"

/* One row per transport, in order of preference. Everything that has room per transport
 * takes its size from COLL_TRANSPORTS. */
#define COLL_TRANSPORT_ROWS(ROW) ROW(loop) ROW(shm) ROW(rdma) ROW(tcp)

#define ROW(name) extern const struct coll_transport coll_transport_##name;
COLL_TRANSPORT_ROWS(ROW)
#undef ROW

#define ROW(name) COLL_TRANSPORT_AT_##name,
enum { COLL_TRANSPORT_ROWS(ROW) COLL_TRANSPORTS };
#undef ROW

extern const struct coll_transport *const coll_transports[COLL_TRANSPORTS];

/* NULL when there is none of that name. */
const struct coll_transport *coll_transport_find(const char *name);

#endif
