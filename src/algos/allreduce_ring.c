/*
 * Ring all-reduce (Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for
 * clusters of workstations, 2009): a reduce-scatter, then an all-gather, each of
 * n-1 hops to the next rank. Commutative operations only: chunk c is summed from
 * rank c round the ring.
 *
 *     rank r sends chunk r, then passes on what it has just reduced:
 *
 *     chunk      0    1    2    3        n = 4
 *     rank 0    0->             1 from 3, then 2 more hops until chunk c is
 *     rank 1         0->        complete on rank c-1, which starts it on its
 *     ...                       way round again
 *
 * Rounds 2(n-1); each rank sends 2(n-1)/n of the vector, one chunk at a time.
 * Receive, reduce and send of one hop are adjacent, so they fuse to one pass.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allreduce_ring(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const int next = coll_peer_at(s, 1);
	const int prev = coll_peer_at(s, -1);

	coll_build_chunks(b, (uint32_t)n);
	if (n == 1) {
		coll_build_copy(b, coll_in(0), coll_out(0), true);
		return coll_build_status(b);
	}
	coll_build_send(b, next, coll_in((uint32_t)s->rank));
	for (int i = 1; i < n; i++) {
		uint32_t c = (uint32_t)coll_peer_at(s, -i);

		coll_build_recv_reduce(b, prev, coll_in(c), coll_out(c), COLL_INCOMING_LEFT, (uint32_t)i, i == n - 1);
		coll_build_send(b, next, coll_out(c));
	}
	for (int i = 0; i < n - 1; i++) {
		uint32_t c = (uint32_t)coll_peer_at(s, -i);

		coll_build_recv(b, prev, coll_out(c));
		if (i < n - 2)
			coll_build_send(b, next, coll_out(c));
	}
	return coll_build_status(b);
}

void coll_cost_allreduce_ring(int n, struct coll_algo_cost *c)
{
	double hops = n - 1;

	*c = (struct coll_algo_cost){
	        .rounds = 2 * hops,
	        .frames = 4 * hops,
	        .sent = 2 * hops / n,
	        .received = 2 * hops / n,
	        .reduced = hops / n,
	        .copied = n == 1 ? 1 : hops / n,
	        .frame = 1.0 / n,
	};
}
