/*
 * Pairwise all-to-all: at step i a rank exchanges blocks with the ranks at
 * distance i on either side. Only the two ends of a frame need its length.
 *
 * In place a block that arrives lands where the block to the same peer lies, and
 * two partners that both waited for their own send would wait for ever: of each
 * pair, the rank that sends backward sends a copy.
 *
 *     step i:   copy in(r-i) aside, send it to r-i;   send in(r+i) to r+i
 *               receive from r-i (its own copy is aside: no wait)
 *               receive from r+i (waits until r+i has taken in(r+i))
 *
 * The own block has a lane of its own: it is copied while peers are waited for.
 *
 * n/2 rounds of two frames each way, n-1 blocks sent; scratch of n/2 blocks.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_alltoall_pairwise(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, (uint32_t)n);
	coll_build_lane(b, 1);
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	coll_build_lane(b, 0);
	for (int i = 1; 2 * i < n; i++) {
		const int after = coll_peer_at(s, i);
		const int before = coll_peer_at(s, -i);

		coll_build_send(b, after, coll_in((uint32_t)after));
		coll_build_send_aside(b, before, (uint32_t)before, 0);
		coll_build_recv(b, before, coll_out((uint32_t)before));
		coll_build_recv(b, after, coll_out((uint32_t)after));
	}
	if (n % 2 == 0) {
		const int opposite = coll_peer_at(s, n / 2);

		if (opposite < s->rank)
			coll_build_send_aside(b, opposite, (uint32_t)opposite, 0);
		else
			coll_build_send(b, opposite, coll_in((uint32_t)opposite));
		coll_build_recv(b, opposite, coll_out((uint32_t)opposite));
	}
	return coll_build_status(b);
}

void coll_cost_alltoall_pairwise(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n / 2,
	        .frames = 2 * (n - 1),
	        .sent = n - 1,
	        .received = n - 1,
	        .copied = n + n / 2,
	        .frame = 1,
	        .scratch = n / 2,
	};
}
