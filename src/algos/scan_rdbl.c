/*
 * Recursive doubling scan (Hillis, Steele: Data parallel algorithms, 1986): in
 * round k a rank sends what it has to rank + 2^k and puts what comes from
 * rank - 2^k to the left of it. Keeps rank order.
 *
 *     0  1  2  3   ->   0  01  12  23   ->   0  01  012  0123
 *
 * ceil(log2 n) steps, though no chain of frames is longer than floor(log2 n); at
 * most ceil(log2 n) vectors sent by a rank. Each step reduces from one buffer to
 * another, so that no receive waits for a send of its own step (the waits would
 * run down the whole line). A partial sum that is also this rank's result is kept
 * apart from it: the result may still be divided (avg), what others build on may
 * not.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_scan_rdbl(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	struct coll_at sum = coll_in(0);
	bool stored = false;

	coll_build_chunks(b, 1);
	for (int d = 1, round = 0; d < n; d *= 2, round++) {
		const bool sends = s->rank + d < n;
		const bool receives = s->rank >= d;
		const bool last = s->rank < 2 * d && s->rank + 2 * d >= n;

		if (sends)
			coll_build_send(b, s->rank + d, sum);
		if (receives) {
			const struct coll_at next = last ? coll_out(0) : coll_scratch((uint32_t)round % 2, 0);

			const int incoming = s->rank - d + 1 < d ? s->rank - d + 1 : d;

			coll_build_recv_reduce(b, s->rank - d, sum, next, COLL_INCOMING_LEFT, (uint32_t)incoming, last);
			sum = next;
			stored = last;
		}
	}
	if (!stored)
		coll_build_copy(b, sum, coll_out(0), true);
	return coll_build_status(b);
}

void coll_cost_scan_rdbl(int n, struct coll_algo_cost *c)
{
	double rounds = coll_ceil_log2(n);
	double frames = rounds;

	/* Rank r sends ceil(log2(n - r)) times, receives floor(log2 r) + 1 times. */
	for (int r = 1; r < n; r *= 2)
		frames = coll_max(frames, coll_ceil_log2(n - r) + coll_floor_log2(r) + 1);

	*c = (struct coll_algo_cost){
	        .rounds = coll_floor_log2(n),
	        .frames = frames,
	        .sent = rounds,
	        .received = rounds,
	        .reduced = rounds,
	        .copied = 1,
	        .frame = 1,
	        .scratch = n < 3   ? 0
	                   : n < 5 ? 1
	                           : 2,
	};
}
