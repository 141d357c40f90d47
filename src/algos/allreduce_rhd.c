/*
 * Recursive halving and doubling all-reduce (Rabenseifner: Optimization of
 * collective reduction operations, 2004): a reduce-scatter in which partners at
 * distance 1, 2, 4 ... each keep one half of what they share, then the same way
 * back as an all-gather. Any n: extra ranks are folded first (see ranks.h).
 * Keeps rank order, since the distance grows: groups are contiguous.
 *
 *     n = 4, chunks kept     rank 0   1   2   3
 *     distance 1                 01  23  01  23
 *     distance 2                 0   2   1   3     then back: 01 23 01 23, all
 *
 * Powers of two: 2 log2 n rounds, 2(n-1)/n of the vector sent by each rank. Other
 * n: two more rounds and one more vector for the folded ranks and their partners.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

/* Chunks [first, first + len) this virtual rank keeps after the rounds with
 * distances below mask. */
static void kept(const struct coll_fold *f, int mask, int *first, int *len)
{
	*first = 0;
	*len = f->pow2;
	for (int m = 1; m < mask; m *= 2) {
		*len /= 2;
		if (f->virt & m)
			*first += *len;
	}
}

static void halving(struct coll_builder *b, const struct coll_fold *f, struct coll_at sum)
{
	for (int mask = 1; mask < f->pow2; mask *= 2) {
		const int virt = f->virt ^ mask, partner = coll_fold_rank(f, virt);
		const int incoming = coll_fold_end(f, virt, mask) - coll_fold_first(f, virt, mask);
		const bool upper = (f->virt & mask) != 0;
		int first, len;

		kept(f, mask, &first, &len);
		len /= 2;
		coll_build_run(b, (uint32_t)len, 0, 0, false);
		sum.chunk = (uint32_t)(upper ? first : first + len);
		coll_build_send(b, partner, sum);
		sum.chunk = (uint32_t)(upper ? first + len : first);
		coll_build_recv_reduce(b, partner, sum, coll_out(sum.chunk),
		                       upper ? COLL_INCOMING_LEFT : COLL_INCOMING_RIGHT, (uint32_t)incoming, len == 1);
		sum.buf = COLL_BUF_OUT;
	}
}

static void doubling(struct coll_builder *b, const struct coll_fold *f)
{
	for (int mask = f->pow2 / 2; mask > 0; mask /= 2) {
		const int partner = coll_fold_rank(f, f->virt ^ mask);
		const bool upper = (f->virt & mask) != 0;
		int first, len;

		kept(f, mask, &first, &len);
		len /= 2;
		coll_build_run(b, (uint32_t)len, 0, 0, false);
		coll_build_send(b, partner, coll_out((uint32_t)(upper ? first + len : first)));
		coll_build_recv(b, partner, coll_out((uint32_t)(upper ? first : first + len)));
	}
}

coll_status coll_algo_allreduce_rhd(const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_fold f = coll_fold_of(s);
	struct coll_at sum = coll_in(0);

	coll_build_chunks(b, (uint32_t)f.pow2);
	coll_build_run(b, (uint32_t)f.pow2, 0, 0, false);
	if (s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	if (f.virt < 0) {
		coll_build_send(b, s->rank - 1, coll_in(0));
		coll_build_recv(b, s->rank - 1, coll_out(0));
		return coll_build_status(b);
	}
	if (coll_fold_has_extra(&f)) {
		coll_build_recv_reduce(b, s->rank + 1, sum, coll_out(0), COLL_INCOMING_RIGHT, 1, false);
		sum = coll_out(0);
	}
	halving(b, &f, sum);
	doubling(b, &f);
	if (coll_fold_has_extra(&f)) {
		coll_build_run(b, (uint32_t)f.pow2, 0, 0, false);
		coll_build_send(b, s->rank + 1, coll_out(0));
	}
	return coll_build_status(b);
}

void coll_cost_allreduce_rhd(int n, struct coll_algo_cost *c)
{
	double folded = (n & (n - 1)) != 0;
	double rounds = coll_floor_log2(n);
	double pow2 = 1 << coll_floor_log2(n);
	double most = (pow2 - 1) / pow2;

	*c = (struct coll_algo_cost){
	        .rounds = 2 * (rounds + folded),
	        .frames = 4 * rounds + 2 * folded,
	        .sent = 2 * most + folded,
	        .received = 2 * most + folded,
	        .reduced = most + folded,
	        .copied = n == 1 || folded ? 1 : most,
	        .frame = n == 1 || folded ? 1 : 0.5,
	};
}
