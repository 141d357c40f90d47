/*
 * What the best rings and trees of devices are, by looking at all of them: the oracle of the tests of gpu_ring.h and
 * gpu_tree.h. Shares nothing with them but the classes of the paths. Internal to tests.
 */
#ifndef COLL_TOPOLOGY_GPU_BRUTE_TEST_H
#define COLL_TOPOLOGY_GPU_BRUTE_TEST_H

#include "tools/common/gpu_tree.h"
#include "topology/gpu_ring.h"

enum { COLL_GPU_BRUTE_RING = 9, COLL_GPU_BRUTE_TREE = 7, COLL_GPU_BRUTE_SETS = 16 };

struct coll_gpu_brute {
	int count[COLL_GPU_CLASSES_MAX]; /* steps of each class in the best ring, or edges in the best tree */
	int least[COLL_GPU_CLASSES_MAX]; /* [k]: the fewest of class k or slower in any ring, or any tree */
	int order[COLL_GPU_BRUTE_RING];  /* the first best ring in the order of rank numbers */
	long looked_at;
};

/* All rings of up to COLL_GPU_BRUTE_RING ranks. */
void coll_gpu_brute_rings(const struct coll_gpu_paths *p, struct coll_gpu_brute *b);

/* All trees of up to COLL_GPU_BRUTE_TREE ranks. */
void coll_gpu_brute_trees(const struct coll_gpu_paths *p, struct coll_gpu_brute *b);

/* The best ring of up to COLL_GPU_BRUTE_SETS ranks, count alone; false: out of memory. */
bool coll_gpu_brute_sets(const struct coll_gpu_paths *p, struct coll_gpu_brute *b);

/* What is wrong with a ring or tree, NULL if nothing is: its form, its own counts, its bounds, and whether it is worse
 * than the best one. b is NULL where that is not known. */
const char *coll_gpu_brute_blame_ring(const struct coll_gpu_paths *p, const struct coll_gpu_ring *ring,
                                      const struct coll_gpu_brute *b);
const char *coll_gpu_brute_blame_tree(const struct coll_gpu_paths *p, const struct coll_gpu_tree *tree,
                                      const struct coll_gpu_brute *b);

#endif
