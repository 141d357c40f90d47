/*
 * Direct all-to-all: all sends start at once, nearest peer first, then all
 * blocks are received. Only the two ends of a frame know its length. As in the
 * pairwise algorithm, blocks that go backward leave from a copy, and what comes
 * from those peers is received first, without a wait; the other receives wait
 * for sends that such a first receive takes.
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
		const uint32_t peer = (uint32_t)coll_peer_at(s, i);
		struct coll_at src = coll_in(peer);

		if (aside(s, n - i)) {
			coll_build_copy(b, src, coll_scratch(0, peer), false);
			src = coll_scratch(0, peer);
		}
		coll_build_send(b, (int)peer, src);
	}
	coll_build_copy(b, coll_in(own), coll_out(own), false);
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
