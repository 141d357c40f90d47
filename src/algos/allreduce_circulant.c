/*
 * Circulant all-reduce (Traff, arXiv 2410.14234): reduce-scatter, then
 * all-gather on the circulant graph, see circulant.h. Commutative operations.
 *
 * 2 ceil(log2 n) rounds and 2(n-1)/n of the vector sent by each rank, for every
 * n: the default wherever bytes count.
 */
#include "algos/circulant.h"
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allreduce_circulant(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, (uint32_t)s->size);
	if (s->size == 1) {
		coll_build_copy(b, coll_in(0), coll_out(0), true);
		return coll_build_status(b);
	}
	coll_circulant_reduce_scatter(s, b, COLL_BUF_OUT);
	coll_circulant_all_gather(s, b, false);
	return coll_build_status(b);
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
