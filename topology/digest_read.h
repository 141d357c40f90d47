/*
 * The other end of digest.h. Pure; takes any bytes.
 */
#ifndef COLL_TOPOLOGY_DIGEST_READ_H
#define COLL_TOPOLOGY_DIGEST_READ_H

#include "topology/digest.h"

/* NULL with "byte N: ..." in why, or "" when out of memory. free() the graph. */
struct coll_graph *coll_digest_read(const uint8_t *bytes, size_t len_bytes, char *why, size_t why_bytes);

#endif
