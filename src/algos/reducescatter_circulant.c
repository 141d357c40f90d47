/*
 * Circulant reduce-scatter (Traff, arXiv 2410.14234; see circulant.h).
 * Commutative operations only.
 *
 * ceil(log2 n) rounds, n-1 blocks sent by each rank, for every n; partial sums
 * take scratch of n/2 blocks.
 */
#include "algos/circulant.h"
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_reducescatter_circulant(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_levels v;
	coll_status status = coll_levels_init(&v, s, b, 0);

	if (!status && s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	if (!status)
		status = coll_circulant_reduce_scatter(&v, b, COLL_BUF_SCRATCH, true, NULL);
	coll_levels_fini(&v);
	return status ? status : coll_build_status(b);
}

void coll_cost_reducescatter_circulant(int n, struct coll_algo_cost *c)
{
	double rounds = coll_ceil_log2(n);

	*c = (struct coll_algo_cost){
	        .rounds = rounds,
	        .frames = 2 * rounds,
	        .sent = n - 1,
	        .received = n - 1,
	        .reduced = n - 1,
	        .copied = n == 1 || (n % 2 == 1 && n > 5),
	        .frame = n == 1 ? 1 : n / 2,
	        .scratch = n < 3   ? 0
	                   : n > 5 ? (n + 1) / 2
	                           : n / 2,
	};
}

void coll_split_reducescatter_circulant(const struct coll_layout *l, struct coll_algo_cost *inside,
                                        struct coll_algo_cost *between, struct coll_algo_links *links)
{
	coll_levels_cost(l, true, 1, inside, between, links);
	inside->reduced = inside->received;
	between->reduced = between->received;
	inside->scratch = l->size;
}
