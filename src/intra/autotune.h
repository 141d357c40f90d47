/*
 * Which way blocks go between ranks in plain memory, found out by trying; private to
 * src/intra.
 */
#ifndef COLL_INTRA_AUTOTUNE_H
#define COLL_INTRA_AUTOTUNE_H

#include "intra/intra.h"

/* What a rank stores past the caches is a way of its own: it is not told by sizes alone. */
enum intra_copy { COLL_SLOTS, COLL_SLOTS_STREAMED, COLL_PULL, COLL_CMA_STREAMED, COLL_TRIED_WAYS };

/* Calls of one kind and size. calls and best are equal on all ranks, ns are this rank's. */
struct intra_autotune {
	uint32_t calls;
	uint32_t tried;               /* calls of the first trial; 0: none yet */
	uint32_t ns[COLL_TRIED_WAYS]; /* the quickest call of the last trial; 0: none */
	uint8_t best;
};

static inline bool coll_intra_cmas(enum intra_copy way)
{
	return way >= COLL_PULL;
}
static inline bool coll_intra_streams(enum intra_copy way)
{
	return way & 1;
}

/* Begin a call: its way. *settles: before it goes any way the ranks exchange their ns, and settle. is_long: the first
 * trial takes half as many calls; always alike. can_pull: agreed. */
enum intra_copy coll_intra_autotune_begin(struct intra_autotune *t, bool is_long, bool can_pull, bool *settles);
/* The call begun last went so and took ns. */
void coll_intra_autotune_end(struct intra_autotune *t, enum intra_copy way, uint64_t ns);
/* What a rank has told of: the least of all that are heard, which are nothing to begin with. */
void coll_intra_autotune_receive(uint32_t least[COLL_TRIED_WAYS], const uint32_t ns[COLL_TRIED_WAYS]);
/* What is best from here on, of this call too: by the least of all ranks, so the same on all of them. */
enum intra_copy coll_intra_autotune_settle(struct intra_autotune *t, const uint32_t least[COLL_TRIED_WAYS],
                                           bool can_pull);

#endif
