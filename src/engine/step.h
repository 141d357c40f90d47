/*
 * What several step operations do with bytes: copies and sums of one span, in the operand
 * order and with the scaling that the step asks for. Independent of channels.
 */
#ifndef COLL_ENGINE_STEP_H
#define COLL_ENGINE_STEP_H

#include "engine/state.h"
#include "reduce/copy.h"

#include <string.h>

/* Copies of a few bytes are most of an 8-byte call: keep them inline. */
static inline void copy_bytes(void *dst, const void *src, size_t len_bytes)
{
	if (len_bytes == 8)
		memcpy(dst, src, 8);
	else if (len_bytes == 4)
		memcpy(dst, src, 4);
	else
		coll_reduce_copy(dst, src, len_bytes);
}

/* dst = src, scaled where the step says so and the operation does. */
static inline void copy_elements(struct coll_run *run, const struct coll_step *s, char *dst, const char *src,
                                 size_t len)
{
	const void *from = src;
	const bool pre = s->flags & COLL_STEP_PRE && run->prescale;
	const bool post = s->flags & COLL_STEP_POST && run->job.reduction;

	if (!pre && !post) {
		copy_bytes(dst, src, len * run->job.elem_bytes);
		run->stats.bytes_copied += len * run->job.elem_bytes;
		return;
	}
	coll_reduce_run(run->job.reduction, dst, &from, 1, pre ? 0 : -1, post, len);
	run->stats.bytes_reduced += len * run->job.elem_bytes;
}

/* dst = incoming (op) src in the operand order of the step; any thread. weight: of these elements, for means. */
static inline void combine_piece(const struct coll_run *run, const struct coll_step *s,
                                 const struct coll_plan_weight *weight, char *dst, const char *incoming,
                                 const char *src, size_t len)
{
	const bool left = s->flags & COLL_STEP_INCOMING_LEFT && !mutant(MUTANT_SWAP_OPERANDS);
	const void *operands[2] = {left ? incoming : src, left ? src : incoming};
	const int raw = s->flags & COLL_STEP_PRE ? left : -1;

	if (run->mean) {
		const uint32_t held[2] = {left ? weight->incoming : weight->own, left ? weight->own : weight->incoming};

		coll_reduce_weighted(run->job.reduction, dst, operands, 2, held, len);
	} else {
		coll_reduce_run(run->job.reduction, dst, operands, 2, raw, s->flags & COLL_STEP_POST, len);
	}
}

static inline void combine(struct coll_run *run, const struct coll_step *s, const struct coll_plan_weight *weight,
                           char *dst, const char *incoming, const char *src, size_t len)
{
	combine_piece(run, s, weight, dst, incoming, src, len);
	run->stats.bytes_reduced += len * run->job.elem_bytes;
}

/* Whether nothing but bytes moves: no operand is scaled. */
static inline bool plain_bytes(const struct coll_run *run, const struct coll_step *s)
{
	return !(s->flags & COLL_STEP_PRE && run->prescale) && !(s->flags & COLL_STEP_POST && run->job.reduction);
}

/* The handle of the memory a step's side names; NULL: nothing is known of it. */
static inline const struct coll_memory *memory_of(const struct coll_run *run, uint8_t buf)
{
	return buf >= COLL_BUF_SCRATCH ? NULL : buf == COLL_BUF_IN ? run->job.in.mem : run->job.out.mem;
}

#endif
