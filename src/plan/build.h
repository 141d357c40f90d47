/*
 * The builder: the only thing an algorithm sees.
 *
 * A generator calls these in program order, as if each step completed before
 * the next began. The builder finds every hazard between steps (a step that
 * reads what another writes, overwrites what a SEND may still be reading, or
 * follows a step of another lane that it depends on) and adds the waits, with
 * `in` and `out` taken as one buffer so that the plan is right in place too
 * (block kinds: as they alias when in place). It also sets PRE on every read of
 * `in` by a reducing kind and computes scratch extents. Errors are sticky: the
 * generator checks once, at its end.
 */
#ifndef COLL_PLAN_BUILD_H
#define COLL_PLAN_BUILD_H

#include "plan/plan.h"

struct coll_builder;

/* A place: a buffer and the first chunk of a run. */
struct coll_at {
	uint8_t buf; /* COLL_BUF_IN, COLL_BUF_OUT, COLL_BUF_SCRATCH + k */
	uint32_t chunk;
};

static inline struct coll_at coll_in(uint32_t chunk)
{
	return (struct coll_at){COLL_BUF_IN, chunk};
}
static inline struct coll_at coll_out(uint32_t chunk)
{
	return (struct coll_at){COLL_BUF_OUT, chunk};
}
static inline struct coll_at coll_scratch(uint32_t k, uint32_t chunk)
{
	return (struct coll_at){(uint8_t)(COLL_BUF_SCRATCH + k), chunk};
}

/* Must come first. Vector kinds choose any chunks >= 1; block kinds pass size. */
void coll_build_chunks(struct coll_builder *b, uint32_t chunks);

/* Steps that follow go to this lane (0 at first). */
void coll_build_lane(struct coll_builder *b, uint32_t lane);

/* How many chunks the following steps move, 1 contiguous at first: run chunks in
 * groups of `group` every `stride` (group 0: contiguous). wrap: modulo chunks. */
void coll_build_run(struct coll_builder *b, uint32_t run, uint32_t group, uint32_t stride, bool wrap);

/* The same for contiguous chunks that come back to the start of their span: [k * span, (k + 1) * span). */
void coll_build_run_within(struct coll_builder *b, uint32_t run, uint32_t span);

/* Block kinds: chunk numbers from here on are positions, with block_at[p] the block at position p. A
 * permutation of size entries. After coll_build_chunks(). */
void coll_build_order(struct coll_builder *b, const uint32_t *block_at);

void coll_build_send(struct coll_builder *b, int peer, struct coll_at src);
void coll_build_recv(struct coll_builder *b, int peer, struct coll_at dst);

/* How the incoming operand of a reducing receive combines. */
enum coll_side {
	COLL_INCOMING_LEFT,  /* incoming (op) src: incoming covers lower ranks */
	COLL_INCOMING_RIGHT, /* src (op) incoming */
};

/* dst = incoming (op) src, where the incoming operand holds so many contributions, `incoming` at least 1; what
 * src holds follows from the steps before. A chunk that was received and not reduced is no src. final: dst now has
 * every contribution (avg is applied here); exactly one final reduction per result chunk and rank that reduces it. */
void coll_build_recv_reduce(struct coll_builder *b, int peer, struct coll_at src, struct coll_at dst,
                            enum coll_side side, uint32_t incoming, bool final);

/* The same where the chunks of the run hold different numbers: incoming up to the end of the run. */
void coll_build_recv_reduce_uneven(struct coll_builder *b, int peer, struct coll_at src, struct coll_at dst,
                                   enum coll_side side, const struct coll_plan_weight *incoming, bool final);

/* dst = src. Elided where both name the same bytes. final: as above, needed
 * only by size-1 plans. */
void coll_build_copy(struct coll_builder *b, struct coll_at src, struct coll_at dst, bool final);

/* all_to_all: send block c of `in` from scratch k, so that what arrives may overwrite it in place;
 * where a call is not in place nothing is copied. */
void coll_build_send_aside(struct coll_builder *b, int peer, uint32_t c, uint32_t k);

/* dst = scratch first_scratch + 0 .. ninputs-1 at chunk, with `in` spliced in
 * before position splice (-1: not at all), combined left to right. Each input holds as many contributions, unless the
 * kind has no average. */
void coll_build_reduce(struct coll_builder *b, uint32_t first_scratch, uint32_t ninputs, int splice, uint32_t chunk,
                       struct coll_at dst, bool final);

coll_status coll_build_status(const struct coll_builder *b);

/* ---- For the caller of a generator ---- */

typedef coll_status (*coll_algo_fn)(const struct coll_shape *shape, struct coll_builder *b);

/* Run a generator; *plan is logical, freed with coll_plan_free(). */
coll_status coll_build_plan(const struct coll_shape *shape, const char *algo, coll_algo_fn generate,
                            struct coll_plan **plan);

#endif
