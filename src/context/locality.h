/*
 * Locality: the hosts of a context's ranks. Fills the members host_of, hosts, oversubscribed,
 * dedicated_cores, spins, spare_core, core_sharers, spin_scale, caches, cache_bytes and cpus of the
 * context.
 */
#ifndef COLL_CONTEXT_LOCALITY_H
#define COLL_CONTEXT_LOCALITY_H

#include "context/context.h"

/* Number the hosts in order of first appearance, and find whether the cores of their machines
 * suffice. Needs the peer infos. The context owns what this allocates, also after a failure. */
coll_status coll_locality_find(struct coll_context *c, struct coll_error_box *err);

#endif
