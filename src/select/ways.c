/*
 * THE table of ways: see ways.h. Nothing else decides what makes a call; the rows `plan` leave it to the prices of
 * cost.c, which also say what COLL_ALGO names. Pure but for coll_ways_bind().
 *
 * docs/guide/ways.md is printed from it by coll-info --ways.
 */
#include "select/ways.h"

#include <assert.h>

#include "base/limits.h"
#include "base/planted.h"
#include "core/device_facts.h"
#include "intra/central.h"
#include "intra/central_move.h"
#include "intra/cico.h"
#include "intra/cma.h"
#include "intra/eager_bcast.h"
#include "intra/eager_block.h"
#include "intra/eager_chunk.h"
#include "intra/eager_line.h"
#include "intra/enter.h"
#include "intra/pair_bcast.h"
#include "intra/pair_stream.h"
#include "intra/pair_swap.h"
#include "intra/zero_copy.h"

enum {
	AR = 1 << COLL_KIND_ALL_REDUCE,
	BC = 1 << COLL_KIND_BROADCAST,
	AG = 1 << COLL_KIND_ALL_GATHER,
	RS = 1 << COLL_KIND_REDUCE_SCATTER,
	A2A = 1 << COLL_KIND_ALL_TO_ALL,
	BA = 1 << COLL_KIND_BARRIER,
	RE = 1 << COLL_KIND_REDUCE,
	GA = 1 << COLL_KIND_GATHER,
	SC = 1 << COLL_KIND_SCATTER,
	SN = 1 << COLL_KIND_SCAN,
	ALL = (1 << COLL_KIND_COUNT) - 1,
};
enum {
	AUTO = 1 << COLL_INTRA_AUTO,
	CMA = 1 << COLL_INTRA_CMAED,
	SLOTS = 1 << COLL_INTRA_CACHED | 1 << COLL_INTRA_STREAMED
};
enum { MOST = COLL_INTRA_SIZE_MAX, CROWD = COLL_CENTRAL_SIZE_MAX };

/* Steps of a turn are counted in so many bits, and a call may have a few more than it has tiles. */
#define STEPS ((size_t)(1 << COLL_STEP_BITS) - 8)

#define EACH            .cores = COLL_CORES_EACH
#define SHARED          .cores = COLL_CORES_SHARED
#define ANY             .cores = COLL_CORES_ANY
#define RANKS(from, to) .ranks_min = (from), .ranks_max = (to)
/* At least 1: a call of no bytes has nothing to share. */
#define BLOCK(from, to) .unit = COLL_OF_BLOCK, .min = (from), .max = (to)
#define PAYLOAD(to)     .unit = COLL_OF_PAYLOAD, .min = 1, .max = (to)
#define LINES(to)       .unit = COLL_OF_LINES, .min = 1, .max = (to)
#define EAGER           .copies = AUTO | CMA | SLOTS, .within = true
#define LONG            .copies = AUTO | CMA | SLOTS
#define INTRA           .by = COLL_BY_INTRA, .needs = COLL_CALL_INTRANODE
#define RUNS(name)      INTRA, .op = {.poll = coll_intra_poll_##name}
#define ANY_SIZE        RANKS(1, INT32_MAX), ANY, BLOCK(0, SIZE_MAX), LONG

/* clang-format off */
const struct coll_ways_row coll_ways[] = {
	{COLL_WAY_GROUP_BARRIER, BA, .by = COLL_BY_GROUP, .needs = COLL_CALL_GROUP, ANY_SIZE,
	 .instead = COLL_INSTEAD_NOTHING, .limits = "layout"},
	{COLL_WAY_GROUP_BARRIER, BA, .by = COLL_BY_GROUP, .needs = COLL_CALL_GROUP_END | COLL_CALL_MATCHED, ANY_SIZE,
	 .limits = "layout"},
	{COLL_WAY_PLAN, ALL, .needs = COLL_CALL_FORCED, ANY_SIZE, .limits = "layout"},
	{COLL_WAY_DEVICE_DIRECT, AR | BC | AG | RS | A2A | RE | GA | SC | SN, RANKS(2, COLL_MAPPED_RANKS_MAX), ANY, BLOCK(0, SIZE_MAX), LONG,
	 .by = COLL_BY_DEVICES,
	 .needs = COLL_CALL_OF_USER | COLL_CALL_KNOWN | COLL_CALL_MOVES | COLL_CALL_DEVICES | COLL_CALL_ON_DEVICES,
	 .buffers = COLL_BUFFERS_DEVICES, .instead = COLL_INSTEAD_NOTHING, .limits = "layout"},

	{COLL_WAY_EAGER_LINE, AR, RANKS(2, MOST), ANY, BLOCK(1, COLL_FIRST_PAYLOAD), EAGER, RUNS(eager_line_reduce),
	 .limits = "intra.md, The shortest way"},
	{COLL_WAY_EAGER_LINE, BA, RANKS(2, MOST), ANY, BLOCK(1, SIZE_MAX), EAGER, RUNS(barrier),
	 .limits = "intra.md, The shortest way"},
	{COLL_WAY_EAGER_LINES, AG | RS | A2A, RANKS(2, 2), ANY, BLOCK(1, COLL_FIRST_PAYLOAD), EAGER, RUNS(eager_lines),
	 .limits = "ways.md, Lines"},
	{COLL_WAY_EAGER_LINES, AR | AG, RANKS(3, MOST), EACH, BLOCK(1, COLL_EAGER_GATHER_MAX), EAGER, RUNS(eager_lines),
	 .limits = "intra.md, Limits of lines and chunks"},
	{COLL_WAY_EAGER_LINES, AR | AG, RANKS(3, MOST), SHARED, BLOCK(1, COLL_ENTRY_PAYLOAD), EAGER, RUNS(eager_lines),
	 .limits = "layout"},
	{COLL_WAY_EAGER_LINES, RS | A2A, RANKS(3, MOST), ANY, LINES(COLL_LINES), EAGER, RUNS(eager_lines),
	 .limits = "layout"},
	{COLL_WAY_EAGER_BCAST, BC, RANKS(2, 2), ANY, BLOCK(1, COLL_FIRST_PAYLOAD), EAGER, RUNS(eager_bcast),
	 .limits = "ways.md, Lines"},
	{COLL_WAY_EAGER_BCAST, BC, RANKS(3, MOST), ANY, BLOCK(1, COLL_ENTRY_PAYLOAD), EAGER, RUNS(eager_bcast),
	 .limits = "layout"},
	{COLL_WAY_WIDE_BCAST, BC, RANKS(2, MOST), ANY, BLOCK(1, COLL_WIDE_BYTES), EAGER, RUNS(wide_bcast),
	 .limits = "intra.md, Places that change hands"},

	{COLL_WAY_ZERO_COPY, AR | BC | AG | RS | A2A, RANKS(2, MOST), ANY, BLOCK(COLL_ZERO_COPY_MIN, SIZE_MAX), LONG,
	 .buffers = COLL_BUFFERS_MAPPED, .instead = COLL_INSTEAD_NEXT,
	 INTRA, .op = {.poll = coll_intra_poll_zero_copy, .passes = coll_intra_passes_zero_copy},
	 .limits = "shm-large.md, Directly"},
	{COLL_WAY_EAGER_CHUNK, AR, RANKS(3, MOST), SHARED, BLOCK(1, COLL_CICO_REDUCE_MIN - 1), EAGER, RUNS(eager_chunk),
	 .limits = "ways.md, Order"},
	{COLL_WAY_EAGER_CHUNK, AG | RS | A2A, RANKS(3, MOST), SHARED, PAYLOAD(SIZE_MAX), EAGER, RUNS(eager_chunk),
	 .limits = "ways.md, Order"},
	{COLL_WAY_EAGER_CHUNK, RS, RANKS(3, MOST), EACH, PAYLOAD(COLL_EAGER_SCATTER_MAX), EAGER, RUNS(eager_chunk),
	 .limits = "intra.md, Limits of lines and chunks"},
	{COLL_WAY_EAGER_CHUNK, A2A, RANKS(3, MOST), EACH, PAYLOAD(COLL_EAGER_ALLTOALL_MAX), EAGER, RUNS(eager_chunk),
	 .limits = "intra.md, Limits of lines and chunks"},
	{COLL_WAY_PAIR_SWAP, AR | AG | RS | A2A, RANKS(2, 2), ANY, PAYLOAD(SIZE_MAX), EAGER, RUNS(pair_swap),
	 .limits = "intra.md, Places that change hands"},
	{COLL_WAY_CMA, AG | A2A, RANKS(2, 2), ANY, BLOCK(COLL_CMA_MIN, STEPS * COLL_PAIR_SLOT_BYTES), .copies = AUTO | CMA,
	 .buffers = COLL_BUFFERS_READABLE, .instead = COLL_INSTEAD_NEXT, RUNS(cma),
	 .limits = "shm-large.md, By the kernel"},
	{COLL_WAY_CMA, A2A, RANKS(3, MOST), SHARED, BLOCK(COLL_CMA_MIN, STEPS * COLL_TILE_BYTES / MOST), .copies = AUTO | CMA,
	 .buffers = COLL_BUFFERS_READABLE, .instead = COLL_INSTEAD_NEXT, RUNS(cma),
	 .limits = "shm-large.md, By the kernel"},
	{COLL_WAY_PAIR_STREAM, AR | AG | RS | A2A, RANKS(2, 2), ANY, BLOCK(COLL_PAIR_STREAM_MIN, STEPS * COLL_PAIR_SLOT_BYTES), LONG,
	 .buffers = COLL_BUFFERS_PLAIN, RUNS(pair_stream),
	 .limits = "shm-large.md, By slots that change hands"},
	{COLL_WAY_PAIR_BCAST, BC, RANKS(2, 2), ANY, BLOCK(COLL_PAIR_BCAST_MIN, COLL_PAIR_BCAST_MAX), .copies = AUTO | SLOTS,
	 .buffers = COLL_BUFFERS_PLAIN, RUNS(pair_bcast),
	 .limits = "shm-large.md, By slots, one way"},
	{COLL_WAY_CICO, AR, RANKS(3, MOST), ANY, BLOCK(COLL_CICO_REDUCE_MIN, STEPS * COLL_TILE_BYTES), LONG,
	 .buffers = COLL_BUFFERS_PLAIN, RUNS(cico), .limits = "shm-large.md, By tiles"},
	{COLL_WAY_CICO, BC, RANKS(3, MOST), SHARED, BLOCK(COLL_CICO_BCAST_MIN, STEPS * COLL_STRIP_BYTES), LONG,
	 .buffers = COLL_BUFFERS_PLAIN, RUNS(cico), .limits = "shm-large.md, By tiles"},
	{COLL_WAY_CICO, AG | A2A, RANKS(3, MOST), SHARED, BLOCK(COLL_CICO_BLOCK_MIN, STEPS * COLL_TILE_BYTES / MOST), LONG,
	 .buffers = COLL_BUFFERS_PLAIN, RUNS(cico), .limits = "shm-large.md, By tiles"},

	/* Pieces, of a block at least, are counted in 32 bits. */
	{COLL_WAY_CENTRAL, AR | BC | AG | RS | A2A | BA | RE | GA | SC, RANKS(MOST + 1, CROWD), SHARED,
	 BLOCK(1, (size_t)UINT32_MAX * COLL_CENTRAL_BLOCK_MIN - 1), LONG,
	 INTRA, .op = {.poll = coll_intra_poll_central, .where = coll_intra_position_central}, .limits = "intra.md, Many ranks"},
	{COLL_WAY_CENTRAL, AR | RE, RANKS(MOST + 1, CROWD), EACH, BLOCK(1, COLL_CENTRAL_REDUCE_MAX), EAGER,
	 INTRA, .op = {.poll = coll_intra_poll_central, .where = coll_intra_position_central}, .limits = "intra.md, Many ranks"},
	{COLL_WAY_CENTRAL, BC | AG | RS | A2A | BA | GA | SC, RANKS(MOST + 1, CROWD), EACH, PAYLOAD(SIZE_MAX), EAGER,
	 INTRA, .op = {.poll = coll_intra_poll_central, .where = coll_intra_position_central}, .limits = "intra.md, Many ranks"},

	{COLL_WAY_PLAN, ALL, ANY_SIZE, .limits = "algorithms.md, The price"},
};
/* clang-format on */
const size_t coll_ways_count = sizeof(coll_ways) / sizeof(coll_ways[0]);
static_assert(sizeof(coll_ways) / sizeof(coll_ways[0]) <= COLL_INTRA_OPS_MAX, "an operation for each row");

const char *const coll_ways_conditions[] = {
        "of the user",     "equal blocks",  "known lengths",     "bytes to move", "built-in operation",
        "host memory",     "one tile",      "all matched",       "COLL_ALGO",     "first of a group",
        "last of a group", "device memory", "reduced by devices"};
const size_t coll_ways_nconditions = sizeof(coll_ways_conditions) / sizeof(coll_ways_conditions[0]);
static_assert(sizeof(coll_ways_conditions) / sizeof(coll_ways_conditions[0]) == 13, "COLL_CALL_ON_DEVICES is the last");

/* What the rank that writes most writes. A scatter's root alone does: it counts as one block. */
static size_t payload(const struct coll_ways_facts *f)
{
	const bool blocks = f->kind == COLL_KIND_ALL_TO_ALL || f->kind == COLL_KIND_REDUCE_SCATTER;

	return blocks ? (size_t)f->size * f->bytes : f->bytes;
}

static size_t measure(const struct coll_ways_facts *f, const struct coll_ways_row *row)
{
	switch (row->unit) {
	case COLL_OF_PAYLOAD: return payload(f);
	/* A block for each other rank has lines of its own. */
	case COLL_OF_LINES:
		return f->bytes > COLL_ENTRY_PAYLOAD ? SIZE_MAX
		                                     : (size_t)coll_intra_lines(f->bytes) * (size_t)(f->size - 1);
	default: return f->bytes;
	}
}

bool coll_ways_serves(const struct coll_ways_row *row, const struct coll_ways_facts *f)
{
	size_t bytes;

	if (!(row->kinds >> f->kind & 1) || f->size < row->ranks_min || f->size > row->ranks_max)
		return false;
	if (row->needs & ~f->holds)
		return false;
	if (row->cores != COLL_CORES_ANY && f->shared_cores != (row->cores == COLL_CORES_SHARED))
		return false;
	if (!(row->copies >> f->copy & 1) || (row->within && payload(f) > f->intra_bytes))
		return false;
	bytes = f->bytes > 0 ? measure(f, row) : 0;
	return bytes >= row->min && bytes <= row->max;
}

static const struct coll_ways_row *walk(const struct coll_ways_facts *f, const struct coll_ways_row *row)
{
	while (!coll_ways_serves(row, f))
		row++; /* the last one serves all */
	return row;
}

const struct coll_ways_row *coll_ways_first(const struct coll_ways_facts *facts)
{
	return walk(facts, coll_ways);
}

const struct coll_ways_row *coll_ways_next(const struct coll_ways_facts *facts, const struct coll_ways_row *row)
{
	assert(row->by != COLL_BY_PLAN);
	assert(row->instead != COLL_INSTEAD_NOTHING);
	return row->instead == COLL_INSTEAD_NEXT ? walk(facts, row + 1) : &coll_ways[coll_ways_count - 1];
}

bool coll_ways_share(int size)
{
	bool some = false;

	for (size_t i = 0; i < coll_ways_count; i++)
		some |= coll_ways[i].by == COLL_BY_INTRA && size >= coll_ways[i].ranks_min &&
		        size <= coll_ways[i].ranks_max;
	return some;
}

/* ---- Of an intra object ---- */

struct coll_ways_facts coll_ways_facts_of(const struct coll_intra *n, enum coll_kind kind, size_t count,
                                          size_t elem_bytes)
{
	const bool fits = count <= SIZE_MAX / elem_bytes / (size_t)n->size;

	return (struct coll_ways_facts){.kind = kind,
	                                .size = n->size,
	                                .shared_cores = n->fabric.shared_cores,
	                                .bytes = fits ? count * elem_bytes : 0,
	                                .intra_bytes = n->payload_bytes,
	                                .copy = n->fabric.way,
	                                .holds = COLL_CALL_INTRANODE};
}

const struct coll_intra_op *coll_ways_op(const struct coll_intra *n, const struct coll_ways_row *row)
{
	return &n->ops[row - coll_ways];
}

static const struct coll_intra_op *instead(const struct coll_intra_op *op, const struct coll_job *job)
{
	const struct coll_intra *n = op->arg;
	const struct coll_ways_facts f = coll_ways_facts_of(n, job->plan->kind, job->in.count, job->elem_bytes);
	const struct coll_ways_row *next = coll_ways_next(&f, &coll_ways[op - n->ops]);

	if (planted(WRONG_ROW) && op->way == COLL_WAY_ZERO_COPY)
		next = &coll_ways[coll_ways_count - 1];
	return next->by == COLL_BY_PLAN ? NULL : coll_ways_op(n, next);
}

void coll_ways_bind(struct coll_intra *n)
{
	for (size_t i = 0; i < coll_ways_count; i++) {
		n->ops[i] = coll_ways[i].op;
		n->ops[i].arg = n;
		n->ops[i].way = coll_ways[i].way;
		n->ops[i].matched = coll_ways[i].needs & COLL_CALL_MATCHED;
		if (!n->ops[i].where)
			n->ops[i].where = coll_intra_position;
		if (coll_ways[i].instead == COLL_INSTEAD_NEXT)
			n->ops[i].instead = instead;
	}
}
