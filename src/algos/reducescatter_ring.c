/*
 * Ring reduce-scatter: block c starts at rank c+1 and comes home to rank c after
 * n-1 hops, growing on its way; receive, reduce and forward is one pass.
 * Commutative operations only. n-1 rounds, n-1 blocks sent by each rank.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_reducescatter_ring(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const int next = coll_peer_at(s, 1);
	const int prev = coll_peer_at(s, -1);
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, (uint32_t)n);
	if (n == 1) {
		coll_build_copy(b, coll_in(own), coll_out(own), true);
		return coll_build_status(b);
	}
	coll_build_send(b, next, coll_in((uint32_t)prev));
	for (int i = 2; i < n; i++) {
		uint32_t c = (uint32_t)coll_peer_at(s, -i);

		coll_build_recv_reduce(b, prev, coll_in(c), coll_scratch(0, c), COLL_INCOMING_LEFT, (uint32_t)i - 1,
		                       false);
		coll_build_send(b, next, coll_scratch(0, c));
	}
	coll_build_recv_reduce(b, prev, coll_in(own), coll_out(own), COLL_INCOMING_LEFT, (uint32_t)n - 1, true);
	return coll_build_status(b);
}

void coll_cost_reducescatter_ring(int n, struct coll_algo_cost *c)
{
	double hops = n - 1;

	*c = (struct coll_algo_cost){
	        .rounds = hops,
	        .frames = 2 * hops,
	        .sent = hops,
	        .received = hops,
	        .reduced = hops,
	        .copied = n == 1,
	        .frame = 1,
	        .scratch = n > 2 ? n - 2 : 0,
	};
}
