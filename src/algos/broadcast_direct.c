/*
 * Direct broadcast: the root sends to every rank. One round; for few ranks and
 * short vectors.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_broadcast_direct(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	if (s->rank != s->root) {
		coll_build_recv(b, s->root, coll_out(0));
		return coll_build_status(b);
	}
	for (int i = 1; i < s->size; i++)
		coll_build_send(b, coll_peer_at(s, i), coll_in(0));
	coll_build_copy(b, coll_in(0), coll_out(0), false);
	return coll_build_status(b);
}

void coll_cost_broadcast_direct(int n, struct coll_algo_cost *c)
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
