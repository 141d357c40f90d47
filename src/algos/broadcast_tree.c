/*
 * Tree broadcast: down a binary tree, pipelined by tiles. Ranks are counted from
 * the root; v's children are 2v+1 and 2v+2.
 *
 *               0
 *           1       2
 *         3   4   5   6
 *
 * floor(log2 n) rounds; no rank sends more than two vectors, so long vectors
 * pass at half the speed of a link whatever n is.
 */
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_broadcast_tree(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const int v = coll_peer_at(s, -s->root);

	coll_build_chunks(b, 1);
	if (v > 0)
		coll_build_recv(b, ((v - 1) / 2 + s->root) % n, coll_out(0));
	for (int child = 2 * v + 1; child <= 2 * v + 2 && child < n; child++)
		coll_build_send(b, (child + s->root) % n, v == 0 ? coll_in(0) : coll_out(0));
	if (v == 0)
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	return coll_build_status(b);
}

void coll_cost_broadcast_tree(int n, struct coll_algo_cost *c)
{
	double children = n < 3 ? n - 1 : 2;

	*c = (struct coll_algo_cost){
	        .rounds = coll_floor_log2(n),
	        .frames = n < 5 ? children : 3,
	        .sent = children,
	        .received = n > 1,
	        .copied = 1,
	        .frame = 1,
	        .all_frames = 2.0 * (n - 1),
	        .all_sent = n - 1,
	};
}
