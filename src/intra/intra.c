/*
 * Which operation is made how, and what they say of themselves when they wait.
 */
#include "intra/intra.h"

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

/* Two ranks: up to PAIR_MIN bytes in lines. Ranks that have a core each: reduced in the hub up to HUB_REDUCES, counted,
 * not measured: sixteen times that through one core is what half a dozen rounds of a plan take. */
enum { PAIR_MIN = 256, HUB_REDUCES = 1024 };

/* Of one that may go several ways, the first. */
static const uint8_t names[WAYS] = {
        [LINE_REDUCE] = COLL_WAY_EAGER_LINE,   [LINES_REDUCE] = COLL_WAY_EAGER_LINES,
        [CELLS_REDUCE] = COLL_WAY_EAGER_CHUNK, [BARRIER] = COLL_WAY_EAGER_LINE,
        [LINES] = COLL_WAY_EAGER_LINES,        [CELLS] = COLL_WAY_EAGER_CHUNK,
        [BROADCAST] = COLL_WAY_EAGER_BCAST,    [WIDE] = COLL_WAY_WIDE_BCAST,
        [PAIR] = COLL_WAY_PAIR_SWAP,           [DIRECT] = COLL_WAY_ZERO_COPY,
        [DIRECT_OR_PAIR] = COLL_WAY_ZERO_COPY, [HUB] = COLL_WAY_CENTRAL,
};

static coll_status (*const polls[WAYS])(void *, const struct coll_job *, struct coll_hand_state *) = {
        [LINE_REDUCE] = coll_native_poll_line_reduce,
        [LINES_REDUCE] = coll_native_poll_lines_reduce,
        [CELLS_REDUCE] = coll_native_poll_cells_reduce,
        [BARRIER] = coll_native_poll_barrier,
        [LINES] = coll_native_poll_lines,
        [CELLS] = coll_native_poll_cells,
        [BROADCAST] = coll_native_poll_broadcast,
        [WIDE] = coll_native_poll_wide,
        [PAIR] = coll_native_poll_pair,
        [DIRECT] = coll_native_poll_direct,
        [DIRECT_OR_PAIR] = coll_native_poll_direct,
        [HUB] = coll_native_poll_hub,
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
	return coll_native_lines(bytes) * (scatters(kind) ? (uint32_t)size - 1 : 1) <= COLL_LINES;
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

/*
 * The longest payload that gains by it, 0: none does. Two ranks, two cores, and four ranks on them
 * (2026-11-21, time by the plan / by hand, 10th percentiles of 400 interleaved blocks):
 *   (all but 8 B with lines and cells of each rank's own; two ranks use a pair's place now, see pair_swap.c)
 *   all_reduce      8 B 1.40, 48 B 1.69, 256 B 1.21, 512 B 1.02, 1 KiB 0.88, 4 to 32 KiB 0.93 to 1.08
 *   all_gather      8 B 1.11, 256 B 1.12, 1 KiB 0.85
 *   reduce_scatter  256 B 1.10, 1 KiB 1.13, 4 KiB 0.98
 *   all_to_all      8 B 1.15, 1 KiB 1.13, 4 KiB 1.08, 32 KiB 1.02
 *   four ranks      all_reduce 8 B 1.12, 4 KiB 1.25, 16 KiB 1.79, 64 KiB 1.44; all_gather 1.12 to 1.49
 * Broadcast, roots in turn, 2026-11-22: 1 KiB 0.308 and 0.18 us, 2 KiB 0.467 and 0.36, 8 KiB 1.40 and 1.02, 16 KiB 2.4
 * and 2.2, 32 KiB the same, in places that do not change hands yet. More ranks than cores, see docs/design/native.md.
 * Reduce gains nothing.
 */
static size_t limit_of(enum coll_kind kind, int size, bool crowded)
{
	if (find(kind, size, SIZE_MAX) == PAIR)
		return SIZE_MAX;
	switch (kind) {
	case COLL_KIND_BARRIER: return SIZE_MAX;
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_ALL_GATHER: return crowded ? SIZE_MAX : 512;
	case COLL_KIND_REDUCE_SCATTER: return crowded ? SIZE_MAX : 2048;
	case COLL_KIND_ALL_TO_ALL: return crowded ? SIZE_MAX : 32768;
	case COLL_KIND_BROADCAST: return COLL_WIDE_BYTES;
	default: return 0;
	}
}

/* By the hub: all kinds but scan. */
static bool hub_serves(enum coll_kind kind, int size, bool crowded, size_t count, size_t elem_bytes,
                       size_t payload_bytes)
{
	if (size > COLL_HUB_SIZE_MAX || count == 0 || count > SIZE_MAX / elem_bytes / (size_t)size)
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

bool coll_native_serves(enum coll_kind kind, int size, bool crowded, size_t count, size_t elem_bytes,
                        size_t payload_bytes)
{
	size_t payload;

	if (size > COLL_NATIVE_SIZE_MAX)
		return hub_serves(kind, size, crowded, count, elem_bytes, payload_bytes);
	if (size < 2 || count == 0 || count > payload_bytes / elem_bytes)
		return false;
	payload = payload_of(kind, size, count * elem_bytes);
	return payload <= payload_bytes && payload <= limit_of(kind, size, crowded) &&
	       find(kind, size, count * elem_bytes) != NO_WAY;
}

const struct coll_hand *coll_native_hand(struct coll_native *n, enum coll_kind kind, size_t count, size_t elem_bytes)
{
	return &n->hands[n->size > COLL_NATIVE_SIZE_MAX ? HUB : find(kind, n->size, count * elem_bytes)];
}

const struct coll_hand *coll_native_direct_hand(struct coll_native *n, const struct coll_hand *small)
{
	if (!small)
		return &n->hands[DIRECT];
	return small == &n->hands[PAIR] ? &n->hands[DIRECT_OR_PAIR] : small;
}

void coll_native_hands(struct coll_native *n)
{
	_Static_assert(WAYS <= sizeof(n->hands) / sizeof(n->hands[0]), "room for each");
	for (int way = 0; way < WAYS; way++)
		n->hands[way] = (struct coll_hand){.poll = polls[way], .where = coll_native_where, .arg = n};
	n->hands[HUB].where = coll_native_where_hub;
	n->hands[DIRECT].passes = n->hands[DIRECT_OR_PAIR].passes = coll_native_passes_direct;
	n->hands[DIRECT_OR_PAIR].instead = &n->hands[PAIR];
}

bool coll_native_is_quick(const struct coll_hand *hand)
{
	return hand->poll == polls[LINE_REDUCE] || hand->poll == polls[BARRIER];
}

uint8_t coll_native_way(const struct coll_hand *hand)
{
	const struct coll_native *n = hand->arg;

	return names[hand - n->hands];
}

/* ---- Waiting ---- */

enum { LINK_EVERY = 1024 }; /* polls */

coll_status coll_native_stray(const struct coll_job *job, struct coll_hand_state *s, const struct native_line *line,
                              bool numbered)
{
	const uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

	/* 0: never written, which is a turn's number, too, once in a while. */
	if ((uint32_t)(word >> 32) != s->turn || word == 0)
		return COLL_AGAIN;
	if (word == coll_native_word(s->turn, job->signature) && (!numbered || line->sequence == job->sequence))
		return COLL_OK; /* it has come meanwhile */
	s->bad_frame =
	        (struct coll_frame){.sequence = numbered ? line->sequence : job->sequence, .signature = (uint32_t)word};
	return COLL_ERR_MISMATCH;
}

coll_status coll_native_idle(struct coll_native *n, struct coll_hand_state *s)
{
	const struct native_peer *p = &n->peers[s->pending];
	coll_status st;

	if (++s->idle % LINK_EVERY)
		return COLL_AGAIN;
	st = p->link ? p->transport->link_status(p->link) : COLL_AGAIN;
	return st == COLL_OK ? COLL_AGAIN : st;
}

void coll_native_where(void *arg, const struct coll_job *job, const struct coll_hand_state *s,
                       struct coll_run_where *where)
{
	where->peer = (int)s->pending;
	where->frame = s->bad_frame;
}
