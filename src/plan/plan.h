/*
 * The plan: what one rank does in one collective, as data.
 *
 * A plan holds no pointer, byte count, clock or sequence number. It names
 * buffers (in, out, scratch k), cuts them in chunks and lists 32-byte steps in
 * a few lanes. The same plan serves any message size: the engine runs it once
 * per tile. See docs/design/plans.md for the rules and the text form.
 *
 * Execution rules (src/proof and the engine share them):
 *  - A lane starts its steps in order. A step starts when the lane's previous
 *    step has started (if that one is a SEND) or completed (all other kinds),
 *    and when its wait is satisfied: lane wait_lane has retired at least its
 *    first wait_count steps (wait_count 0: nothing to wait for). Any step may
 *    carry a wait; WAIT is a step that does nothing else.
 *  - Only the sending half of SEND is asynchronous: it reads its source from
 *    its start until it retires, at some later moment of the peer's choosing.
 *    Fused steps retire when their outgoing frame has been posted by value.
 *  - One step moves at most one frame per direction. A frame carries the bytes
 *    of the step's whole chunk run. A step whose length is zero bytes moves no
 *    frame on either side, but retires as usual.
 *  - Frames between two ranks match in order per (lane, window): both ends use
 *    the same lane number.
 */
#ifndef COLL_PLAN_PLAN_H
#define COLL_PLAN_PLAN_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"
#include "plan/layout.h"

enum coll_kind {
	COLL_KIND_ALL_REDUCE,
	COLL_KIND_REDUCE,
	COLL_KIND_BROADCAST,
	COLL_KIND_ALL_GATHER,
	COLL_KIND_REDUCE_SCATTER,
	COLL_KIND_ALL_TO_ALL,
	COLL_KIND_GATHER,
	COLL_KIND_SCATTER,
	COLL_KIND_SCAN,
	COLL_KIND_BARRIER,
	COLL_KIND_EXCLUSIVE_SCAN,
	COLL_KIND_SEND_RECV, /* pairs; no generator */
	COLL_KIND_COUNT
};

/* "all_reduce" ...; NULL when out of range. The converse returns -1. */
const char *coll_plan_kind_name(enum coll_kind kind);
int coll_plan_kind_from_name(const char *name);

/* "recv_reduce" ...; NULL for an unknown op. */
const char *coll_step_op_name(uint8_t op);

/* A vector collective cuts its tile into chunks; a block collective has one
 * chunk per rank (chunk id = block id) and a tile is a strip of each block. */
static inline bool coll_plan_kind_is_block(enum coll_kind kind)
{
	return kind == COLL_KIND_ALL_GATHER || kind == COLL_KIND_REDUCE_SCATTER || kind == COLL_KIND_ALL_TO_ALL ||
	       kind == COLL_KIND_GATHER || kind == COLL_KIND_SCATTER;
}

static inline bool coll_plan_kind_reduces(enum coll_kind kind)
{
	return kind == COLL_KIND_ALL_REDUCE || kind == COLL_KIND_REDUCE || kind == COLL_KIND_REDUCE_SCATTER ||
	       kind == COLL_KIND_SCAN || kind == COLL_KIND_EXCLUSIVE_SCAN;
}

/* Whether the interface accepts AVG. Without it the operands of a REDUCE need not hold as many contributions. */
static inline bool coll_plan_kind_averages(enum coll_kind kind)
{
	return coll_plan_kind_reduces(kind) && kind != COLL_KIND_SCAN && kind != COLL_KIND_EXCLUSIVE_SCAN;
}

/* What a generator reads: agreed facts only. */
struct coll_shape {
	enum coll_kind kind;
	int rank;
	int size;
	int root;                         /* rooted kinds; 0 otherwise */
	bool ordered;                     /* operands must combine in rank order (op not commutative) */
	bool uniform;                     /* block kinds: all blocks have the same length */
	const struct coll_layout *layout; /* where the ranks are; NULL: nothing tells them apart */
};

enum coll_step_op {
	COLL_STEP_SEND = 1,              /* src -> peer_send */
	COLL_STEP_RECV,                  /* peer_recv -> dst */
	COLL_STEP_RECV_REDUCE,           /* dst = incoming (op) src */
	COLL_STEP_COPY,                  /* dst = src */
	COLL_STEP_REDUCE,                /* dst = op over inputs in order, see below */
	COLL_STEP_WAIT,                  /* the wait and nothing else */
	COLL_STEP_RECV_COPY_SEND,        /* dst = incoming; forward incoming */
	COLL_STEP_RECV_REDUCE_SEND,      /* forward incoming (op) src; nothing stored */
	COLL_STEP_RECV_REDUCE_COPY_SEND, /* dst = incoming (op) src; forward dst */
	COLL_STEP_OP_COUNT
};

/* Buffer names of a step's src and dst. */
enum { COLL_BUF_IN = 0, COLL_BUF_OUT = 1, COLL_BUF_SCRATCH = 2 /* + k, k < COLL_SCRATCH_MAX */ };
enum { COLL_SCRATCH_MAX = 250, COLL_LANES_MAX = 8 };

enum coll_step_flag {
	COLL_STEP_INCOMING_LEFT = 1 << 0, /* the incoming operand is the left one (lower ranks) */
	COLL_STEP_PRE = 1 << 1,           /* operand read from `in` is this rank's raw contribution: pre-scale it */
	COLL_STEP_POST = 1 << 2,          /* the result is final: post-scale it (avg) */
	COLL_STEP_WRAP = 1 << 3,          /* the run comes back to the start of its span, see below */
	COLL_STEP_ARM = 1 << 4,           /* lowering: may be armed early */
	/* all_to_all: a COPY of a block of `in` to scratch, and the SEND of it from there, for the sake of
	 * calls in place only. Out of place the COPY does nothing and the SEND reads the same block of `in`. */
	COLL_STEP_ASIDE = 1 << 5,
};

#define COLL_NO_SPLICE UINT16_MAX

/*
 * 32 bytes. Chunk i (0 <= i < run) of a run that starts at chunk c is
 *     c + i                                   when group == 0 (contiguous)
 *     c + (i / group) * stride + i % group    when group > 0 (groups of chunks)
 * modulo the plan's chunks with WRAP; a contiguous run with WRAP and a stride stays within
 * the span of `stride` chunks, a multiple of stride on, that c lies in. src_chunk and
 * dst_chunk each start such a run; the i-th chunk of one side pairs with the i-th of the
 * other. With block_at all this counts positions, and block_at gives the chunk at each.
 *
 * REDUCE: the inputs are scratch buffers src, src+1 ... src+stride-1, all at the
 * chunk run src_chunk (contiguous), in this order, with `in` at the same run
 * spliced in before position `group` (COLL_NO_SPLICE: not at all); dst gets the
 * result, rounded once.
 */
struct coll_step {
	uint8_t op;
	uint8_t lane;
	uint8_t src;
	uint8_t dst;
	uint16_t peer_recv; /* index into plan->peers; unused: 0 */
	uint16_t peer_send;
	uint32_t src_chunk;
	uint32_t dst_chunk;
	uint32_t run;
	uint32_t stride;
	uint32_t wait_count;
	uint8_t wait_lane;
	uint8_t flags;
	uint16_t group;
};
static_assert(sizeof(struct coll_step) == 32, "a step is 32 bytes");

/*
 * How many contributions the operands of a reducing receive hold, which is what a mean weighs them by: of the
 * chunks of its run before `end`, from the entry before on. Each operand of a REDUCE holds as many as the others.
 */
struct coll_plan_weight {
	uint32_t end;
	uint32_t own;
	uint32_t incoming;
};

/* Scratch buffer k holds chunks [first, first + count) modulo plan->chunks, of
 * each tile instance, laid out one after the other. */
struct coll_plan_scratch {
	uint32_t first;
	uint32_t count;
};

struct coll_plan {
	enum coll_kind kind;
	char algo[28]; /* name of the generator */
	int rank;
	int size;
	int root;
	bool fused;
	uint32_t chunks;  /* per tile (vector kinds) or blocks = size (block kinds) */
	uint32_t max_run; /* most chunks in one frame: frame bytes <= max_run * largest chunk */
	uint32_t npeers;
	uint32_t nlanes;
	uint32_t nscratch;
	uint32_t max_in_flight;                  /* most SENDs of one tile instance unretired at once */
	uint32_t lane_first[COLL_LANES_MAX + 1]; /* lane l: steps[lane_first[l] .. lane_first[l+1]) */
	const int *peers;                        /* ranks, ascending */
	const struct coll_plan_scratch *scratch;
	const struct coll_step *steps; /* grouped by lane, in lane order */
	/* Step i has weights[weight_first[i]] up to weights[weight_first[i + 1]]; none if it is no reducing receive. */
	const uint32_t *weight_first;
	const struct coll_plan_weight *weights;
	/* Block kinds: the block at each position of a run, so that neighbours in the layout are
	 * neighbours in a run; chunks entries. NULL: block p is at position p. */
	const uint32_t *block_at;
	size_t bytes; /* of the whole plan: one allocation, see coll_plan_free() */
};

static inline uint32_t coll_plan_nsteps(const struct coll_plan *p)
{
	return p->lane_first[p->nlanes];
}

/* Chunk id of element i of a step's run that starts at first. */
static inline uint32_t coll_step_chunk(const struct coll_plan *p, const struct coll_step *s, uint32_t first, uint32_t i)
{
	const bool plain = s->group == 0 || s->op == COLL_STEP_REDUCE;
	uint32_t c = first + i;

	if (!plain)
		c = first + i / s->group * s->stride + i % s->group;
	if (s->flags & COLL_STEP_WRAP) {
		const uint32_t span = plain && s->stride && s->op != COLL_STEP_REDUCE ? s->stride : p->chunks;

		c = plain ? first - first % span + (first % span + i) % span : c % span;
	}
	return p->block_at && c < p->chunks ? p->block_at[c] : c;
}

/* The weights of a step: the first, and how many. */
static inline const struct coll_plan_weight *coll_step_weights(const struct coll_plan *p, const struct coll_step *s,
                                                               uint32_t *count)
{
	const uint32_t *first = &p->weight_first[s - p->steps];

	*count = first[1] - first[0];
	return &p->weights[first[0]];
}

void coll_plan_free(struct coll_plan *plan); /* NULL accepted */

#endif
