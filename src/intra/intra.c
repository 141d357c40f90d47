/*
 * Which operation is made how, and what they say of themselves when they wait.
 */
#include "intra/intra.h"
#include "base/limits.h"
#include "intra/central_move.h"
#include "intra/eager_bcast.h"
#include "intra/eager_block.h"
#include "intra/eager_chunk.h"
#include "intra/eager_line.h"
#include "intra/pair_swap.h"
#include "intra/zero_copy.h"

#include "intra/enter.h"

enum way {
	NO_WAY,
	LINE_REDUCE,
	LINES_REDUCE,
	CELLS_REDUCE,
	BARRIER,
	LINES,
	CELLS,
	BROADCAST,
	WIDE,
	PAIR,
	DIRECT,
	DIRECT_OR_PAIR,
	HUB,
	WAYS
};

/* Two ranks: up to PAIR_MIN bytes in lines. Ranks that have a core each: reduced in the central buffer up to
 * HUB_REDUCES, counted, not measured: sixteen times that through one core is what half a dozen rounds of a plan take.
 */
enum { PAIR_MIN = COLL_PAIR_SWAP_MIN, HUB_REDUCES = COLL_CENTRAL_REDUCE_MAX };

/* Of one that may go several ways, the first. */
static const uint8_t names[WAYS] = {
        [LINE_REDUCE] = COLL_WAY_EAGER_LINE,   [LINES_REDUCE] = COLL_WAY_EAGER_LINES,
        [CELLS_REDUCE] = COLL_WAY_EAGER_CHUNK, [BARRIER] = COLL_WAY_EAGER_LINE,
        [LINES] = COLL_WAY_EAGER_LINES,        [CELLS] = COLL_WAY_EAGER_CHUNK,
        [BROADCAST] = COLL_WAY_EAGER_BCAST,    [WIDE] = COLL_WAY_WIDE_BCAST,
        [PAIR] = COLL_WAY_PAIR_SWAP,           [DIRECT] = COLL_WAY_ZERO_COPY,
        [DIRECT_OR_PAIR] = COLL_WAY_ZERO_COPY, [HUB] = COLL_WAY_CENTRAL,
};

static coll_status (*const polls[WAYS])(void *, const struct coll_job *, struct coll_intra_state *) = {
        [LINE_REDUCE] = coll_intra_poll_eager_line_reduce,
        [LINES_REDUCE] = coll_intra_poll_eager_lines_reduce,
        [CELLS_REDUCE] = coll_intra_poll_eager_chunk_reduce,
        [BARRIER] = coll_intra_poll_barrier,
        [LINES] = coll_intra_poll_eager_lines,
        [CELLS] = coll_intra_poll_eager_chunk,
        [BROADCAST] = coll_intra_poll_eager_bcast,
        [WIDE] = coll_intra_poll_wide_bcast,
        [PAIR] = coll_intra_poll_pair_swap,
        [DIRECT] = coll_intra_poll_zero_copy,
        [DIRECT_OR_PAIR] = coll_intra_poll_zero_copy,
        [HUB] = coll_intra_poll_central,
};

static bool scatters(enum coll_kind kind)
{
	return kind == COLL_KIND_ALL_TO_ALL || kind == COLL_KIND_REDUCE_SCATTER;
}

/* What the rank that writes most writes, of bytes a block. */
static size_t payload_of(enum coll_kind kind, int size, size_t bytes)
{
	return scatters(kind) ? (size_t)size * bytes : bytes;
}

/* Whether the payload fits in the lines of an entry: see eager_block.c for several blocks. */
static bool in_lines(enum coll_kind kind, int size, size_t bytes)
{
	if (bytes > COLL_ENTRY_PAYLOAD)
		return false;
	return coll_intra_lines(bytes) * (scatters(kind) ? (uint32_t)size - 1 : 1) <= COLL_LINES;
}

static enum way find(enum coll_kind kind, int size, size_t bytes)
{
	const bool pair = size == 2 && bytes > PAIR_MIN;

	switch (kind) {
	case COLL_KIND_ALL_REDUCE:
		if (bytes <= COLL_FIRST_PAYLOAD)
			return LINE_REDUCE;
		return pair ? PAIR : in_lines(kind, size, bytes) ? LINES_REDUCE : CELLS_REDUCE;
	case COLL_KIND_BARRIER: return BARRIER;
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_ALL_TO_ALL: return pair ? PAIR : in_lines(kind, size, bytes) ? LINES : CELLS;
	case COLL_KIND_BROADCAST:
		if (size == 2 ? bytes <= PAIR_MIN : in_lines(kind, size, bytes))
			return BROADCAST;
		return bytes <= COLL_WIDE_BYTES ? WIDE : NO_WAY;
	default: return NO_WAY;
	}
}

/* The longest payload that gains by it, 0: none does. */
static size_t limit_of(enum coll_kind kind, int size, bool crowded)
{
	if (find(kind, size, SIZE_MAX) == PAIR)
		return SIZE_MAX;
	switch (kind) {
	case COLL_KIND_BARRIER: return SIZE_MAX;
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_ALL_GATHER: return crowded ? SIZE_MAX : COLL_EAGER_GATHER_MAX;
	case COLL_KIND_REDUCE_SCATTER: return crowded ? SIZE_MAX : COLL_EAGER_SCATTER_MAX;
	case COLL_KIND_ALL_TO_ALL: return crowded ? SIZE_MAX : COLL_EAGER_ALLTOALL_MAX;
	case COLL_KIND_BROADCAST: return COLL_WIDE_BYTES;
	default: return 0;
	}
}

/* By the central buffer: all kinds but scan. */
static bool central_serves(enum coll_kind kind, int size, bool crowded, size_t count, size_t elem_bytes,
                           size_t payload_bytes)
{
	if (size > COLL_CENTRAL_SIZE_MAX || count == 0 || count > SIZE_MAX / elem_bytes / (size_t)size)
		return false;
	if (kind == COLL_KIND_SCAN || kind == COLL_KIND_SEND_RECV)
		return false;
	/* Pieces, of a line at least, are counted in 32 bits. */
	if (count * elem_bytes / COLL_LINE_BYTES >= UINT32_MAX)
		return false;
	if (crowded)
		return true;
	/* Few ranks reduce for the others, whose cores are idle meanwhile. */
	if ((kind == COLL_KIND_ALL_REDUCE || kind == COLL_KIND_REDUCE) && count * elem_bytes > HUB_REDUCES)
		return false;
	return payload_of(kind, size, count * elem_bytes) <= payload_bytes;
}

bool coll_intra_serves(enum coll_kind kind, int size, bool crowded, size_t count, size_t elem_bytes,
                       size_t payload_bytes)
{
	size_t payload;

	if (size > COLL_INTRA_SIZE_MAX)
		return central_serves(kind, size, crowded, count, elem_bytes, payload_bytes);
	if (size < 2 || count == 0 || count > payload_bytes / elem_bytes)
		return false;
	payload = payload_of(kind, size, count * elem_bytes);
	return payload <= payload_bytes && payload <= limit_of(kind, size, crowded) &&
	       find(kind, size, count * elem_bytes) != NO_WAY;
}

const struct coll_intra_op *coll_intra_op_of(struct coll_intra *n, enum coll_kind kind, size_t count, size_t elem_bytes)
{
	return &n->ops[n->size > COLL_INTRA_SIZE_MAX ? HUB : find(kind, n->size, count * elem_bytes)];
}

const struct coll_intra_op *coll_intra_zero_copy_op(struct coll_intra *n, const struct coll_intra_op *small)
{
	if (!small)
		return &n->ops[DIRECT];
	return small == &n->ops[PAIR] ? &n->ops[DIRECT_OR_PAIR] : small;
}

void coll_intra_ops(struct coll_intra *n)
{
	_Static_assert(WAYS <= sizeof(n->ops) / sizeof(n->ops[0]), "room for each");
	for (int way = 0; way < WAYS; way++)
		n->ops[way] = (struct coll_intra_op){.poll = polls[way], .where = coll_intra_position, .arg = n};
	n->ops[HUB].where = coll_intra_position_central;
	n->ops[DIRECT].passes = n->ops[DIRECT_OR_PAIR].passes = coll_intra_passes_zero_copy;
	n->ops[DIRECT_OR_PAIR].instead = &n->ops[PAIR];
}

bool coll_intra_is_fastpath(const struct coll_intra_op *intra)
{
	return intra->poll == polls[LINE_REDUCE] || intra->poll == polls[BARRIER];
}

uint8_t coll_intra_way(const struct coll_intra_op *intra)
{
	const struct coll_intra *n = intra->arg;

	return names[intra - n->ops];
}
