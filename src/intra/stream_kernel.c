/*
 * The loop of stream_kernel.h. In turns of blocks, so that the lines of the caller's memory and those of the other's
 * cache are waited for at the same time; done one after the other they take turns.
 *
 * Slots are fetched a little ahead, as nothing tells a core's prefetcher where they go on. The caller's memory is
 * fetched further ahead, past the pages that are read now: a prefetcher stops at a page's end, and the page's
 * translation is waited for there, too. Both to the second-level cache: far more lines are on their way then
 * than a core has loads in flight.
 */
#include "intra/stream_kernel.h"

#include <assert.h>

#include "reduce/copy.h"
#include "reduce/spread.h"

enum {
	PIECES = 8, /* of a short message, at least */
	PAGE = 4096
};

char *coll_intra_slot(const struct coll_intra *n, int ring, uint64_t c, int rank)
{
	const size_t slot = (size_t)ring * COLL_RING_SLOTS + c % COLL_RING_SLOTS;

	return (char *)coll_intra_region(n, rank) + coll_intra_cico_at(n->payload_bytes) +
	       slot * (COLL_PAIR_SLOT_BYTES + COLL_AREA_GAP);
}

size_t coll_intra_chunk(size_t bytes)
{
	const size_t piece = bytes / PIECES & ~(size_t)(PAGE - 1);

	return piece < COLL_PAIR_STREAM_MIN   ? COLL_PAIR_STREAM_MIN
	       : piece > COLL_PAIR_SLOT_BYTES ? COLL_PAIR_SLOT_BYTES
	                                      : piece;
}

/* The last bytes of what the caller has just written are in its core's cache still, the first
 * are not any more: the vector is gone through backwards, unless it is so long that they hardly matter. */
struct coll_span coll_intra_span(size_t all_bytes, size_t chunk, size_t k)
{
	const size_t pieces = (all_bytes + chunk - 1) / chunk;
	size_t at, left;

	if (k >= pieces)
		return (struct coll_span){0};
	at = (all_bytes <= COLL_PAIR_BACKWARDS_MAX ? pieces - 1 - k : k) * chunk;
	left = all_bytes - at;
	return (struct coll_span){at, left < chunk ? left : chunk};
}

static void fetch(const char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += COLL_LINE_BYTES)
		__builtin_prefetch(from + i, 0, 2);
}

static size_t within(size_t at, size_t end)
{
	return at >= end ? 0 : end - at < COLL_PAIR_BLOCK_BYTES ? end - at : COLL_PAIR_BLOCK_BYTES;
}

/* What is past the end of a chunk is not there yet. */
static void fetch_slot(const struct coll_leg *leg, size_t i)
{
	fetch(leg->slot + i + COLL_PAIR_SLOT_AHEAD, within(i + COLL_PAIR_SLOT_AHEAD, leg->bytes));
}

static void fetch_own(const struct coll_leg *leg, size_t i)
{
	const size_t at = i + COLL_PAIR_OWN_AHEAD;

	if (at < leg->bytes)
		fetch(leg->own + at, within(at, leg->bytes));
	else if (leg->next)
		fetch(leg->next + (at - leg->bytes), within(at - leg->bytes, leg->next_bytes));
}

static void store(char *to, const char *from, size_t bytes, bool stream)
{
	if (stream)
		coll_reduce_stream(to, from, bytes);
	else
		coll_reduce_copy(to, from, bytes);
}

static void take(const struct coll_weave *w, size_t i, size_t bytes)
{
	fetch_slot(&w->taken, i);
	store(w->taken.to + i, w->taken.slot + i, bytes, w->stream);
}

static void join(const struct coll_weave *w, size_t i, size_t bytes)
{
	const struct coll_leg *leg = &w->joined;
	char *slot = leg->slot + i, *to = leg->to + i;
	const char *src[2];

	fetch_slot(leg, i);
	fetch_own(leg, i);
	src[!w->own_first] = leg->own + i;
	src[w->own_first] = slot;
	if (w->stream && !w->returns) {
		coll_reduce_spread(w->reduction, &to, 1, src, 2, true, bytes);
		return;
	}
	coll_reduce_run(w->reduction, w->returns ? slot : to, (const void *const *)src, 2, -1, true,
	                bytes / w->reduction->elem_bytes);
	if (w->returns)
		store(to, slot, bytes, w->stream);
}

static void send(const struct coll_weave *w, size_t i, size_t bytes)
{
	const struct coll_leg *leg = &w->sent;

	fetch_own(leg, i);
	coll_reduce_copy(leg->slot + i, leg->own + i, bytes);
	if (leg->to)
		store(leg->to + i, leg->kept + i, bytes, w->stream);
}

static size_t longest(const struct coll_weave *w)
{
	size_t most = w->taken.bytes > w->joined.bytes ? w->taken.bytes : w->joined.bytes;

	return most > w->sent.bytes ? most : w->sent.bytes;
}

void coll_intra_stream_kernel(const struct coll_weave *w)
{
	const size_t end = longest(w);

	assert(w->joined.bytes == 0 || w->reduction->op < COLL_OP_COUNT);
	for (size_t i = 0; i < end; i += COLL_PAIR_BLOCK_BYTES) {
		const size_t taken = within(i, w->taken.bytes), joined = within(i, w->joined.bytes);
		const size_t sent = within(i, w->sent.bytes);

		if (taken > 0)
			take(w, i, taken);
		if (joined > 0)
			join(w, i, joined);
		if (sent > 0)
			send(w, i, sent);
	}
}
