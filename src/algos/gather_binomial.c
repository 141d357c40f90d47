/*
 * Binomial gather: up the halving tree (tree.h), smallest subtree first; each
 * rank passes on one contiguous run of blocks, in order, for any root.
 *
 *     n = 4, root 0:   1 -> 0    3 -> 2    then 2 -> 0 (blocks 2 3)
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

coll_status coll_algo_gather_binomial(const struct coll_shape *s, struct coll_builder *b)
{
	const uint32_t own = (uint32_t)s->rank;
	const bool root = s->rank == s->root;
	const uint8_t dst = root ? COLL_BUF_OUT : COLL_BUF_SCRATCH;
	struct coll_tree_place at;

	coll_tree_halving(s->size, s->root, s->rank, &at);
	coll_build_chunks(b, (uint32_t)s->size);
	if (!root && at.children == 0) {
		coll_build_send(b, at.parent, coll_in(own));
		return coll_build_status(b);
	}
	coll_build_copy(b, coll_in(own), (struct coll_at){dst, own}, false);
	for (int i = at.children - 1; i >= 0; i--) {
		const struct coll_tree_range *child = &at.child[i];

		coll_build_run(b, (uint32_t)(child->end - child->first), 0, 0, false);
		coll_build_recv(b, child->leader, (struct coll_at){dst, (uint32_t)child->first});
	}
	if (!root) {
		coll_build_run(b, (uint32_t)(at.own.end - at.own.first), 0, 0, false);
		coll_build_send(b, at.parent, (struct coll_at){dst, (uint32_t)at.own.first});
	}
	return coll_build_status(b);
}

void coll_cost_gather_binomial(int n, struct coll_algo_cost *c)
{
	double half = n == 1 ? 0 : (n + 1) / 2;

	*c = (struct coll_algo_cost){
	        .rounds = n == 1 ? 0 : coll_floor_log2(n + 1),
	        .frames = coll_ceil_log2(n),
	        .sent = half,
	        .received = n - 1,
	        .copied = n,
	        .frame = n == 1 ? 1 : half,
	        .scratch = half > 1 ? half : 0,
	};
}
