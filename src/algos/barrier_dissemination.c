/*
 * Dissemination barrier (Hensgen, Finkel, Manber: Two algorithms for barrier
 * synchronization, 1988): in round k a rank signals rank + 2^k and waits for
 * rank - 2^k. After ceil(log2 n) rounds every rank has received a signal, directly or not,
 * from every other rank. The signal is a vector of one byte, the same on all ranks.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_barrier_dissemination(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	for (int d = 1; d < s->size; d *= 2) {
		coll_build_send(b, coll_peer_at(s, d), coll_in(0));
		coll_build_recv(b, coll_peer_at(s, -d), coll_scratch(0, 0));
	}
	return coll_build_status(b);
}

void coll_cost_barrier_dissemination(int n, struct coll_algo_cost *c)
{
	double rounds = coll_ceil_log2(n);

	*c = (struct coll_algo_cost){
	        .rounds = rounds,
	        .frames = 2 * rounds,
	        .sent = rounds,
	        .received = rounds,
	        .copied = rounds,
	        .frame = 1,
	        .scratch = n > 1,
	};
}
