/*
 * What both ends of a digest have in common: digest.c says how it is written.
 */
#ifndef COLL_TOPOLOGY_DIGEST_FORMAT_H
#define COLL_TOPOLOGY_DIGEST_FORMAT_H

#include <assert.h>

#include "topology/digest.h"

enum coll_digest_field {
	COLL_DIGEST_COUNTS = 1,
	COLL_DIGEST_CORES,
	COLL_DIGEST_CPUS,
	COLL_DIGEST_MEMORY,
	COLL_DIGEST_DISTANCES,
	COLL_DIGEST_NICS,
	COLL_DIGEST_GPUS,
	COLL_DIGEST_LINKS,
	COLL_DIGEST_SITE
};

enum { COLL_DIGEST_PALETTE = 8, COLL_DIGEST_RUN_MAX = 32, COLL_DIGEST_STEP_MAX = 1 << 20 };

/* How a digest begins. */
static const uint8_t coll_digest_head[] = {'c', 'T', COLL_DIGEST_VERSION};

/* Room for what is written and read as one: a series, a matrix. */
struct coll_digest_scratch {
	int series[COLL_GRAPH_PUS_MAX];
	uint32_t matrix[COLL_GRAPH_NUMA_MAX * COLL_GRAPH_NUMA_MAX];
};

static_assert(COLL_GRAPH_NUMA_MAX >= COLL_GRAPH_GPUS_MAX,
              "links of GPUs are written by way of the matrix of distances");

#endif
