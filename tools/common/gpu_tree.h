/*
 * A tree of devices for broadcast (from parent to child) and reduce (back): as few edges as possible are paths of the
 * slowest class, then of the next slower one, and so on (gpu_paths.h has the classes). Pure and deterministic, like the
 * ring.
 *
 * Every tree has at least one edge less of class k or slower than there are groups of ranks that faster paths join
 * (coll_gpu_groups()). This one has no more, for all k at once: it is a minimum spanning tree, whatever the paths are.
 * Among those it is built like a binomial tree: whoever has the data passes it on in each round, to another group
 * first.
 */
#ifndef COLL_TOOLS_GPU_TREE_H
#define COLL_TOOLS_GPU_TREE_H

#include "topology/gpu_paths.h"

struct coll_gpu_tree {
	int ranks, root, rounds;
	int parent[COLL_GPU_RANKS_MAX];   /* -1: the root */
	int round[COLL_GPU_RANKS_MAX];    /* in which the rank receives, if each rank sends once a round; root: 0 */
	int slower[COLL_GPU_CLASSES_MAX]; /* [k]: edges of class k or slower; no tree has fewer */
};

void coll_gpu_tree_make(const struct coll_gpu_paths *p, int root, struct coll_gpu_tree *tree);

#endif
