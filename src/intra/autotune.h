/*
 * Which way blocks go between ranks in plain memory, found out by trying; private to
 * src/native.
 */
#ifndef COLL_NATIVE_TRIAL_H
#define COLL_NATIVE_TRIAL_H

#include "intra/intra.h"

/* What a rank stores past the caches is a way of its own: it is not told by sizes alone. */
enum native_way { COLL_SLOTS, COLL_SLOTS_STREAMED, COLL_PULL, COLL_PULL_STREAMED, COLL_TRIED_WAYS };

/* Calls of one kind and size. calls and best are equal on all ranks, ns are this rank's. */
struct native_trial {
	uint32_t calls;
	uint32_t tried;               /* calls of the first trial; 0: none yet */
	uint32_t ns[COLL_TRIED_WAYS]; /* the quickest call of the last trial; 0: none */
	uint8_t best;
};

static inline bool coll_native_pulls(enum native_way way)
{
	return way >= COLL_PULL;
}
static inline bool coll_native_streams(enum native_way way)
{
	return way & 1;
}

/* Begin a call: its way. *settles: before it goes any way the ranks exchange their ns, and settle. is_long: the first
 * trial takes half as many calls; always alike. can_pull: agreed. */
enum native_way coll_native_trial_begin(struct native_trial *t, bool is_long, bool can_pull, bool *settles);
/* The call begun last went so and took ns. */
void coll_native_trial_end(struct native_trial *t, enum native_way way, uint64_t ns);
/* What a rank has told of: the least of all that are heard, which are nothing to begin with. */
void coll_native_trial_hear(uint32_t least[COLL_TRIED_WAYS], const uint32_t ns[COLL_TRIED_WAYS]);
/* What is best from here on, of this call too: by the least of all ranks, so the same on all of them. */
enum native_way coll_native_trial_settle(struct native_trial *t, const uint32_t least[COLL_TRIED_WAYS], bool can_pull);

#endif
