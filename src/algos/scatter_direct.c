/*
 * Direct scatter: the root sends to every rank. One round, n-1 frames at the
 * root; only the two ends of a frame need its length.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_scatter_direct(const struct coll_shape *s, struct coll_builder *b)
{
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, (uint32_t)s->size);
	if (s->rank != s->root) {
		coll_build_recv(b, s->root, coll_out(own));
		return coll_build_status(b);
	}
	for (int i = 1; i < s->size; i++) {
		int peer = coll_peer_at(s, i);

		coll_build_send(b, peer, coll_in((uint32_t)peer));
	}
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	return coll_build_status(b);
}

void coll_cost_scatter_direct(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n > 1,
	        .frames = n - 1,
	        .sent = n - 1,
	        .received = n > 1,
	        .copied = 1,
	        .frame = 1,
	};
}
