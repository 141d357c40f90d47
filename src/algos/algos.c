/*
 * The table of algorithms. Order within a kind is the order in which equals are
 * preferred.
 */
#include "algos/algos.h"

#include <string.h>

#include "algos/generators.h"

#define ANY     0
#define INPUTS  (COLL_SCRATCH_MAX + 1) /* ranks whose operands one n-input reduction takes */
#define FEW     32                     /* whole vectors of all ranks in scratch */
#define ORDERED COLL_ALGO_ORDERED
#define RAGGED  COLL_ALGO_RAGGED
#define LINKS   COLL_ALGO_LINKS
#define SHORT   COLL_ALGO_SHORT
#define MESH    COLL_ALGO_MESH
#define CHAIN   COLL_ALGO_CHAIN
#define PAIRS   (COLL_ALGO_RAGGED | COLL_ALGO_PAIRWISE)

#define ROW(kind, name, flags, max_size, function)                                                        \
	{                                                                                                 \
		COLL_KIND_##kind, name, flags, max_size, coll_algo_##function, coll_cost_##function, NULL \
	}

/* Rows that read the layout; LAYOUT: rows that need one. */
#define LEVELS(kind, name, flags, max_size, function)                                                \
	{                                                                                            \
		COLL_KIND_##kind, name, flags, max_size, coll_algo_##function, coll_cost_##function, \
		        coll_split_##function                                                        \
	}
#define LAYOUT(kind, name, flags, max_size, function)                                                      \
	{                                                                                                  \
		COLL_KIND_##kind, name, flags, max_size, coll_algo_##function, NULL, coll_split_##function \
	}

/*
 * "ring" and "rhd" of all_reduce: forced only. No price makes ring first for any operation, nor rhd for one that
 * commutes (circulant sends no more, in no more rounds, and stands first). Operations that do not commute take rhd.
 */
/* clang-format off */
const struct coll_algo coll_algos[] = {
	LEVELS(ALL_REDUCE,  "circulant",     0,                ANY,    allreduce_circulant),
	ROW(ALL_REDUCE,     "rhd",           ORDERED,          ANY,    allreduce_rhd),
	ROW(ALL_REDUCE,     "twoshot",       ORDERED | MESH,   INPUTS, allreduce_twoshot),
	ROW(ALL_REDUCE,     "ring",          0,                ANY,    allreduce_ring),
	ROW(ALL_REDUCE,     "rdbl",          ORDERED,          ANY,    allreduce_rdbl),
	ROW(ALL_REDUCE,     "oneshot",       ORDERED | MESH,   FEW,    allreduce_oneshot),
	ROW(ALL_REDUCE,     "dbtree",        0,                ANY,    allreduce_dbtree),
	ROW(ALL_REDUCE,     "tree",          ORDERED,          ANY,    allreduce_tree),
	LAYOUT(ALL_REDUCE,  "leaders",       SHORT,            ANY,    allreduce_leaders),
	ROW(REDUCE,         "binomial",      ORDERED,          ANY,    reduce_binomial),
	ROW(REDUCE,         "tree",          ORDERED,          ANY,    reduce_tree),
	ROW(REDUCE,         "direct",        ORDERED,          FEW,    reduce_direct),
	LAYOUT(REDUCE,      "lanes",         CHAIN,            ANY,    reduce_lanes),
	LAYOUT(REDUCE,      "leaders",       SHORT,            ANY,    reduce_leaders),
	ROW(BROADCAST,      "binomial",      0,                ANY,    broadcast_binomial),
	ROW(BROADCAST,      "tree",          0,                ANY,    broadcast_tree),
	ROW(BROADCAST,      "circulant",     0,                ANY,    broadcast_circulant),
	ROW(BROADCAST,      "direct",        0,                ANY,    broadcast_direct),
	LAYOUT(BROADCAST,   "lanes",         CHAIN,            ANY,    broadcast_lanes),
	ROW(BROADCAST,      "blocks8",       LINKS,            ANY,    broadcast_blocks8),
	ROW(BROADCAST,      "blocks32",      LINKS,            ANY,    broadcast_blocks32),
	LAYOUT(BROADCAST,   "leaders",       SHORT,            ANY,    broadcast_leaders),
	LEVELS(ALL_GATHER,  "circulant",     RAGGED,           ANY,    allgather_circulant),
	ROW(ALL_GATHER,     "ring",          RAGGED,           ANY,    allgather_ring),
	ROW(ALL_GATHER,     "rdbl",          RAGGED,           ANY,    allgather_rdbl),
	ROW(ALL_GATHER,     "direct",        RAGGED | MESH,    ANY,    allgather_direct),
	LEVELS(REDUCE_SCATTER, "circulant",  RAGGED,           ANY,    reducescatter_circulant),
	ROW(REDUCE_SCATTER, "ring",          RAGGED,           ANY,    reducescatter_ring),
	ROW(REDUCE_SCATTER, "direct",        ORDERED | RAGGED | MESH, INPUTS, reducescatter_direct),
	ROW(REDUCE_SCATTER, "linear",        ORDERED | RAGGED, ANY,    reducescatter_linear),
	ROW(ALL_TO_ALL,     "pairwise",      PAIRS,            ANY,    alltoall_pairwise),
	ROW(ALL_TO_ALL,     "bruck",         0,                ANY,    alltoall_bruck),
	ROW(ALL_TO_ALL,     "direct",        PAIRS,            ANY,    alltoall_direct),
	ROW(GATHER,         "direct",        PAIRS,            ANY,    gather_direct),
	ROW(GATHER,         "binomial",      RAGGED,           ANY,    gather_binomial),
	ROW(SCATTER,        "direct",        PAIRS,            ANY,    scatter_direct),
	ROW(SCATTER,        "binomial",      RAGGED,           ANY,    scatter_binomial),
	ROW(SCAN,           "rdbl",          ORDERED,          ANY,    scan_rdbl),
	ROW(SCAN,           "linear",        ORDERED,          ANY,    scan_linear),
	ROW(EXCLUSIVE_SCAN, "rdbl",          ORDERED,          ANY,    exclusivescan_rdbl),
	ROW(EXCLUSIVE_SCAN, "linear",        ORDERED,          ANY,    exclusivescan_linear),
	ROW(BARRIER,        "dissemination", 0,                ANY,    barrier_dissemination),
	LAYOUT(BARRIER,     "leaders",       SHORT,            ANY,    barrier_leaders),
};
/* clang-format on */

const size_t coll_algos_count = sizeof(coll_algos) / sizeof(coll_algos[0]);

void coll_algo_cost(const struct coll_algo *a, int n, const struct coll_layout *layout, struct coll_algo_cost *cost)
{
	struct coll_algo_cost inside, between;
	struct coll_algo_links links;

	if (!layout || !a->split) {
		a->cost(n, cost);
		return;
	}
	a->split(layout, &inside, &between, &links);
	*cost = (struct coll_algo_cost){
	        .rounds = inside.rounds + between.rounds,
	        .frames = inside.frames + between.frames,
	        .sent = inside.sent + between.sent,
	        .received = inside.received + between.received,
	        .reduced = inside.reduced + between.reduced,
	        .copied = inside.copied + between.copied,
	        .frame = inside.frame > between.frame ? inside.frame : between.frame,
	        .scratch = inside.scratch + between.scratch,
	};
}

const struct coll_algo *coll_algo_find(enum coll_kind kind, const char *name)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (coll_algos[i].kind == kind && strcmp(coll_algos[i].name, name) == 0)
			return &coll_algos[i];
	return NULL;
}
