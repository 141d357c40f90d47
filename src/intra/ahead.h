/*
 * Slots that a rank fills ahead of another one that does not run at the moment.
 *
 * While both keep step the few slots of stream_kernel.h are enough, and they stay in the caches. A rank whose core is
 * taken by somebody else does not move for milliseconds. Then the other one goes on into further slots of its own
 * region, up to COLL_AHEAD_BYTES, and each of the two is scheduled a few times in a call instead of once for each
 * chunk.
 *
 * Invariant: always the first slot that is free is taken. So slots beyond the first few are touched, and take memory,
 * only when they are needed. Which slot has chunk c stands in a table of the region, which the owner writes before it
 * publishes the chunk. This file knows neither the other rank nor when a slot may be taken again.
 */
#ifndef COLL_INTRA_AHEAD_H
#define COLL_INTRA_AHEAD_H

#include "base/limits.h"
#include "intra/region.h"

/* Where chunk c of the rank lies: as its owner has said. */
static inline uint32_t *coll_ahead_entry(const struct coll_intra *n, int rank, uint64_t c)
{
	uint32_t *table =
	        (uint32_t *)(void *)((char *)coll_intra_region(n, rank) + coll_intra_ahead_at(n->payload_bytes));

	return &table[c % COLL_AHEAD_SLOTS];
}

/* The slot's memory, in the region of that rank. */
char *coll_ahead_slot(const struct coll_intra *n, int rank, uint32_t slot);

/* How many there are: chunks between two ranks, tiles among more. */
uint32_t coll_ahead_slots(const struct coll_intra *n);

/* The first free slot is chunk c's, and said to be; there is one. */
void coll_ahead_take(struct coll_intra *n, uint64_t c);
/* That of chunk c is free again: nobody reads or writes it any more. */
void coll_ahead_give(struct coll_intra *n, uint64_t c);

/* Between two operations: if no slot is in use and this process holds more than COLL_AHEAD_KEEP_BYTES in such slots,
 * the memory of these goes back to the system. */
void coll_ahead_end(struct coll_intra *n);
/* The region is freed. */
void coll_ahead_forget(struct coll_intra *n);

#endif
