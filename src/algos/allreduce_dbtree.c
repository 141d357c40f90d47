/*
 * Double binary tree all-reduce (Sanders, Speck, Traff: Two-tree algorithms for
 * full bandwidth broadcast, reduction and scan, 2009): each half of the vector
 * goes up and down a tree of its own, on a lane of its own. The second tree is the first one
 * mirrored (n even) or turned by one rank (n odd), so that a rank that is inner
 * in one tree is a leaf in the other and every link is used both ways. The
 * turned tree does not keep rank order: commutative operations only.
 *
 *     chunk 0:        3           chunk 1:        2
 *                 1       5                   4       0      n = 6
 *               0   2   4                   5   3   1
 *
 * Rounds 2 floor(log2 n). A rank sends at most twice the vector, as large n
 * demands of any all-reduce by trees, pipelined over tiles.
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

/* Rank at a position of the tree; the inverse of itself (mirror), or of the
 * turn the other way. */
static int second_rank(int n, int position)
{
	if (position < 0)
		return -1;
	return n % 2 == 0 ? n - 1 - position : coll_mod(position - 1, n);
}

static struct coll_tree_node second_tree(int n, int rank)
{
	int position = n % 2 == 0 ? n - 1 - rank : (rank + 1) % n;
	struct coll_tree_node at = coll_tree_inorder(n, position);

	at.parent = second_rank(n, at.parent);
	at.left = second_rank(n, at.left);
	at.right = second_rank(n, at.right);
	return at;
}

static void up_and_down(struct coll_builder *b, const struct coll_tree_node *node, uint32_t chunk)
{
	const bool root = node->parent < 0;
	struct coll_at sum = coll_in(chunk);
	struct coll_at out = coll_out(chunk);

	if (node->left >= 0) {
		coll_build_recv_reduce(b, node->left, sum, out, COLL_INCOMING_LEFT, node->below,
		                       root && node->right < 0);
		sum = out;
	}
	if (node->right >= 0) {
		coll_build_recv_reduce(b, node->right, sum, out, COLL_INCOMING_RIGHT, node->above, root);
		sum = out;
	}
	if (!root) {
		coll_build_send(b, node->parent, sum);
		coll_build_recv(b, node->parent, out);
	}
	if (node->left >= 0)
		coll_build_send(b, node->left, out);
	if (node->right >= 0)
		coll_build_send(b, node->right, out);
}

coll_status coll_algo_allreduce_dbtree(const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_tree_node first = coll_tree_inorder(s->size, s->rank);
	const struct coll_tree_node second = second_tree(s->size, s->rank);

	coll_build_chunks(b, 2);
	if (s->size == 1) {
		coll_build_run(b, 2, 0, 0, false);
		coll_build_copy(b, coll_in(0), coll_out(0), true);
		return coll_build_status(b);
	}
	up_and_down(b, &first, 0);
	coll_build_lane(b, 1);
	up_and_down(b, &second, 1);
	return coll_build_status(b);
}

void coll_cost_allreduce_dbtree(int n, struct coll_algo_cost *c)
{
	double most = n < 4 ? (n - 1) * (n == 3 ? 0.75 : 1) : 2; /* n = 3: two links in one tree, one in the other */

	*c = (struct coll_algo_cost){
	        .rounds = 2 * coll_floor_log2(n),
	        .frames = 4 * most,
	        .sent = most,
	        .received = most,
	        .reduced = n < 3 ? (n - 1) * 0.5 : 1,
	        .copied = n == 2 ? 0.5 : 1,
	        .frame = 0.5,
	        .all_frames = 8.0 * (n - 1),
	        .all_sent = 2.0 * (n - 1),
	};
}
