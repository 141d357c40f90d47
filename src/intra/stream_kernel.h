/*
 * Chunks of two ranks, moved at the same time; private to src/intra. Of both schedules of
 * pair_stream.c: where slots lie, how a vector is cut into chunks, and the loop over the bytes.
 *
 * It knows neither the other rank nor epochs: who calls it has seen that the chunks are there.
 */
#ifndef COLL_INTRA_STREAM_KERNEL_H
#define COLL_INTRA_STREAM_KERNEL_H

#include "base/limits.h"
#include "intra/region.h"
#include "reduce/reduce.h"

enum { COLL_RING_SLOTS = 4 };
/* Rings of slots in a region: of the pair stream, and of halves. */
enum { COLL_RING_SWAP, COLL_RING_HALVES, COLL_RINGS };
_Static_assert(COLL_RINGS *COLL_RING_SLOTS *(COLL_PAIR_SLOT_BYTES + COLL_AREA_GAP) <=
                       COLL_TILE_AREAS / 2 * (COLL_TILE_BYTES + COLL_AREA_GAP),
               "in half of where more than two ranks have tiles; pair_bcast.c has the other");

/* Of chunk c, in the ring of that rank. */
char *coll_intra_slot(const struct coll_intra *n, int ring, uint64_t c, int rank);

/* Bytes of a chunk: whole pages, so many of them that both ranks are at work most of the time. */
size_t coll_intra_chunk(size_t bytes);

/* Piece k of a vector or block on its way; past the last one it has no bytes. */
struct coll_span {
	size_t at, bytes;
};
struct coll_span coll_intra_span(size_t all_bytes, size_t chunk, size_t k);

/* One chunk. */
struct coll_leg {
	char *slot;
	const char *own;   /* of the caller's input; on from `next` when it ends */
	const char *next;  /* NULL: nowhere */
	size_t next_bytes; /* of it */
	const char *kept;  /* of the caller's input, too: what goes to `to` when own is sent */
	char *to;          /* of the caller's result; NULL: nowhere */
	size_t bytes;      /* 0: there is none */
};

/*
 * Block by block: of the taken leg slot -> to; of the joined one own and slot -> to, and back to the slot if it
 * returns; of the sent one own -> slot, kept -> to. A block is taken before its like is sent: the slot may be the same.
 * Elements are whole within chunks.
 */
struct coll_weave {
	struct coll_leg taken, joined, sent;
	const struct coll_reduction *reduction; /* of what is joined; no function of the user's */
	bool own_first;                         /* the left operand */
	bool returns;
	bool stream; /* what is stored to results goes past the caches; no fence */
};
void coll_intra_stream_kernel(const struct coll_weave *w);

#endif
