/*
 * range(buffer, chunk, tile): where the bytes of a step are.
 *
 * Vector kinds: the tile is the outer cut and is cut into the plan's chunks by
 * coll_cut(). Block kinds: the tile is a strip of each block. A step's bytes are
 * usually one span; runs that wrap, have gaps or cover several blocks are walked
 * span by span, in the order in which they lie in the frame. All in elements;
 * nothing here moves a byte.
 */
#ifndef COLL_ENGINE_RANGE_H
#define COLL_ENGINE_RANGE_H

#include "engine/engine.h"
#include "engine/state.h"

/* Which sides of a step exist. */
enum { SIDE_SRC = 1, SIDE_DST = 2, SIDE_BOTH = 3 };

struct span {
	char *src; /* NULL when the step has no such side */
	char *dst;
	size_t len;                            /* elements */
	const struct coll_plan_weight *weight; /* means: of all of it; else not set */
};

struct walk {
	struct span span;
	uint32_t next; /* first chunk of the run after span */
};

/* Largest tile (elements) such that no frame of the plan exceeds slot_bytes;
 * at least 1. The caller may use less. */
size_t coll_run_tile(const struct coll_plan *plan, size_t elem_bytes, size_t slot_bytes);
size_t coll_run_scratch_bytes(const struct coll_plan *plan, size_t tile, size_t elem_bytes, uint32_t windows);

/* Bytes of one instance's scratch; at[k] (may be NULL): offset of buffer k. */
size_t coll_run_slice(const struct coll_plan *plan, size_t tile, size_t elem_bytes, size_t *at);

/* First element of chunk c of the tile; c == chunks: the tile's end. */
static inline size_t cut_at(const struct instance *inst, uint32_t c)
{
	return c * inst->q + (c < inst->r ? c : inst->r);
}

/* Chunk id within [0, chunks). */
static inline uint32_t wrapped(const struct coll_plan *plan, uint32_t c)
{
	return c < plan->chunks ? c : c % plan->chunks;
}

static inline const struct coll_extent *extent_of(const struct coll_run *run, uint8_t buf)
{
	return buf == COLL_BUF_IN ? &run->job.in : &run->job.out;
}

/* The weights of chunk i of a step's run; NULL: the step has none. */
static inline const struct coll_plan_weight *weight_of(const struct coll_plan *plan, const struct coll_step *s,
                                                       uint32_t i)
{
	uint32_t count;
	const struct coll_plan_weight *w = coll_step_weights(plan, s, &count);

	while (count > 0 && i >= w->end)
		w++;
	return count > 0 ? w : NULL;
}

/* Where a step's source lies: see COLL_STEP_ASIDE. */
static inline uint8_t source_of(const struct coll_run *run, const struct coll_step *s)
{
	if (run->aside && s->op == COLL_STEP_SEND && s->src >= COLL_BUF_SCRATCH)
		return COLL_BUF_IN;
	return s->flags & COLL_STEP_ASIDE && !run->in_place ? COLL_BUF_IN : s->src;
}

/* Elements of chunk c in this tile. */
static inline size_t chunk_len(const struct coll_run *run, const struct instance *inst, uint8_t buf, uint32_t c)
{
	size_t count;

	if (!run->block)
		return cut_at(inst, c + 1) - cut_at(inst, c);
	if (buf >= COLL_BUF_SCRATCH)
		count = run->layout_counts ? run->layout_counts[c] : run->layout_count;
	else
		count = extent_of(run, buf)->counts ? extent_of(run, buf)->counts[c] : extent_of(run, buf)->count;
	if (count <= inst->first)
		return 0;
	count -= inst->first;
	return count < run->job.tile ? count : run->job.tile;
}

/* Elements between the start of a buffer and block c in it. */
static inline size_t block_offset(const struct coll_run *run, uint8_t buf, uint32_t c)
{
	const struct coll_extent *e = extent_of(run, buf);

	if (e->single)
		return 0;
	if (e->stride)
		return c * e->stride;
	if (e->offsets)
		return e->offsets[c];
	if (e->counts)
		return buf == COLL_BUF_IN ? run->in_offsets[c] : run->out_offsets[c];
	return c * e->count;
}

static inline char *scratch_address(const struct coll_run *run, const struct instance *inst, uint32_t k, uint32_t c)
{
	const uint32_t first = run->job.plan->scratch[k].first;
	size_t at;

	if (!run->block)
		at = cut_at(inst, c) - cut_at(inst, first) + (c < first ? inst->len : 0);
	else
		at = (c < first ? c + run->job.plan->chunks - first : c - first) *
		     (run->layout_counts ? run->job.tile : inst->len);
	return inst->scratch + run->scratch_at[k] + at * run->job.elem_bytes;
}

static inline char *chunk_address(const struct coll_run *run, const struct instance *inst, uint8_t buf, uint32_t c)
{
	size_t at;

	if (buf >= COLL_BUF_SCRATCH)
		return scratch_address(run, inst, buf - COLL_BUF_SCRATCH, c);
	at = run->block ? block_offset(run, buf, c) : cut_at(inst, c);
	return inst->at[buf] + at * run->job.elem_bytes;
}

/* Where a buffer of a plan of one chunk is. */
static inline char *whole_address(const struct coll_run *run, const struct instance *inst, uint8_t buf)
{
	if (buf < COLL_BUF_SCRATCH)
		return inst->at[buf];
	if (run->landing)
		return inst->at[COLL_BUF_OUT];
	return inst->scratch + run->scratch_at[buf - COLL_BUF_SCRATCH];
}

/* The next span of a run of several; false when nothing is left. */
bool coll_walk_next(const struct coll_run *run, const struct instance *inst, const struct coll_step *s, int sides,
                    struct walk *w);

/* walk_begin() for plans of several chunks. */
size_t coll_walk_begin(const struct coll_run *run, const struct instance *inst, const struct coll_step *s, int sides,
                       struct walk *w);

/*
 * Begin a walk over the bytes of a step: returns their number of elements and
 * leaves the first span in w (if any). Go on with walk_more().
 */
static inline size_t walk_begin(const struct coll_run *run, const struct instance *inst, const struct coll_step *s,
                                int sides, struct walk *w)
{
	if (!run->whole)
		return coll_walk_begin(run, inst, s, sides, w);
	w->next = 1;
	w->span.src = sides & SIDE_SRC ? whole_address(run, inst, source_of(run, s)) : NULL;
	w->span.dst = sides & SIDE_DST ? whole_address(run, inst, s->dst) : NULL;
	w->span.len = inst->len;
	w->span.weight = run->mean ? weight_of(run->job.plan, s, 0) : NULL;
	return inst->len;
}

static inline bool walk_more(const struct coll_run *run, const struct instance *inst, const struct coll_step *s,
                             int sides, struct walk *w)
{
	return w->next < s->run && coll_walk_next(run, inst, s, sides, w);
}

#endif
