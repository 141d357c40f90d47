/*
 * Circulant all-reduce (Traff, arXiv 2410.14234): reduce-scatter, then
 * all-gather on the circulant graph, see circulant.h. Commutative operations.
 *
 * 2 ceil(log2 n) rounds and 2(n-1)/n of the vector sent by each rank, for every
 * n: the default wherever bytes count. With a layout, level by level: see levels.h.
 */
#include "algos/circulant.h"
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allreduce_circulant(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_levels v;
	coll_status status = coll_levels_init(&v, s, b, 0);

	if (!status && s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	if (!status)
		status = coll_circulant_reduce_scatter(&v, b, COLL_BUF_OUT, true, NULL);
	if (!status)
		status = coll_circulant_all_gather(&v, b, false, -1);
	coll_levels_fini(&v);
	return status ? status : coll_build_status(b);
}

void coll_cost_allreduce_circulant(int n, struct coll_algo_cost *c)
{
	double rounds = coll_ceil_log2(n);
	double most = (n - 1.0) / n;

	*c = (struct coll_algo_cost){
	        .rounds = 2 * rounds,
	        .frames = 4 * rounds,
	        .sent = 2 * most,
	        .received = 2 * most,
	        .reduced = most,
	        .copied = n == 1                ? 1
	                  : n % 2 == 1 && n > 5 ? 1
	                                        : most,
	        .frame = n == 1 ? 1 : (double)(n / 2) / n,
	};
}

void coll_split_allreduce_circulant(const struct coll_layout *l, struct coll_algo_cost *inside,
                                    struct coll_algo_cost *between, struct coll_algo_links *links)
{
	coll_levels_cost(l, false, 2, inside, between, links);
	/* Half of it is reduced, half is the result. */
	inside->reduced = inside->copied = inside->received / 2;
	between->reduced = between->copied = between->received / 2;
}
