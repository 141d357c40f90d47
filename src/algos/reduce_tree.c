/*
 * Tree reduce: up a binary tree that keeps rank order (tree.h: the ranks below
 * and above the root are its two subtrees), pipelined by tiles.
 *
 *     n = 7, root 2:      2
 *                       1     5? (in-order trees over 0 1 and over 3 4 5 6)
 *
 * At most floor(log2(n-1)) + 1 rounds. No rank receives more than two vectors,
 * so long vectors move at half the speed of a link for every n.
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

coll_status coll_algo_reduce_tree(const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_tree_node node = coll_tree_rooted(s->size, s->root, s->rank);
	const bool root = node.parent < 0;
	const struct coll_at dst = root ? coll_out(0) : coll_scratch(0, 0);
	struct coll_at sum = coll_in(0);

	coll_build_chunks(b, 1);
	if (s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	if (node.left >= 0) {
		coll_build_recv_reduce(b, node.left, sum, dst, COLL_INCOMING_LEFT, node.below, root && node.right < 0);
		sum = dst;
	}
	if (node.right >= 0) {
		coll_build_recv_reduce(b, node.right, sum, dst, COLL_INCOMING_RIGHT, node.above, root);
		sum = dst;
	}
	if (!root)
		coll_build_send(b, node.parent, sum);
	return coll_build_status(b);
}

void coll_cost_reduce_tree(int n, struct coll_algo_cost *c)
{
	double children = n < 3 ? n - 1 : 2;

	*c = (struct coll_algo_cost){
	        .rounds = n == 1 ? 0 : coll_floor_log2(n - 1) + 1,
	        .frames = n < 4 ? children : 3,
	        .sent = n > 1,
	        .received = children,
	        .reduced = children,
	        .copied = n == 1,
	        .frame = 1,
	        .scratch = n > 2,
	};
}
