/*
 * See ahead.h. Of a process the slots of all communicators count together: a communicator that is used for long
 * messages once keeps its slots, and a thousand of them keep no more than a few.
 */
#include "intra/ahead.h"

#include <assert.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "intra/stream_kernel.h"

enum {
	WORD_BITS = 64,
	PAGE = 4096,
	SLOT = COLL_PAIR_SLOT_BYTES + COLL_AREA_GAP,
	TILE = COLL_TILE_BYTES + COLL_AREA_GAP
};
enum { NEAR = COLL_RING_SLOTS, TILES = NEAR + (COLL_AHEAD_SLOTS - NEAR) * SLOT / TILE };
_Static_assert((int)NEAR == (int)COLL_TILE_AREAS, "so many lie elsewhere");
_Static_assert(sizeof(uint32_t) * COLL_AHEAD_SLOTS <= COLL_AHEAD_TABLE_BYTES, "room for the table");

/* Bytes that were touched and not given back, of all communicators of this process. */
static atomic_size_t kept;

static char *deep(const struct coll_intra *n, int rank)
{
	return (char *)coll_intra_region(n, rank) + coll_intra_ahead_at(n->payload_bytes) + COLL_AHEAD_TABLE_BYTES;
}

static size_t stride(const struct coll_intra *n)
{
	return n->size > 2 ? TILE : SLOT;
}

uint32_t coll_ahead_slots(const struct coll_intra *n)
{
	return n->size > 2 ? (uint32_t)TILES : (uint32_t)COLL_AHEAD_SLOTS;
}

char *coll_ahead_slot(const struct coll_intra *n, int rank, uint32_t slot)
{
	if (slot >= NEAR)
		return deep(n, rank) + (slot - NEAR) * stride(n);
	return n->size > 2 ? coll_intra_cico_area(n, coll_intra_region(n, rank), slot)
	                   : coll_intra_slot(n, COLL_RING_HALVES, slot, rank);
}

void coll_ahead_take(struct coll_intra *n, uint64_t c)
{
	uint32_t word = 0, slot;

	while (n->ahead.used[word] == UINT64_MAX)
		word++;
	slot = word * WORD_BITS + (uint32_t)__builtin_ctzll(~n->ahead.used[word]);
	assert(slot < COLL_AHEAD_SLOTS);
	n->ahead.used[word] |= 1ull << slot % WORD_BITS;
	if (slot >= n->ahead.touched)
		n->ahead.touched = slot + 1;
	*coll_ahead_entry(n, n->rank, c) = slot;
}

void coll_ahead_give(struct coll_intra *n, uint64_t c)
{
	const uint32_t slot = *coll_ahead_entry(n, n->rank, c);

	n->ahead.used[slot / WORD_BITS] &= ~(1ull << slot % WORD_BITS);
}

static bool in_use(const struct coll_intra *n)
{
	uint64_t any = 0;

	for (size_t i = 0; i < sizeof(n->ahead.used) / sizeof(n->ahead.used[0]); i++)
		any |= n->ahead.used[i];
	return any != 0;
}

void coll_ahead_end(struct coll_intra *n)
{
	const size_t bytes = n->ahead.touched > NEAR ? (n->ahead.touched - NEAR) * stride(n) : 0;

	if (bytes == 0)
		return;
	atomic_fetch_add_explicit(&kept, bytes - n->ahead.kept_bytes, memory_order_relaxed);
	n->ahead.kept_bytes = bytes;
	if (atomic_load_explicit(&kept, memory_order_relaxed) <= COLL_AHEAD_KEEP_BYTES || in_use(n))
		return;
	/* Of a region that has no pages of its own to remove (tests) nothing is given back. */
	madvise(deep(n, n->rank), (bytes + PAGE - 1) & ~(size_t)(PAGE - 1), MADV_REMOVE);
	coll_ahead_forget(n);
}

void coll_ahead_forget(struct coll_intra *n)
{
	atomic_fetch_sub_explicit(&kept, n->ahead.kept_bytes, memory_order_relaxed);
	n->ahead.kept_bytes = 0;
	n->ahead.touched = 0;
}
