/*
 * The transports of a context. Fills the members transports and ntransports, and the addresses in info.
 */
#ifndef COLL_CONTEXT_TRANSPORTS_H
#define COLL_CONTEXT_TRANSPORTS_H

#include "context/context.h"

/* Those of the list, or of the registry if it is empty. One that is not available here is left out. An error: the list
 * names none that exists, none can be used, or this process lacks memory or descriptors. */
coll_status coll_transports_open(struct coll_context *c, struct coll_shared_group *group, struct coll_error_box *err);

/* The round trip between the hosts of two processes, as they found it when they met: the longer one of theirs to the
 * root of the rendezvous. Agreed. 0: unknown, or they are near each other. */
uint32_t coll_context_round_trip_us(const struct coll_context *c, int a, int b);

/* Add to why, of which `used` bytes are written, those that could not be opened, and why, and
 * those that the settings leave out. */
void coll_transports_add_unopened(const struct coll_context *ctx, char *why, size_t why_bytes, size_t used);

#endif
