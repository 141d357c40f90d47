/*
 * Distances in hwloc's XML: latency between NUMA nodes, links of GPUs. Internal to graph_hwloc.h.
 */
#ifndef COLL_TOPOLOGY_HWLOC_DISTANCES_H
#define COLL_TOPOLOGY_HWLOC_DISTANCES_H

#include "topology/hwloc_objects.h"

/* At <distances2> or <distances2hetero>: keep it if it matters here. */
bool coll_hwloc_read_distances(struct coll_hwloc_reader *r);

/* Cores and devices have their places: take over what was kept. */
void coll_hwloc_take_distances(struct coll_hwloc_reader *r);

#endif
