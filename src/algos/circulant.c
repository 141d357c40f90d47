/*
 * The two phases on the circulant graph, see circulant.h.
 */
#include "algos/circulant.h"

#include "algos/ranks.h"

static struct coll_at block(const struct coll_shape *s, uint8_t buf, int j)
{
	return (struct coll_at){buf, (uint32_t)coll_peer_at(s, j)};
}

/* The blocks [skip, prev) to be sent: raw from `in` while none of them has been
 * added to (raw blocks are those from `touched` on). Only the last may be raw
 * among summed ones (n odd): it joins them. */
static struct coll_at outgoing(const struct coll_shape *s, struct coll_builder *b, uint8_t acc, int skip, int prev,
                               int touched)
{
	if (skip >= touched)
		return block(s, COLL_BUF_IN, skip);
	if (prev > touched) {
		assert(prev == touched + 1);
		coll_build_run(b, 1, 0, 0, false);
		coll_build_copy(b, block(s, COLL_BUF_IN, touched), block(s, acc, touched), false);
	}
	return block(s, acc, skip);
}

void coll_circulant_reduce_scatter(const struct coll_shape *s, struct coll_builder *b, uint8_t acc)
{
	int touched = 0;

	for (int prev = s->size, skip; prev > 1; prev = skip) {
		skip = (prev + 1) / 2;

		const int len = prev - skip;
		const struct coll_at src = outgoing(s, b, acc, skip, prev, touched);
		const uint8_t from = touched == 0 ? COLL_BUF_IN : acc;

		coll_build_run(b, (uint32_t)len, 0, 0, true);
		coll_build_send(b, coll_peer_at(s, skip), src);
		coll_build_recv_reduce(b, coll_peer_at(s, -skip), block(s, from, 0),
		                       block(s, skip == 1 ? COLL_BUF_OUT : acc, 0), COLL_INCOMING_LEFT, skip == 1);
		touched = len > touched ? len : touched;
	}
}

void coll_circulant_all_gather(const struct coll_shape *s, struct coll_builder *b, bool own_in)
{
	int skips[33];
	int rounds = 0;

	for (skips[0] = s->size; skips[rounds] > 1; rounds++)
		skips[rounds + 1] = (skips[rounds] + 1) / 2;
	for (int i = rounds; i > 0; i--) {
		const int skip = skips[i];
		const int len = skips[i - 1] - skip;
		const bool first = i == rounds;

		coll_build_run(b, (uint32_t)len, 0, 0, true);
		coll_build_send(b, coll_peer_at(s, -skip), block(s, first && own_in ? COLL_BUF_IN : COLL_BUF_OUT, 0));
		coll_build_recv(b, coll_peer_at(s, skip), block(s, COLL_BUF_OUT, skip));
		/* In a lane of its own: while the first receive waits. In place it may have to wait until
		 * the peer has taken our first block, which it can before it waits for anything. */
		if (first && own_in) {
			coll_build_lane(b, 1);
			coll_build_copy(b, block(s, COLL_BUF_IN, 0), block(s, COLL_BUF_OUT, 0), false);
			coll_build_lane(b, 0);
		}
	}
}
