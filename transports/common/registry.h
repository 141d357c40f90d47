/*
 * The transports built in, and the defaults of the table.
 */
#ifndef COLL_TRANSPORTS_COMMON_REGISTRY_H
#define COLL_TRANSPORTS_COMMON_REGISTRY_H

#include "coll/transport.h"

extern const struct coll_transport coll_transport_loop;
extern const struct coll_transport coll_transport_shm;
extern const struct coll_transport coll_transport_rdma;
extern const struct coll_transport coll_transport_tcp;

/* In order of preference, ended by NULL: loop, shm, rdma, tcp. */
extern const struct coll_transport *const coll_transports[];

/* NULL when there is none of that name. */
const struct coll_transport *coll_transport_find(const char *name);

/* loop: the object that joins the instances of one process. */
struct coll_loop_group;

/* hook: a table that wraps another (see transports/hook/hook.h). */

#endif
