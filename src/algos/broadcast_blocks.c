/*
 * Broadcast of a vector in so many blocks, one a round, in the fewest rounds there can be
 * (Traff, arXiv 2407.18004; see blocks.h): blocks - 1 + ceil(log2 n). No rank sends more than one
 * block in a round, so long vectors pass at the full rate of a link whatever n is.
 *
 *     n = 3, 2 blocks, root 0 (skips 1 2 1 ...)      0 -> 1: 0    0 -> 2: 1    0 -> 1: 1, 1 -> 2: 0
 *
 * The first rounds that would move nothing are left out. Blocks beyond the last one count as
 * the last; a rank that has it gets it no more, so everyone receives each block once.
 */
#include "algos/broadcast_blocks.h"

#include "algos/blocks.h"
#include "algos/generators.h"
#include "algos/ranks.h"

struct walk {
	struct coll_blocks_graph graph;
	int blocks;
	int first; /* rounds left out: a whole number of phases ends with the last round */
};

/* Block of a schedule's entry in a round; negative: none. */
static int block_at(const struct walk *w, int entry, int round)
{
	return entry - w->first + round / w->graph.q * w->graph.q;
}

/* Round in which rank v gets the last block: the first that moves it or one beyond it. */
static int last_comes(const struct walk *w, int v)
{
	int8_t gets[COLL_BLOCKS_ROUNDS_MAX];
	int round = w->first;

	coll_blocks_received(&w->graph, v, gets);
	while (block_at(w, gets[round % w->graph.q], round) < w->blocks - 1)
		round++;
	return round;
}

static void send_block(const struct coll_shape *s, struct coll_builder *b, const struct walk *w, int v, int to,
                       int block, int round)
{
	const bool last = block >= w->blocks - 1;
	const uint32_t chunk = (uint32_t)(last ? w->blocks - 1 : block);

	if (block < 0 || to == 0 || (last && last_comes(w, to) != round))
		return;
	coll_build_send(b, (to + s->root) % s->size, v == 0 ? coll_in(chunk) : coll_out(chunk));
}

static void rounds(const struct coll_shape *s, struct coll_builder *b, const struct walk *w, int v)
{
	const int n = w->graph.n, q = w->graph.q;
	const int end = v == 0 ? -1 : last_comes(w, v);
	int8_t gives[COLL_BLOCKS_ROUNDS_MAX], gets[COLL_BLOCKS_ROUNDS_MAX];

	coll_blocks_received(&w->graph, v, gets);
	coll_blocks_sent(&w->graph, v, gives);
	for (int round = w->first; round < w->first + w->blocks - 1 + q; round++) {
		const int skip = (int)w->graph.skip[round % q];
		const int got = block_at(w, gets[round % q], round);

		send_block(s, b, w, v, (v + skip) % n, block_at(w, gives[round % q], round), round);
		if (v == 0 || got < 0 || (got >= w->blocks - 1 && round != end))
			continue;
		coll_build_recv(b, (coll_mod(v - skip, n) + s->root) % n,
		                coll_out((uint32_t)(got < w->blocks - 1 ? got : w->blocks - 1)));
	}
}

coll_status coll_algo_broadcast_in_blocks(const struct coll_shape *s, struct coll_builder *b, int blocks)
{
	const int v = coll_peer_at(s, -s->root);
	struct walk w = {.blocks = blocks};

	coll_build_chunks(b, (uint32_t)blocks);
	if (s->size > 1) {
		coll_blocks_graph(&w.graph, s->size);
		w.first = (w.graph.q - (blocks - 1) % w.graph.q) % w.graph.q;
		rounds(s, b, &w, v);
	}
	if (v == 0) {
		coll_build_run(b, (uint32_t)blocks, 0, 0, false);
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	}
	return coll_build_status(b);
}

/* rounds and frames: at most, see algos_test.c; fewer where no rank waits for a round. */
static void cost(int n, int blocks, struct coll_algo_cost *c)
{
	double all = blocks - 1 + coll_ceil_log2(n); /* what the root sends */

	*c = (struct coll_algo_cost){
	        .rounds = n == 1   ? 0
	                  : n == 2 ? 1
	                           : all,
	        .frames = n == 1   ? 0
	                  : n == 2 ? blocks
	                  : n == 3 ? 1.5 * blocks
	                           : blocks + all - 1,
	        .sent = n == 1 ? 0 : all / blocks,
	        .received = n > 1,
	        .copied = 1,
	        .frame = 1.0 / blocks,
	};
}

#define BLOCKS(count)                                                                                     \
	coll_status coll_algo_broadcast_blocks##count(const struct coll_shape *s, struct coll_builder *b) \
	{                                                                                                 \
		return coll_algo_broadcast_in_blocks(s, b, count);                                        \
	}                                                                                                 \
	void coll_cost_broadcast_blocks##count(int n, struct coll_algo_cost *c)                           \
	{                                                                                                 \
		cost(n, count, c);                                                                        \
	}

BLOCKS(8)
BLOCKS(32)
