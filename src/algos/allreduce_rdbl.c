/*
 * Recursive doubling all-reduce: partners at distance 1, 2, 4 ... exchange their
 * whole partial sums. Any n: extra ranks are folded first (see ranks.h). Keeps
 * rank order, because the groups are contiguous; both partners combine the same
 * operands in the same order, so results are bitwise equal.
 *
 *     {0} {1} {2} {3}  ->  {01} {01} {23} {23}  ->  {0123} x 4
 *
 * Rounds ceil(log2 n), one more when n is above 1.5 times a power of two; bytes
 * log2(n) S. Each round reduces from one buffer to another (in, scratch 0, scratch
 * 1, scratch 0 ... out), so that no receive waits for a send of its own round: two
 * partners that both did would wait for each other.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

/* Two partners that reduce from `in` to `out` at once are the one case where
 * the two buffers may be the same bytes: the upper one sends a copy. */
static struct coll_at stage_if_last(struct coll_builder *b, struct coll_at sum, bool last, bool upper)
{
	if (!last || !upper || sum.buf != COLL_BUF_IN)
		return sum;
	coll_build_copy(b, sum, coll_scratch(0, 0), false);
	return coll_scratch(0, 0);
}

coll_status coll_algo_allreduce_rdbl(const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_fold f = coll_fold_of(s);
	struct coll_at sum = coll_in(0);

	coll_build_chunks(b, 1);
	if (s->size == 1)
		coll_build_copy(b, sum, coll_out(0), true);
	if (f.virt < 0) {
		coll_build_send(b, s->rank - 1, sum);
		coll_build_recv(b, s->rank - 1, coll_out(0));
		return coll_build_status(b);
	}
	if (coll_fold_has_extra(&f)) {
		coll_build_recv_reduce(b, s->rank + 1, sum, coll_scratch(1, 0), COLL_INCOMING_RIGHT, false);
		sum = coll_scratch(1, 0);
	}
	for (int mask = 1, round = 0; mask < f.pow2; mask *= 2, round++) {
		const int partner = coll_fold_rank(&f, f.virt ^ mask);
		const bool last = mask * 2 == f.pow2;
		const bool upper = (f.virt & mask) != 0;
		const struct coll_at next = last ? coll_out(0) : coll_scratch((uint32_t)round % 2, 0);

		coll_build_send(b, partner, stage_if_last(b, sum, last, upper));
		coll_build_recv_reduce(b, partner, sum, next, upper ? COLL_INCOMING_LEFT : COLL_INCOMING_RIGHT, last);
		sum = next;
	}
	if (coll_fold_has_extra(&f))
		coll_build_send(b, s->rank + 1, coll_out(0));
	return coll_build_status(b);
}

void coll_cost_allreduce_rdbl(int n, struct coll_algo_cost *c)
{
	double folded = (n & (n - 1)) != 0;
	double rounds = coll_floor_log2(n);

	*c = (struct coll_algo_cost){
	        .rounds = coll_fold_rounds(n),
	        .frames = 2 * (rounds + folded),
	        .sent = rounds + folded,
	        .received = rounds + folded,
	        .reduced = rounds + folded,
	        .copied = n <= 2 || folded ? 1 : 0,
	        .frame = 1,
	        .scratch = (n > 1) + (n > 4),
	        .aside = n == 2 || n == 3,
	};
}
