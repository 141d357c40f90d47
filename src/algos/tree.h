/*
 * Trees over ranks: who is my parent, who are my children. Pure.
 *
 * Two families. The search tree (in-order) keeps rank order: everything left of
 * a node has lower positions. The halving tree covers contiguous ranges of ranks,
 * so it moves runs of blocks, keeps operand order for any root, and is the
 * binomial tree when n is a power of two.
 */
#ifndef COLL_ALGOS_TREE_H
#define COLL_ALGOS_TREE_H

#include "plan/build.h"

enum { COLL_TREE_DEPTH_MAX = 32 };

/* Positions; -1: none. And how many are in the two subtrees. */
struct coll_tree_node {
	int parent;
	int left;
	int right;
	uint32_t below;
	uint32_t above;
};

/*
 * The in-order tree over positions 0 .. n-1 (Sanders, Speck, Traff: Two-tree
 * algorithms for full bandwidth broadcast, reduction and scan, 2009). Even
 * positions are leaves, odd ones always have a left child; height floor(log2 n).
 *
 *     n = 6:          3
 *                 1       5
 *               0   2   4
 */
struct coll_tree_node coll_tree_inorder(int n, int position);

/*
 * An in-order tree over ranks whose root is the given one: in-order trees over
 * the ranks below and above it are its children.
 */
struct coll_tree_node coll_tree_rooted(int n, int root, int rank);

/* One subtree of the halving tree: its leader and the ranks [first, end). */
struct coll_tree_range {
	int leader;
	int first;
	int end;
};

/*
 * This rank's place in the halving tree. A range is halved (first half one
 * longer when odd) until it is one rank; the half without the range's leader is
 * led by its first rank, a child of the leader. child[] goes from the largest
 * range to the smallest; own is what this rank's subtree covers.
 *
 *     n = 5, root 0:  0 -> 3 (3,4), 2, 1;  3 -> 4
 */
struct coll_tree_place {
	int parent; /* -1 at the root */
	struct coll_tree_range own;
	int children;
	struct coll_tree_range child[COLL_TREE_DEPTH_MAX];
};

void coll_tree_halving(int n, int root, int rank, struct coll_tree_place *place);

#endif
