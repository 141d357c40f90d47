/*
 * The order of ranks in a ring of devices: as few steps as possible go over paths of the slowest class, then of the
 * next slower one, and so on (gpu_paths.h has the classes). Pure and deterministic: ranks that agree on the paths have
 * the same ring. Among equally good rings the one that is nearer to the order of rank numbers is taken: rank order
 * itself where nothing is better.
 *
 * How good it is, is known: bound[k] steps or more are of class k or slower in any ring. A ring that meets all bounds
 * is the best one; where the paths are nested groups (each pair is as far apart as the smallest group that has both)
 * it always does. Up to COLL_GPU_RING_EXACT ranks all rings are compared, so the choice is the best one even where a
 * bound is not met. Beyond, with links that are no nested groups, it is the best that a local search finds.
 */
#ifndef COLL_TOPOLOGY_GPU_RING_H
#define COLL_TOPOLOGY_GPU_RING_H

#include "topology/gpu_paths.h"

enum { COLL_GPU_RING_EXACT = 12 };

enum coll_gpu_ring_how { COLL_GPU_RING_RANKS, COLL_GPU_RING_GROUPS, COLL_GPU_RING_ALL, COLL_GPU_RING_SEARCH };

struct coll_gpu_ring {
	int ranks;
	int order[COLL_GPU_RANKS_MAX];    /* from rank 0 on; the last one is followed by rank 0 */
	int position[COLL_GPU_RANKS_MAX]; /* of each rank in order */
	int slower[COLL_GPU_CLASSES_MAX]; /* [k]: steps of class k or slower; [0]: all */
	int bound[COLL_GPU_CLASSES_MAX];  /* [k]: no ring has fewer */
	enum coll_gpu_ring_how how;
	bool best; /* proven: no ring has fewer slow steps, in the sense above */
};

/* False: out of memory. */
bool coll_gpu_ring_make(const struct coll_gpu_paths *p, struct coll_gpu_ring *ring);

/* Steps of class k or slower in any cyclic order of the ranks, for each class k. Two ranks have two steps, one has
 * none.
 */
void coll_gpu_ring_count(const struct coll_gpu_paths *p, const int *order, int *slower);

/*
 * Reading from peers without a queue: peer[s] is whom `rank` reads at step s, peer[0] itself, peer[s] the one s places
 * further along the ring. At each step every device is read by exactly one rank and reads from one, if all are at the
 * same step; near peers come first and last. peer has room for all ranks.
 */
void coll_gpu_ring_peers(const struct coll_gpu_ring *ring, int rank, int *peer);

/* "rank order", "groups", ...: how the order was found. */
const char *coll_gpu_ring_how_name(enum coll_gpu_ring_how how);

#endif
