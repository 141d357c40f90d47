/*
 * Recursive doubling all-gather: partners at distance 1, 2, 4 ... exchange all
 * they have, which is a contiguous range of blocks. Any n: extra ranks are folded
 * first (see ranks.h) and get everything at the end.
 *
 *     0 1 2 3  ->  01 01 23 23  ->  0123 x 4
 *
 * log2 n rounds and n-1 blocks for powers of two; else two rounds and n blocks
 * more for the folded pairs.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

/* Blocks held by the group of 2^k virtual ranks that starts at v. */
static void group_run(struct coll_builder *b, const struct coll_fold *f, int v, int mask, uint32_t *first)
{
	int begin = coll_fold_rank(f, v);
	int end = coll_fold_rank(f, v + mask);

	*first = (uint32_t)begin;
	coll_build_run(b, (uint32_t)(end - begin), 0, 0, false);
}

coll_status coll_algo_allgather_rdbl(const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_fold f = coll_fold_of(s);
	const uint32_t own = (uint32_t)s->rank;
	const uint32_t all = (uint32_t)s->size;

	coll_build_chunks(b, all);
	if (f.virt < 0) {
		coll_build_send(b, s->rank - 1, coll_in(own));
		coll_build_run(b, all, 0, 0, false);
		coll_build_recv(b, s->rank - 1, coll_out(0));
		return coll_build_status(b);
	}
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	if (coll_fold_has_extra(&f))
		coll_build_recv(b, s->rank + 1, coll_out(own + 1));
	for (int mask = 1; mask < f.pow2; mask *= 2) {
		const int ours = f.virt & ~(mask - 1);
		const int partner = coll_fold_rank(&f, f.virt ^ mask);
		uint32_t first;

		group_run(b, &f, ours, mask, &first);
		coll_build_send(b, partner, coll_out(first));
		group_run(b, &f, ours ^ mask, mask, &first);
		coll_build_recv(b, partner, coll_out(first));
	}
	if (coll_fold_has_extra(&f)) {
		coll_build_run(b, all, 0, 0, false);
		coll_build_send(b, s->rank + 1, coll_out(0));
	}
	return coll_build_status(b);
}

void coll_cost_allgather_rdbl(int n, struct coll_algo_cost *c)
{
	double folded = (n & (n - 1)) != 0;
	double rounds = coll_floor_log2(n);
	double sent = folded ? n : 0;
	int pow2 = 1 << coll_floor_log2(n);

	/* The groups of virtual rank 0 hold most folded ranks. */
	for (int mask = 1; mask < pow2; mask *= 2)
		sent += mask + (mask < n - pow2 ? mask : n - pow2);

	*c = (struct coll_algo_cost){
	        .rounds = coll_fold_rounds(n),
	        .frames = 2 * (rounds + folded),
	        .sent = sent,
	        .received = folded ? n : n - 1,
	        .copied = n,
	        .frame = folded || n == 1 ? n : pow2 / 2,
	};
}
