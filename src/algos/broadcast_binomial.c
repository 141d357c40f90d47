/*
 * Binomial broadcast: down the halving tree (tree.h), the largest subtree first.
 *
 *     n = 4, root 0:   0 -> 2    then 0 -> 1, 2 -> 3
 *
 * The root sends ceil(log2 n) vectors one after the other.
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

coll_status coll_algo_broadcast_binomial(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_tree_place at;
	const bool root = s->rank == s->root;

	coll_tree_halving(s->size, s->root, s->rank, &at);
	coll_build_chunks(b, 1);
	if (!root)
		coll_build_recv(b, at.parent, coll_out(0));
	for (int i = 0; i < at.children; i++)
		coll_build_send(b, at.child[i].leader, root ? coll_in(0) : coll_out(0));
	if (root)
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	return coll_build_status(b);
}

void coll_cost_broadcast_binomial(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n == 1 ? 0 : coll_floor_log2(n + 1),
	        .frames = coll_ceil_log2(n),
	        .sent = coll_ceil_log2(n),
	        .received = n > 1,
	        .copied = 1,
	        .frame = 1,
	};
}
