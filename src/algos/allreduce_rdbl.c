/*
 * Recursive doubling all-reduce of all ranks, see doubling.h. Keeps rank order.
 *
 * Rounds ceil(log2 n), one more when n is above 1.5 times a power of two; bytes log2(n) S.
 */
#include "algos/doubling.h"
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allreduce_rdbl(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	if (s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	else
		coll_doubling(b, s->size, s->rank, NULL, NULL, coll_in(0));
	return coll_build_status(b);
}

void coll_cost_allreduce_rdbl(int n, struct coll_algo_cost *c)
{
	double folded = (n & (n - 1)) != 0;
	double rounds = coll_floor_log2(n);

	*c = (struct coll_algo_cost){
	        .rounds = coll_fold_rounds(n),
	        .frames = 2 * (rounds + folded),
	        .sent = rounds + folded,
	        .received = rounds + folded,
	        .reduced = rounds + folded,
	        .copied = n <= 2 || folded ? 1 : 0,
	        .frame = 1,
	        .scratch = (n > 1) + (n > 4),
	        .aside = n == 2 || n == 3,
	};
}
