/*
 * Circulant all-gather (Traff, arXiv 2410.14234; see circulant.h): in each round
 * a rank hands the run of blocks it has to the rank `skip` before it. What Bruck's
 * algorithm does for powers of two, without the rotation at the end.
 *
 * ceil(log2 n) rounds, n-1 blocks sent by each rank, for every n.
 */
#include "algos/circulant.h"
#include "algos/generators.h"
#include "algos/ranks.h"

coll_status coll_algo_allgather_circulant(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_levels v;
	coll_status status = coll_levels_init(&v, s, b, 0);

	if (!status && s->size == 1)
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	if (!status)
		status = coll_circulant_all_gather(&v, b, true, -1);
	coll_levels_fini(&v);
	return status ? status : coll_build_status(b);
}

void coll_cost_allgather_circulant(int n, struct coll_algo_cost *c)
{
	double rounds = coll_ceil_log2(n);

	*c = (struct coll_algo_cost){
	        .rounds = rounds,
	        .frames = 2 * rounds,
	        .sent = n - 1,
	        .received = n - 1,
	        .copied = n,
	        .frame = n == 1 ? 1 : n / 2,
	};
}

void coll_split_allgather_circulant(const struct coll_layout *l, struct coll_algo_cost *inside,
                                    struct coll_algo_cost *between, struct coll_algo_links *links)
{
	coll_levels_cost(l, true, 1, inside, between, links);
	inside->copied = inside->received + 1;
	between->copied = between->received;
}
