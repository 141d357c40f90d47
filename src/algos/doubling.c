/*
 * See doubling.h.
 */
#include "algos/doubling.h"

#include "algos/ranks.h"

/* How many contributions members [first, end) hold. */
static uint32_t held(const uint32_t *before, int first, int end)
{
	return before ? before[end] - before[first] : (uint32_t)(end - first);
}

static int rank_of(const int *ranks, int member)
{
	return ranks ? ranks[member] : member;
}

/* Two partners that reduce from `in` to `out` at once are the one case where
 * the two buffers may be the same bytes: the upper one sends a copy. */
static struct coll_at stage_if_last(struct coll_builder *b, struct coll_at sum, bool last, bool upper)
{
	if (!last || !upper || sum.buf != COLL_BUF_IN)
		return sum;
	coll_build_copy(b, sum, coll_scratch(0, 0), false);
	return coll_scratch(0, 0);
}

void coll_doubling(struct coll_builder *b, int n, int me, const int *ranks, const uint32_t *before, struct coll_at sum)
{
	const struct coll_shape team = {.rank = me, .size = n};
	const struct coll_fold f = coll_fold_of(&team);

	if (f.virt < 0) {
		coll_build_send(b, rank_of(ranks, me - 1), sum);
		coll_build_recv(b, rank_of(ranks, me - 1), coll_out(0));
		return;
	}
	if (coll_fold_has_extra(&f)) {
		coll_build_recv_reduce(b, rank_of(ranks, me + 1), sum, coll_scratch(1, 0), COLL_INCOMING_RIGHT,
		                       held(before, me + 1, me + 2), false);
		sum = coll_scratch(1, 0);
	}
	for (int mask = 1, round = 0; mask < f.pow2; mask *= 2, round++) {
		const int virt = f.virt ^ mask, partner = rank_of(ranks, coll_fold_rank(&f, virt));
		const bool last = mask * 2 == f.pow2;
		const bool upper = (f.virt & mask) != 0;
		const struct coll_at next = last ? coll_out(0) : coll_scratch((uint32_t)round % 2, 0);

		coll_build_send(b, partner, stage_if_last(b, sum, last, upper));
		coll_build_recv_reduce(b, partner, sum, next, upper ? COLL_INCOMING_LEFT : COLL_INCOMING_RIGHT,
		                       held(before, coll_fold_first(&f, virt, mask), coll_fold_end(&f, virt, mask)),
		                       last);
		sum = next;
	}
	if (coll_fold_has_extra(&f))
		coll_build_send(b, rank_of(ranks, me + 1), coll_out(0));
}
