/*
 * Linear exclusive scan: each rank keeps what comes from the rank before it, and passes it on with its own behind it.
 * Tiles fill the line like a pipe, so long vectors pass at the speed of one link. Keeps rank order. n-1 rounds, one
 * vector sent by each rank. Rank 0 has no result.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_exclusivescan_linear(const struct coll_shape *s, struct coll_builder *b)
{
	const bool last = s->rank == s->size - 1;

	coll_build_chunks(b, 1);
	if (s->rank == 0) {
		if (!last)
			coll_build_send(b, 1, coll_in(0));
		return coll_build_status(b);
	}
	coll_build_recv(b, s->rank - 1, coll_scratch(0, 0));
	if (!last) {
		coll_build_reduce(b, 0, 1, 1, 0, coll_scratch(1, 0), false);
		coll_build_send(b, s->rank + 1, coll_scratch(1, 0));
	}
	coll_build_copy(b, coll_scratch(0, 0), coll_out(0), true);
	return coll_build_status(b);
}

void coll_cost_exclusivescan_linear(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n - 1,
	        .frames = n > 2 ? 2 : n - 1,
	        .sent = n > 1,
	        .received = n > 1,
	        .reduced = n > 2,
	        .copied = n > 1 ? 2 : 0,
	        .frame = 1,
	        .scratch = n > 2 ? 2 : n - 1,
	};
}
