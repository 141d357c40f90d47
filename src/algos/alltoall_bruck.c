/*
 * Bruck's all-to-all (Bruck et al.: Efficient algorithms for all-to-all
 * communications in multiport message-passing systems, 1997). Blocks are
 * numbered by the distance i they have to go; round k moves every block whose
 * number has bit k set by 2^k ranks. Uniform blocks only: different blocks share
 * a place.
 *
 *     scratch 0:  block i of mine is for rank + i
 *     round k:    send {i: bit k} to rank + 2^k, receive the same numbers from
 *                 rank - 2^k into scratch 1, move them to scratch 0
 *     at the end: block i came from rank - i
 *
 * ceil(log2 n) rounds, about n/2 blocks each: for small blocks. Received blocks
 * go through scratch 1 so that no receive waits for a send of its own round.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

/* How many of 0 .. n-1 have the bit `mask` set. */
static int numbers_with(int n, int mask)
{
	int full = n / (2 * mask) * mask;
	int rest = n % (2 * mask) - mask;

	return full + (rest > 0 ? rest : 0);
}

coll_status coll_algo_alltoall_bruck(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const uint32_t own = (uint32_t)s->rank;
	int top = 0; /* the last round's bit */

	if (!s->uniform)
		return COLL_ERR_UNSUPPORTED;
	coll_build_chunks(b, (uint32_t)n);
	if (n > 1) {
		coll_build_run(b, (uint32_t)n - 1, 0, 0, true);
		coll_build_copy(b, coll_in((uint32_t)coll_peer_at(s, 1)), coll_scratch(0, 1), false);
	}
	for (int mask = 1; mask < n; mask *= 2) {
		const uint32_t first = (uint32_t)mask;

		coll_build_run(b, (uint32_t)numbers_with(n, mask), first, 2 * first, false);
		coll_build_send(b, coll_peer_at(s, mask), coll_scratch(0, first));
		coll_build_recv(b, coll_peer_at(s, -mask), coll_scratch(1, first));
		if (mask * 2 < n)
			coll_build_copy(b, coll_scratch(1, first), coll_scratch(0, first), false);
		top = mask;
	}
	coll_build_run(b, 1, 0, 0, false);
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	for (int i = 1; i < n; i++)
		coll_build_copy(b, coll_scratch(i & top ? 1 : 0, (uint32_t)i), coll_out((uint32_t)coll_peer_at(s, -i)),
		                false);
	return coll_build_status(b);
}

void coll_cost_alltoall_bruck(int n, struct coll_algo_cost *c)
{
	double sent = 0, frame = n == 1;
	double last = 0;

	for (int mask = 1; mask < n; mask *= 2) {
		last = numbers_with(n, mask);
		sent += last;
		frame = coll_max(frame, last);
	}
	*c = (struct coll_algo_cost){
	        .rounds = coll_ceil_log2(n),
	        .frames = 2 * coll_ceil_log2(n),
	        .sent = sent,
	        .received = sent,
	        .copied = 2 * n - 1 + 2 * sent - last,
	        .frame = frame,
	        .scratch = 2 * (n - 1),
	};
}
