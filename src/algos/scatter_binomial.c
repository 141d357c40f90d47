/*
 * Binomial scatter: down the halving tree (tree.h), largest subtree first; each
 * rank gets the contiguous run of blocks of its subtree, for any root.
 *
 *     n = 4, root 0:   0 -> 2 (blocks 2 3)    then 0 -> 1, 2 -> 3
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

coll_status coll_algo_scatter_binomial(const struct coll_shape *s, struct coll_builder *b)
{
	const uint32_t own = (uint32_t)s->rank;
	const bool root = s->rank == s->root;
	const uint8_t src = root ? COLL_BUF_IN : COLL_BUF_SCRATCH;
	struct coll_tree_place at;

	coll_tree_halving(s->size, s->root, s->rank, &at);
	coll_build_chunks(b, (uint32_t)s->size);
	if (!root && at.children == 0) {
		coll_build_recv(b, at.parent, coll_out(own));
		return coll_build_status(b);
	}
	if (!root) {
		coll_build_run(b, (uint32_t)(at.own.end - at.own.first), 0, 0, false);
		coll_build_recv(b, at.parent, (struct coll_at){src, (uint32_t)at.own.first});
	}
	for (int i = 0; i < at.children; i++) {
		const struct coll_tree_range *child = &at.child[i];

		coll_build_run(b, (uint32_t)(child->end - child->first), 0, 0, false);
		coll_build_send(b, child->leader, (struct coll_at){src, (uint32_t)child->first});
	}
	coll_build_run(b, 1, 0, 0, false);
	coll_build_copy(b, (struct coll_at){src, own}, coll_out(own), false);
	return coll_build_status(b);
}

void coll_cost_scatter_binomial(int n, struct coll_algo_cost *c)
{
	double half = n == 1 ? 0 : (n + 1) / 2;

	*c = (struct coll_algo_cost){
	        .rounds = n == 1 ? 0 : coll_floor_log2(n + 1),
	        .frames = coll_ceil_log2(n),
	        .sent = n - 1,
	        .received = half,
	        .copied = half > 1 ? half + 1 : 1,
	        .frame = n == 1 ? 1 : half,
	        .scratch = half > 1 ? half : 0,
	};
}
