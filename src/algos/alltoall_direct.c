/*
 * Direct all-to-all: all sends start at once, nearest peer first, then all
 * blocks are received. Only the two ends of a frame know its length. As in the
 * pairwise algorithm, blocks that go backward leave from a copy, and what comes
 * from those peers is received first, without a wait; the other receives wait
 * for sends that such a first receive takes. The own block has a lane of its own: it is
 * copied while peers are waited for.
 *
 * One round, n-1 frames each way; scratch of n/2 blocks.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

/* Whether the block to the peer at distance -i is sent from a copy. */
static bool aside(const struct coll_shape *s, int i)
{
	return 2 * i < s->size || (2 * i == s->size && s->rank >= s->size / 2);
}

coll_status coll_algo_alltoall_direct(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, (uint32_t)n);
	for (int i = 1; i < n; i++) {
		const int peer = coll_peer_at(s, i);

		if (aside(s, n - i))
			coll_build_send_aside(b, peer, (uint32_t)peer, 0);
		else
			coll_build_send(b, peer, coll_in((uint32_t)peer));
	}
	coll_build_lane(b, 1);
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	coll_build_lane(b, 0);
	for (int i = 1; i < n; i++) {
		const int peer = coll_peer_at(s, -i);

		coll_build_recv(b, peer, coll_out((uint32_t)peer));
	}
	return coll_build_status(b);
}

void coll_cost_alltoall_direct(int n, struct coll_algo_cost *c)
{
	*c = (struct coll_algo_cost){
	        .rounds = n > 1,
	        .frames = 2 * (n - 1),
	        .sent = n - 1,
	        .received = n - 1,
	        .copied = n + n / 2,
	        .frame = 1,
	        .scratch = n / 2,
	};
}
