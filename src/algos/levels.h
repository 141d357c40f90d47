/*
 * Levels: what a rank does at each stage of a layout (plan/layout.h).
 *
 * The vector is cut into lanes once per stage, innermost stage first: at stage k the
 * ranks of an innermost group own M_k lanes, then each lane is cut into M_(k-1) lanes
 * owned by the groups of the next level, and so on, until at stage 0 each outermost
 * group owns one. A chunk is a tuple of lanes, the innermost most significant, so what
 * a rank owns in one ring is one run of chunks. For even groups this is the hierarchy in which
 * every group at every level lets out the least possible at the same time:
 * 2 (G - 1) / G of the vector in an all-reduce over G groups of that level.
 *
 * M_i is the most children that a group has at stage i; a child j of c owns the lanes
 * from ceil(j M / c) on, so groups of fewer children carry as many bytes with fewer
 * ranks. Vectors whose groups are uneven take at most COLL_LEVELS_LANES lanes.
 *
 * A ring is what a rank runs a circulant phase on: its group's children at a stage, each
 * represented by the rank that owns the ring's lanes.
 */
#ifndef COLL_ALGOS_LEVELS_H
#define COLL_ALGOS_LEVELS_H

#include "algos/algos.h"

enum {
	COLL_LEVELS_LANES = COLL_LAYOUT_LANES,
	COLL_LEVELS_STAGES = COLL_LAYOUT_LEVELS_MAX + 1,
	COLL_LEVELS_CHUNKS_MAX = 1 << 22
};

struct coll_levels {
	const struct coll_shape *shape;
	uint32_t stages;                    /* levels of the layout + 1; 1 without one */
	uint32_t outer;                     /* the first stage in use: chunks are cut by stages outer .. stages - 1 */
	uint32_t lanes[COLL_LEVELS_STAGES]; /* M_i; 1 before outer */
	uint32_t chunks;                    /* their product */
	const uint32_t *share;              /* lanes of each child of stage 0; NULL: equal */
	uint32_t *start;         /* block kinds of uneven groups: position of the first block at or after a chunk */
	uint32_t *block_at;      /* block kinds: block at a position; NULL: equal */
	struct coll_ring *rings; /* of the stage asked for last */
	uint32_t rings_capacity;
};

/* Block kinds: coll_levels_init() cuts one chunk per rank and tells the builder their order. Vector kinds: by stages
 * from outer on. Calls coll_build_chunks(). Freed with coll_levels_fini() when the plan is made. */
coll_status coll_levels_init(struct coll_levels *v, const struct coll_shape *s, struct coll_builder *b, uint32_t outer);
void coll_levels_fini(struct coll_levels *v);

struct coll_ring {
	const struct coll_levels *levels;
	uint32_t stage;
	uint32_t base, span; /* chunks of the ring: [base, base + span), base a multiple of span */
	uint32_t first;      /* the first child */
	int count;           /* of members */
	int me;
};

/* The rings of this rank at a stage: v->rings, until the next call. All have as many members. (Several: this
 * rank stands in for others that its group lacks; none: others stand in for it.) */
coll_status coll_levels_rings(struct coll_levels *v, uint32_t stage, uint32_t *count);

/* Whether a phase is an exchange of all with all at a stage: where its children own unequal shares, those that own
 * little should not relay for others. */
static inline bool coll_levels_direct(const struct coll_levels *v, uint32_t stage)
{
	return stage == 0 && v->share;
}

/* The position of a block, or a chunk of a vector, in runs. */
static inline uint32_t coll_levels_position(const struct coll_levels *v, uint32_t chunk)
{
	return v->start ? v->start[chunk] : chunk;
}

/*
 * Whether a phase goes round the ring from neighbour to neighbour at a stage. Block kinds whose groups hold unequal
 * numbers of ranks: on the circulant graph a large group would send its many blocks ceil(log2) times; round a
 * ring each group's blocks leave it once, so no group sends or receives more than the smallest one must receive (or
 * send).
 */
bool coll_levels_round(const struct coll_layout *layout, uint32_t stage, bool block);

/* Block kinds: the chunk of a rank's block. */
uint32_t coll_levels_own_chunk(const struct coll_levels *v, int rank);

/* The rank that owns a chunk's lanes in a group of level stage - 1. */
int coll_levels_owner(const struct coll_levels *v, uint32_t stage, uint32_t group, uint32_t chunk);

/* Member (me + distance) of the ring. */
int coll_ring_peer(const struct coll_ring *r, int distance);

/* How many ranks' contributions that member's chunks hold when the ring's stage begins. */
uint32_t coll_ring_held(const struct coll_ring *r, int distance);

/* What `phases` circulant phases over all stages cost: in the hosts of a layout, and between them. block: of one
 * block for each rank, else of one vector. Rates of reducing and storing are left to the caller: received says it. */
void coll_levels_cost(const struct coll_layout *layout, bool block, int phases, struct coll_algo_cost *inside,
                      struct coll_algo_cost *between, struct coll_algo_links *crossing);

/* A run: the chunks of members me + first .. me + first + len - 1. One or two pieces (two: it
 * comes back to the start of a span that no step can name), none when it is empty. */
struct coll_ring_run {
	uint32_t pieces;
	uint32_t chunk[2], len[2];
	uint32_t span; /* of each piece; see coll_build_run_within() */
};
struct coll_ring_run coll_ring_run(const struct coll_ring *r, int first, int len);

#endif
