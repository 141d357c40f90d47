/*
 * Binomial reduce: the halving tree (tree.h), leaves first. Every subtree covers
 * a contiguous range of ranks, so rank order is kept for any root.
 *
 *     n = 4, root 0:   1 -> 0    3 -> 2    then 2 -> 0
 *
 * ceil(log2 n) vectors reach the root one after the other.
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

coll_status coll_algo_reduce_binomial(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_tree_place at;
	struct coll_at sum = coll_in(0);

	coll_tree_halving(s->size, s->root, s->rank, &at);
	coll_build_chunks(b, 1);
	if (s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	for (int i = at.children - 1; i >= 0; i--) {
		const int child = at.child[i].leader;
		const bool root = at.parent < 0;
		const struct coll_at dst = root ? coll_out(0) : coll_scratch(0, 0);

		coll_build_recv_reduce(b, child, sum, dst, child < s->rank ? COLL_INCOMING_LEFT : COLL_INCOMING_RIGHT,
		                       (uint32_t)(at.child[i].end - at.child[i].first), root && i == 0);
		sum = dst;
	}
	if (at.parent >= 0)
		coll_build_send(b, at.parent, sum);
	return coll_build_status(b);
}

void coll_cost_reduce_binomial(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n == 1 ? 0 : coll_floor_log2(n + 1),
	        .frames = coll_ceil_log2(n),
	        .sent = n > 1,
	        .received = coll_ceil_log2(n),
	        .reduced = coll_ceil_log2(n),
	        .copied = n == 1,
	        .frame = 1,
	        .scratch = n > 2,
	};
}
