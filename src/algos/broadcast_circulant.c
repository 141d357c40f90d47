/*
 * Broadcast as scatter and all-gather (van de Geijn: Barnett et al.,
 * Interprocessor collective communication library, 1994), the all-gather on the
 * circulant graph (Traff, arXiv 2410.14234; see circulant.h). Ranks and chunks
 * are counted from the root, so a rank's chunk has its own number v.
 *
 *     scatter:     halving tree, chunks [v, v + subtree) arrive at v
 *     all-gather:  v gets [v + s, ...) from v + s, gives [v, ...) to v - s;
 *                  the root needs nothing, so nothing is sent to it
 *
 * 2 ceil(log2 n) - 1 rounds; no rank sends more than 2(n-1)/n of the vector.
 */
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

static int rank_of(const struct coll_shape *s, int v)
{
	return (v + s->root) % s->size;
}

static void scatter(const struct coll_shape *s, struct coll_builder *b, int v, uint8_t src)
{
	struct coll_tree_place at;

	coll_tree_halving(s->size, 0, v, &at);
	if (at.parent >= 0) {
		coll_build_run(b, (uint32_t)(at.own.end - at.own.first), 0, 0, false);
		coll_build_recv(b, rank_of(s, at.parent), coll_out((uint32_t)at.own.first));
	}
	for (int i = 0; i < at.children; i++) {
		const struct coll_tree_range *child = &at.child[i];

		coll_build_run(b, (uint32_t)(child->end - child->first), 0, 0, false);
		coll_build_send(b, rank_of(s, child->leader), (struct coll_at){src, (uint32_t)child->first});
	}
}

static void all_gather(const struct coll_shape *s, struct coll_builder *b, int v, uint8_t src)
{
	const int n = s->size;
	int skips[33];
	int rounds = 0;

	for (skips[0] = n; skips[rounds] > 1; rounds++)
		skips[rounds + 1] = (skips[rounds] + 1) / 2;
	for (int i = rounds; i > 0; i--) {
		const int skip = skips[i];
		const int to = coll_mod(v - skip, n);

		coll_build_run(b, (uint32_t)(skips[i - 1] - skip), 0, 0, true);
		if (to != 0)
			coll_build_send(b, rank_of(s, to), (struct coll_at){src, (uint32_t)v});
		if (v != 0)
			coll_build_recv(b, rank_of(s, v + skip), coll_out((uint32_t)((v + skip) % n)));
	}
}

coll_status coll_algo_broadcast_circulant(const struct coll_shape *s, struct coll_builder *b)
{
	const int v = coll_peer_at(s, -s->root);
	const uint8_t src = v == 0 ? COLL_BUF_IN : COLL_BUF_OUT;

	coll_build_chunks(b, (uint32_t)s->size);
	scatter(s, b, v, src);
	all_gather(s, b, v, src);
	if (v == 0) {
		coll_build_run(b, (uint32_t)s->size, 0, 0, false);
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	}
	return coll_build_status(b);
}

void coll_cost_broadcast_circulant(int n, struct coll_algo_cost *c)
{
	double rounds = coll_ceil_log2(n);
	double most = (n - 1.0) / n;
	double half = (double)(n / 2) / n;

	*c = (struct coll_algo_cost){
	        .rounds = n == 1 ? 0 : 2 * rounds - 1,
	        .frames = n == 1 ? 0 : 3 * rounds - 1 - (n > 2 && ((n - 1) & (n - 2)) == 0),
	        .sent = 2 * most,
	        .received = most + half,
	        .copied = n == 1 ? 1 : most + half,
	        .frame = n == 1 ? 1 : half,
	};
}
