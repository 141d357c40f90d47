/*
 * The hosts of a context's ranks: its members host_of, hosts, crowded, alone_on_cores, spare_core, crowding, beside and
 * caches.
 */
#ifndef COLL_CONTEXT_LOCALITY_H
#define COLL_CONTEXT_LOCALITY_H

#include "context/context.h"

/* Hosts in order of first appearance, and whether the cores of their machines suffice. The peer infos are there; what
 * is allocated goes with the context, also when this fails. */
coll_status coll_locality_find(struct coll_context *c, struct coll_error_box *err);

#endif
