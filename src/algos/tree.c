/*
 * Trees over ranks, see tree.h. Each function walks down from the root to the
 * rank that asks: O(log n), no memory.
 */
#include "algos/tree.h"

#include "algos/ranks.h"

/* Root of the in-order tree over len positions from first: left of it is a
 * perfect tree. */
static int subtree_root(int first, int len)
{
	return len > 0 ? first + (1 << coll_floor_log2(len)) - 1 : -1;
}

/* Find position in the in-order tree over [first, first + len) hung under parent. */
static struct coll_tree_node find(int first, int len, int position, int parent)
{
	for (;;) {
		int root = subtree_root(first, len);
		int below = root - first;
		int above = len - below - 1;

		assert(root >= 0);
		if (position == root)
			return (struct coll_tree_node){
			        .parent = parent,
			        .left = subtree_root(first, below),
			        .right = subtree_root(root + 1, above),
			        .below = (uint32_t)below,
			        .above = (uint32_t)above,
			};
		parent = root;
		if (position > root) {
			first = root + 1;
			len = above;
		} else {
			len = below;
		}
	}
}

struct coll_tree_node coll_tree_inorder(int n, int position)
{
	return find(0, n, position, -1);
}

struct coll_tree_node coll_tree_rooted(int n, int root, int rank)
{
	int above = n - root - 1;

	if (rank < root)
		return find(0, root, rank, root);
	if (rank > root)
		return find(root + 1, above, rank, root);
	return (struct coll_tree_node){-1, subtree_root(0, root), subtree_root(root + 1, above), (uint32_t)root,
	                               (uint32_t)above};
}

void coll_tree_halving(int n, int root, int rank, struct coll_tree_place *place)
{
	struct coll_tree_range at = {.leader = root, .first = 0, .end = n};

	*place = (struct coll_tree_place){.parent = -1, .own = at};
	while (at.end - at.first > 1) {
		int mid = at.first + (at.end - at.first + 1) / 2;
		struct coll_tree_range low = {at.first, at.first, mid};
		struct coll_tree_range high = {mid, mid, at.end};
		struct coll_tree_range *ours = at.leader < mid ? &low : &high;
		struct coll_tree_range *other = ours == &low ? &high : &low;

		ours->leader = at.leader;
		if (rank == at.leader) {
			place->child[place->children++] = *other;
			at = *ours;
		} else if (rank >= ours->first && rank < ours->end) {
			at = *ours;
		} else {
			if (rank == other->leader) {
				place->parent = at.leader;
				place->own = *other;
			}
			at = *other;
		}
	}
}
