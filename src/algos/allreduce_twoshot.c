/*
 * Two-shot all-reduce: a direct reduce-scatter (rank c gets chunk c of every rank
 * and reduces the n pieces in rank order, rounding once), then a direct
 * all-gather. Two rounds and the fewest bytes, at the price of n-1 frames each.
 *
 *     in:   rank r -- chunk c --> rank c        reduce n pieces
 *     out:  rank c -- chunk c --> every rank
 *
 * Rounds 2, frames 2(n-1) each way, bytes 2(n-1)/n S, scratch (n-1)/n S.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allreduce_twoshot(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const uint32_t own = (uint32_t)s->rank;

	if (n - 1 > COLL_SCRATCH_MAX)
		return COLL_ERR_UNSUPPORTED;
	coll_build_chunks(b, (uint32_t)n);
	if (n == 1) {
		coll_build_copy(b, coll_in(0), coll_out(0), true);
		return coll_build_status(b);
	}
	for (int i = 1; i < n; i++)
		coll_build_send(b, coll_peer_at(s, i), coll_in((uint32_t)coll_peer_at(s, i)));
	for (int i = 1; i < n; i++) {
		int peer = coll_peer_at(s, -i);

		coll_build_recv(b, peer, coll_scratch(coll_index_without(s, peer), own));
	}
	coll_build_reduce(b, 0, (uint32_t)n - 1, s->rank, own, coll_out(own), true);
	for (int i = 1; i < n; i++)
		coll_build_send(b, coll_peer_at(s, i), coll_out(own));
	for (int i = 1; i < n; i++) {
		int peer = coll_peer_at(s, -i);

		coll_build_recv(b, peer, coll_out((uint32_t)peer));
	}
	return coll_build_status(b);
}

void coll_cost_allreduce_twoshot(int n, struct coll_algo_cost *c)
{
	double peers = n - 1;

	*c = (struct coll_algo_cost){
	        .rounds = n > 1 ? 2 : 0,
	        .frames = 4 * peers,
	        .sent = 2 * peers / n,
	        .received = 2 * peers / n,
	        .reduced = peers / n,
	        .copied = n == 1 ? 1 : 2 * peers / n,
	        .frame = 1.0 / n,
	        .scratch = peers / n,
	};
}
