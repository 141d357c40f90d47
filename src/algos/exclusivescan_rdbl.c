/*
 * Recursive doubling exclusive scan: in round k a rank sends the sum of what it has and of its own to rank + 2^k, and
 * puts what comes from rank - 2^k to the left of what it has. Keeps rank order.
 *
 *     has    -  0  1  2   ->   -  0  01  12   ->   -  0  01  012
 *     sends  0  1  2  3        0  01 12  23
 *
 * ceil(log2 n) steps, at most ceil(log2 n) vectors sent by a rank. What has come is kept apart from what is sent, since
 * this rank's own input is in the latter alone. What comes lies in front of what it is put to the left of, which
 * changes between two places; what is sent does, too.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

enum { COMES = 0, HAS = 1, PLACE = 2, SENDS = 4 }; /* scratch: two places of two vectors, then two to send */

coll_status coll_algo_exclusivescan_rdbl(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	struct coll_at own = coll_in(0);
	uint32_t at = 0;
	bool stored = false;

	coll_build_chunks(b, 1);
	for (int d = 1, round = 0; d < n; d *= 2, round++) {
		const bool sends_more = s->rank + 2 * d < n;
		const bool last = s->rank < 2 * d && !sends_more;

		if (s->rank + d < n)
			coll_build_send(b, s->rank + d, own);
		if (s->rank < d)
			continue;
		if (d == 1) {
			coll_build_recv(b, s->rank - 1, coll_scratch(HAS, 0));
		} else {
			const uint32_t next = PLACE - at;

			coll_build_recv(b, s->rank - d, coll_scratch(at + COMES, 0));
			coll_build_reduce(b, at + COMES, 2, -1, 0, last ? coll_out(0) : coll_scratch(next + HAS, 0),
			                  last);
			at = next;
			stored = last;
		}
		if (sends_more) {
			own = coll_scratch(SENDS + (uint32_t)round % 2, 0);
			coll_build_reduce(b, at + HAS, 1, 1, 0, own, false);
		}
	}
	if (s->rank > 0 && !stored)
		coll_build_copy(b, coll_scratch(at + HAS, 0), coll_out(0), true);
	return coll_build_status(b);
}

void coll_cost_exclusivescan_rdbl(int n, struct coll_algo_cost *c)
{
	const double rounds = coll_ceil_log2(n);
	double frames = rounds, reduced = 0;

	/* Rank r sends ceil(log2(n - r)) times, receives floor(log2 r) + 1 times; it reduces what it receives but for
	 * the first, and what it sends but for its own input, up to the last receive. */
	for (int r = 1; r < n; r *= 2) {
		const double sends = coll_ceil_log2(n - r), receives = coll_floor_log2(r) + 1;

		frames = coll_max(frames, sends + receives);
		reduced = coll_max(reduced, receives - 1 + (sends > receives ? receives : coll_max(sends - 1, 0)));
	}
	*c = (struct coll_algo_cost){
	        .rounds = coll_floor_log2(n),
	        .frames = frames,
	        .sent = rounds,
	        .received = rounds,
	        .reduced = reduced,
	        .copied = n > 1 ? coll_max(rounds, 2) : 0,
	        .frame = 1,
	        .scratch = n < 3   ? n - 1
	                   : n < 5 ? 2
	                   : n < 7 ? 4
	                   : n < 9 ? 5
	                           : 6,
	};
}
