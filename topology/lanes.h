/*
 * The part of search.h that is about NICs: which are used, rails, lanes. A lane here is a share of what a host sends
 * over one rail. The lanes of plan/plan.h are steps in order, those of plan/layout.h parts of a vector.
 */
#ifndef COLL_TOPOLOGY_LANES_H
#define COLL_TOPOLOGY_LANES_H

#include "topology/search.h"

/* The NICs of a host that are used, the first for the first rail, into nic; how many. The reason in why. */
int coll_lanes_nics(const struct coll_graph *g, unsigned transports, int nic[COLL_GRAPH_NICS_MAX], char *why,
                    size_t why_bytes);

/* How far a place is from a NIC: 0 near or unknown, 1 another NUMA node, 2 another package. */
int coll_lanes_crossing(const struct coll_place *place, const struct coll_graph_nic *nic);

/* One sentence: why a rank has its NIC (rank_nic). */
void coll_lanes_why(const struct coll_search *s, const struct coll_search_in *in, int rank, char *why,
                    size_t why_bytes);

/* Fill in parts, rails and lanes; order and first are there. False: out of memory. */
bool coll_lanes_assign(struct coll_search *s, const struct coll_search_in *in);

#endif
