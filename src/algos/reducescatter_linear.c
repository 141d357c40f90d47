/*
 * Linear reduce-scatter: keeps rank order for any number of ranks. The ranks
 * form a line. Sums of lower ranks travel up on lane 0, sums of higher ranks
 * travel down on lane 1, and meet at the block's owner:
 *
 *     block 2, n = 5:   0 -> 01 -> [01] 2 [34] <- 34 <- 4
 *
 * Every rank sends n-1 blocks, one at a time, those that go farthest first, so
 * that the line is filled like a pipe. n-1 rounds. For operations that do not
 * commute, where n is too large for the direct one.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

/* Blocks above the own one go up, then the own one gets its lower part.
 * Returns where the sum of ranks 0 .. rank of the own block is. */
static struct coll_at upward(const struct coll_shape *s, struct coll_builder *b, uint32_t own)
{
	const int top = s->size - 1;
	struct coll_at sum = s->rank == top ? coll_out(own) : coll_scratch(0, own);

	for (int c = top; c > s->rank; c--) {
		struct coll_at block = coll_in((uint32_t)c);

		if (s->rank > 0) {
			coll_build_recv_reduce(b, s->rank - 1, block, coll_scratch(0, block.chunk), COLL_INCOMING_LEFT,
			                       (uint32_t)s->rank, false);
			block.buf = COLL_BUF_SCRATCH;
		}
		coll_build_send(b, s->rank + 1, block);
	}
	if (s->rank == 0)
		return coll_in(own);
	coll_build_recv_reduce(b, s->rank - 1, coll_in(own), sum, COLL_INCOMING_LEFT, (uint32_t)s->rank,
	                       s->rank == top);
	return sum;
}

static void downward(const struct coll_shape *s, struct coll_builder *b, uint32_t own, struct coll_at lower)
{
	const int top = s->size - 1;

	for (int c = 0; c < s->rank; c++) {
		struct coll_at block = coll_in((uint32_t)c);

		if (s->rank < top) {
			coll_build_recv_reduce(b, s->rank + 1, block, coll_scratch(1, block.chunk), COLL_INCOMING_RIGHT,
			                       (uint32_t)(top - s->rank), false);
			block = coll_scratch(1, block.chunk);
		}
		coll_build_send(b, s->rank - 1, block);
	}
	if (s->rank < top)
		coll_build_recv_reduce(b, s->rank + 1, lower, coll_out(own), COLL_INCOMING_RIGHT,
		                       (uint32_t)(top - s->rank), true);
}

coll_status coll_algo_reducescatter_linear(const struct coll_shape *s, struct coll_builder *b)
{
	const uint32_t own = (uint32_t)s->rank;
	struct coll_at lower;

	coll_build_chunks(b, (uint32_t)s->size);
	if (s->size == 1) {
		coll_build_copy(b, coll_in(own), coll_out(own), true);
		return coll_build_status(b);
	}
	lower = upward(s, b, own);
	coll_build_lane(b, 1);
	downward(s, b, own, lower);
	return coll_build_status(b);
}

void coll_cost_reducescatter_linear(int n, struct coll_algo_cost *c)
{
	double hops = n - 1;

	*c = (struct coll_algo_cost){
	        .rounds = hops,
	        .frames = 2 * hops + (n > 2 ? 2 : 0),
	        .sent = hops,
	        .received = hops + (n > 2 ? 2 : 0),
	        .reduced = hops + (n > 2 ? 2 : 0),
	        .copied = n == 1,
	        .frame = 1,
	        .scratch = n > 2 ? n : 0,
	};
}
