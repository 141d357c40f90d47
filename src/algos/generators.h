/*
 * Every generator and its cost, one pair per file. Only algos.c and the tests
 * include this; all others use the table.
 */
#ifndef COLL_ALGOS_GENERATORS_H
#define COLL_ALGOS_GENERATORS_H

#include "algos/algos.h"

#define COLL_GENERATOR(name)                                                              \
	coll_status coll_algo_##name(const struct coll_shape *s, struct coll_builder *b); \
	void coll_cost_##name(int n, struct coll_algo_cost *c)

COLL_GENERATOR(allreduce_ring);
COLL_GENERATOR(allreduce_tree);
COLL_GENERATOR(allreduce_dbtree);
COLL_GENERATOR(allreduce_rdbl);
COLL_GENERATOR(allreduce_rhd);
COLL_GENERATOR(allreduce_circulant);
COLL_GENERATOR(allreduce_oneshot);
COLL_GENERATOR(allreduce_twoshot);
COLL_GENERATOR(reduce_binomial);
COLL_GENERATOR(reduce_tree);
COLL_GENERATOR(reduce_direct);
COLL_GENERATOR(broadcast_binomial);
COLL_GENERATOR(broadcast_tree);
COLL_GENERATOR(broadcast_circulant);
COLL_GENERATOR(broadcast_direct);
COLL_GENERATOR(broadcast_blocks8);
COLL_GENERATOR(broadcast_blocks32);
COLL_GENERATOR(allgather_ring);
COLL_GENERATOR(allgather_circulant);
COLL_GENERATOR(allgather_rdbl);
COLL_GENERATOR(allgather_direct);
COLL_GENERATOR(reducescatter_ring);
COLL_GENERATOR(reducescatter_circulant);
COLL_GENERATOR(reducescatter_direct);
COLL_GENERATOR(reducescatter_linear);
COLL_GENERATOR(alltoall_pairwise);
COLL_GENERATOR(alltoall_bruck);
COLL_GENERATOR(alltoall_direct);
COLL_GENERATOR(gather_binomial);
COLL_GENERATOR(gather_direct);
COLL_GENERATOR(scatter_binomial);
COLL_GENERATOR(scatter_direct);
COLL_GENERATOR(scan_rdbl);
COLL_GENERATOR(scan_linear);
COLL_GENERATOR(exclusivescan_rdbl);
COLL_GENERATOR(exclusivescan_linear);
COLL_GENERATOR(barrier_dissemination);

#undef COLL_GENERATOR

/* Rows that read the layout, and rows that need one. */
#define COLL_SPLIT(name)                                                                        \
	void coll_split_##name(const struct coll_layout *layout, struct coll_algo_cost *inside, \
	                       struct coll_algo_cost *between, struct coll_algo_links *links)
#define COLL_LAYOUT_GENERATOR(name)                                                       \
	coll_status coll_algo_##name(const struct coll_shape *s, struct coll_builder *b); \
	COLL_SPLIT(name)

COLL_SPLIT(allreduce_circulant);
COLL_SPLIT(allgather_circulant);
COLL_SPLIT(reducescatter_circulant);
COLL_LAYOUT_GENERATOR(broadcast_lanes);
COLL_LAYOUT_GENERATOR(reduce_lanes);
COLL_LAYOUT_GENERATOR(allreduce_leaders);
COLL_LAYOUT_GENERATOR(barrier_leaders);
COLL_LAYOUT_GENERATOR(broadcast_leaders);
COLL_LAYOUT_GENERATOR(reduce_leaders);

#undef COLL_LAYOUT_GENERATOR
#undef COLL_SPLIT

#endif
