/*
 * Runs of several spans, tile sizes and the layout of scratch memory: the parts
 * of range() that are not on the shortest path. Pure functions.
 */
#include "engine/range.h"

enum { SCRATCH_ALIGN = 64 };

/* Where chunk i of the run is and how long, on the sides that the step has. */
static struct span span_at(const struct coll_run *run, const struct instance *inst, const struct coll_step *s,
                           int sides, uint32_t i)
{
	const struct coll_plan *plan = run->job.plan;
	const uint32_t src = wrapped(plan, coll_step_chunk(plan, s, s->src_chunk, i));
	const uint32_t dst = wrapped(plan, coll_step_chunk(plan, s, s->dst_chunk, i));
	struct span span = {.len = sides & SIDE_DST ? chunk_len(run, inst, s->dst, dst) : SIZE_MAX};

	if (sides & SIDE_SRC) {
		size_t len = chunk_len(run, inst, source_of(run, s), src);

		span.len = len < span.len ? len : span.len;
	}
	if (span.len == 0)
		return span;
	span.src = sides & SIDE_SRC ? chunk_address(run, inst, source_of(run, s), src) : NULL;
	span.dst = sides & SIDE_DST ? chunk_address(run, inst, s->dst, dst) : NULL;
	return span;
}

/* Elements of a run of several spans. */
static size_t walk_len(const struct coll_run *run, const struct instance *inst, const struct coll_step *s, int sides)
{
	const struct coll_plan *plan = run->job.plan;
	const bool by_dst = sides & SIDE_DST;
	size_t len = 0;

	for (uint32_t i = 0; i < s->run; i++) {
		uint32_t c = coll_step_chunk(plan, s, by_dst ? s->dst_chunk : s->src_chunk, i);

		len += chunk_len(run, inst, by_dst ? s->dst : source_of(run, s), wrapped(plan, c));
	}
	return len;
}

/* Whether b lies right behind a on every side that exists. */
static bool adjacent(const struct span *a, const struct span *b, size_t elem_bytes, int sides)
{
	const size_t len_bytes = a->len * elem_bytes;

	if (sides & SIDE_SRC && a->src + len_bytes != b->src)
		return false;
	return !(sides & SIDE_DST) || a->dst + len_bytes == b->dst;
}

bool coll_walk_next(const struct coll_run *run, const struct instance *inst, const struct coll_step *s, int sides,
                    struct walk *w)
{
	w->span.len = 0;
	while (w->next < s->run) {
		struct span more = span_at(run, inst, s, sides, w->next);

		if (run->mean)
			more.weight = weight_of(run->job.plan, s, w->next);
		if (more.len == 0) {
			w->next++;
			continue;
		}
		if (w->span.len == 0)
			w->span = more;
		else if (adjacent(&w->span, &more, run->job.elem_bytes, sides) && w->span.weight == more.weight)
			w->span.len += more.len;
		else
			break;
		w->next++;
	}
	return w->span.len > 0;
}

/* One span, when the run is obviously one. */
static bool one_span(const struct coll_run *run, const struct instance *inst, const struct coll_step *s, int sides,
                     struct span *span)
{
	const struct coll_plan *plan = run->job.plan;
	const uint32_t src = wrapped(plan, coll_step_chunk(plan, s, s->src_chunk, 0));
	const uint32_t dst = wrapped(plan, coll_step_chunk(plan, s, s->dst_chunk, 0));
	const uint32_t any = sides & SIDE_DST ? dst : src;

	/* A stride: groups, or a run that wraps within its span. */
	if (s->run > 1 && (run->block || s->stride))
		return false;
	if ((sides & SIDE_SRC && src + s->run > plan->chunks) || (sides & SIDE_DST && dst + s->run > plan->chunks))
		return false;
	if (run->mean && (span->weight = weight_of(plan, s, 0)) && span->weight->end < s->run)
		return false;
	span->len = run->block ? chunk_len(run, inst, sides & SIDE_DST ? s->dst : source_of(run, s), any)
	                       : cut_at(inst, any + s->run) - cut_at(inst, any);
	if (span->len == 0)
		return true;
	span->src = sides & SIDE_SRC ? chunk_address(run, inst, source_of(run, s), src) : NULL;
	span->dst = sides & SIDE_DST ? chunk_address(run, inst, s->dst, dst) : NULL;
	return true;
}

size_t coll_walk_begin(const struct coll_run *run, const struct instance *inst, const struct coll_step *s, int sides,
                       struct walk *w)
{
	size_t len;

	if (one_span(run, inst, s, sides, &w->span)) {
		w->next = s->run;
		return w->span.len;
	}
	len = walk_len(run, inst, s, sides);
	w->next = 0;
	coll_walk_next(run, inst, s, sides, w);
	return len;
}

/*
 * A frame carries at most max_run chunks. Vector kinds: with m = slot / max_run
 * and e = slot % max_run (in elements), a tile of m * chunks + e elements has e
 * chunks of m + 1 (if e < chunks), so that max_run of them fill the slot; this
 * also covers slots shorter than one element per chunk (m = 0). Block kinds: a
 * chunk is a strip of the tile's length.
 */
size_t coll_run_tile(const struct coll_plan *plan, size_t elem_bytes, size_t slot_bytes)
{
	const size_t slot = slot_bytes / elem_bytes;
	const size_t max_run = plan->max_run ? plan->max_run : 1;
	size_t tile = slot / max_run;

	if (!coll_plan_kind_is_block(plan->kind))
		tile = tile * plan->chunks + slot % max_run;
	return tile ? tile : 1;
}

/* Most bytes of scratch buffer k in one slice, rounded up to whole lines. */
static size_t scratch_bytes(const struct coll_plan *plan, uint32_t k, size_t tile, size_t elem_bytes)
{
	const size_t chunk = coll_plan_kind_is_block(plan->kind) || plan->chunks == 1
	                             ? tile
	                             : tile / plan->chunks + (tile % plan->chunks != 0);

	return (plan->scratch[k].count * chunk * elem_bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

size_t coll_run_slice(const struct coll_plan *plan, size_t tile, size_t elem_bytes, size_t *at)
{
	size_t sum = 0;

	for (uint32_t k = 0; k < plan->nscratch; k++) {
		if (at)
			at[k] = sum;
		sum += scratch_bytes(plan, k, tile, elem_bytes);
	}
	return sum;
}

size_t coll_run_scratch_bytes(const struct coll_plan *plan, size_t tile, size_t elem_bytes, uint32_t windows)
{
	return coll_run_slice(plan, tile, elem_bytes, NULL) * windows;
}
