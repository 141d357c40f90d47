/*
 * Direct all-gather: every rank sends its block to every other, the next one
 * first. One round, n-1 frames each way.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allgather_direct(const struct coll_shape *s, struct coll_builder *b)
{
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, (uint32_t)s->size);
	for (int i = 1; i < s->size; i++)
		coll_build_send(b, coll_peer_at(s, i), coll_in(own));
	for (int i = 1; i < s->size; i++) {
		int peer = coll_peer_at(s, -i);

		coll_build_recv(b, peer, coll_out((uint32_t)peer));
	}
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	return coll_build_status(b);
}

void coll_cost_allgather_direct(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n > 1,
	        .frames = 2 * (n - 1),
	        .sent = n - 1,
	        .received = n - 1,
	        .copied = n,
	        .frame = 1,
	};
}
