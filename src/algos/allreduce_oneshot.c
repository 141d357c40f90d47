/*
 * One-shot all-reduce: every rank sends its whole vector to every other, then
 * reduces the n vectors in rank order, rounding once. For the smallest messages:
 * one round. The order of peers is rank + 1, rank + 2 ..., so that no rank is
 * the first peer of all.
 *
 * Rounds 1, frames n-1 each way, bytes (n-1) S, scratch (n-1) S.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allreduce_oneshot(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;

	if (n - 1 > COLL_SCRATCH_MAX)
		return COLL_ERR_UNSUPPORTED;
	coll_build_chunks(b, 1);
	if (n == 1) {
		coll_build_copy(b, coll_in(0), coll_out(0), true);
		return coll_build_status(b);
	}
	for (int i = 1; i < n; i++)
		coll_build_send(b, coll_peer_at(s, i), coll_in(0));
	for (int i = 1; i < n; i++) {
		int peer = coll_peer_at(s, -i);

		coll_build_recv(b, peer, coll_scratch(coll_index_without(s, peer), 0));
	}
	coll_build_reduce(b, 0, (uint32_t)n - 1, s->rank, 0, coll_out(0), true);
	return coll_build_status(b);
}

void coll_cost_allreduce_oneshot(int n, struct coll_algo_cost *c)
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
