/*
 * A graph in at most 1024 bytes, to be sent between ranks: see docs/guide/topology.md. Pure, and the same bytes for
 * the same graph. The format has a version and fields with lengths: a reader
 * (digest_read.h) skips what it does not know.
 */
#ifndef COLL_TOPOLOGY_DIGEST_H
#define COLL_TOPOLOGY_DIGEST_H

#include "topology/graph.h"

enum { COLL_DIGEST_MAX = 1024, COLL_DIGEST_VERSION = 2 };

/* The bytes written into out. What does not fit is left out, in this order: links of GPUs, GPUs, NICs beyond twelve,
 * distances, numbers of CPUs, cores. No graph is too large. */
size_t coll_digest_write(const struct coll_graph *g, uint8_t out[COLL_DIGEST_MAX]);

uint64_t coll_digest_hash(const uint8_t *bytes, size_t len_bytes);

#endif
