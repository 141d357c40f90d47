/*
 * Tree all-reduce: reduce up an in-order binary tree, broadcast down it. Keeps
 * rank order (left subtree, own, right subtree). Tiles pipeline it: while one
 * tile goes down, the next goes up in its own window.
 *
 *            3            up:   left child, then right child, then to parent
 *        1       5        down: from parent to the left, to the right child
 *      0   2   4
 *
 * Rounds 2 floor(log2 n). An inner rank sends the vector three times, whatever n
 * is (once up, twice down).
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

coll_status coll_algo_allreduce_tree(const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_tree_node node = coll_tree_inorder(s->size, s->rank);
	const bool root = node.parent < 0;
	struct coll_at sum = coll_in(0);

	coll_build_chunks(b, 1);
	if (s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	if (node.left >= 0) {
		coll_build_recv_reduce(b, node.left, sum, coll_out(0), COLL_INCOMING_LEFT, node.below,
		                       root && node.right < 0);
		sum = coll_out(0);
	}
	if (node.right >= 0) {
		coll_build_recv_reduce(b, node.right, sum, coll_out(0), COLL_INCOMING_RIGHT, node.above, root);
		sum = coll_out(0);
	}
	if (!root) {
		coll_build_send(b, node.parent, sum);
		coll_build_recv(b, node.parent, coll_out(0));
	}
	if (node.left >= 0)
		coll_build_send(b, node.left, coll_out(0));
	if (node.right >= 0)
		coll_build_send(b, node.right, coll_out(0));
	return coll_build_status(b);
}

void coll_cost_allreduce_tree(int n, struct coll_algo_cost *c)
{
	double most = n < 4 ? n - 1 : 3; /* neighbours of the busiest rank */

	*c = (struct coll_algo_cost){
	        .rounds = 2 * coll_floor_log2(n),
	        .frames = 2 * most,
	        .sent = most,
	        .received = most,
	        .reduced = n < 3 ? n - 1 : 2,
	        .copied = 1,
	        .frame = 1,
	};
}
