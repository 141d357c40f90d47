/*
 * Direct reduce-scatter: every rank sends block c to rank c, which reduces the n
 * pieces in rank order, rounding once. One round, n-1 frames each way, scratch
 * of n-1 blocks.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_reducescatter_direct(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const uint32_t own = (uint32_t)s->rank;

	if (n - 1 > COLL_SCRATCH_MAX)
		return COLL_ERR_UNSUPPORTED;
	coll_build_chunks(b, (uint32_t)n);
	if (n == 1) {
		coll_build_copy(b, coll_in(own), coll_out(own), true);
		return coll_build_status(b);
	}
	for (int i = 1; i < n; i++)
		coll_build_send(b, coll_peer_at(s, i), coll_in((uint32_t)coll_peer_at(s, i)));
	for (int i = 1; i < n; i++) {
		int peer = coll_peer_at(s, -i);

		coll_build_recv(b, peer, coll_scratch(coll_index_without(s, peer), own));
	}
	coll_build_reduce(b, 0, (uint32_t)n - 1, s->rank, own, coll_out(own), true);
	return coll_build_status(b);
}

void coll_cost_reducescatter_direct(int n, struct coll_algo_cost *c)
{
	double peers = n - 1;

	*c = (struct coll_algo_cost){
	        .rounds = n > 1,
	        .frames = 2 * peers,
	        .sent = peers,
	        .received = peers,
	        .reduced = peers,
	        .copied = n == 1 ? 1 : peers,
	        .frame = 1,
	        .scratch = peers,
	};
}
