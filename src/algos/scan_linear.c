/*
 * Linear scan: each rank puts what comes from the rank before it to the left of
 * its own and passes the sum on. Tiles fill the line like a pipe, so long
 * vectors pass at the speed of one link. Keeps rank order. n-1 rounds, one vector
 * sent by each rank.
 *
 * The sum that is passed on is kept apart from the result: the result may still
 * be divided (avg), what others build on may not.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_scan_linear(const struct coll_shape *s, struct coll_builder *b)
{
	const bool last = s->rank == s->size - 1;
	struct coll_at sum = coll_in(0);

	coll_build_chunks(b, 1);
	if (s->rank > 0) {
		const struct coll_at dst = last ? coll_out(0) : coll_scratch(0, 0);

		coll_build_recv_reduce(b, s->rank - 1, sum, dst, COLL_INCOMING_LEFT, (uint32_t)s->rank, last);
		sum = dst;
	}
	if (!last)
		coll_build_send(b, s->rank + 1, sum);
	if (!last || s->rank == 0)
		coll_build_copy(b, sum, coll_out(0), true);
	return coll_build_status(b);
}

void coll_cost_scan_linear(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n - 1,
	        .frames = n > 2 ? 2 : n - 1,
	        .sent = n > 1,
	        .received = n > 1,
	        .reduced = n > 1,
	        .copied = 1,
	        .frame = 1,
	        .scratch = n > 2,
	};
}
