/*
 * Ring all-gather: blocks go round the ring; receive, store and forward is one
 * pass. n-1 rounds, n-1 blocks sent by each rank, one at a time.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allgather_ring(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const int next = coll_peer_at(s, 1);
	const int prev = coll_peer_at(s, -1);
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, (uint32_t)n);
	if (n > 1)
		coll_build_send(b, next, coll_in(own));
	for (int i = 1; i < n; i++) {
		uint32_t c = (uint32_t)coll_peer_at(s, -i);

		coll_build_recv(b, prev, coll_out(c));
		if (i < n - 1)
			coll_build_send(b, next, coll_out(c));
	}
	/* Last: by then `next` has taken the block this may have to wait for. */
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	return coll_build_status(b);
}

void coll_cost_allgather_ring(int n, struct coll_algo_cost *c)
{
	double hops = n - 1;

	*c = (struct coll_algo_cost){
	        .rounds = hops,
	        .frames = 2 * hops,
	        .sent = hops,
	        .received = hops,
	        .copied = n,
	        .frame = 1,
	};
}
