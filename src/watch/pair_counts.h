/*
 * The tally: how many elements this rank sends to and expects from each other in its last
 * few calls whose block lengths only the two ends know (all_to_allv, gatherv, scatterv).
 * No record of such a call can say whether two ranks differ; the tally can.
 *
 * One writer (the communicator's thread, when such a call begins), any readers. Each sheet
 * is a sequence lock like a call record (record.h): number is 0 while it is written, and
 * the calls' own numbers never repeat, so a reader that finds the same number before and
 * after has read what belongs together. Sheets are allocated with the first such call and
 * live as long as the communicator.
 */
#ifndef COLL_COMM_TALLY_H
#define COLL_COMM_TALLY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_TALLY_CALLS = 4 };

struct coll_tally_sheet {
	_Atomic uint64_t number;   /* of the call; 0: none */
	_Atomic uint64_t *lengths; /* [2 * rank]: to that rank, [2 * rank + 1]: from it */
};

struct coll_tally {
	struct coll_tally_sheet sheets[COLL_TALLY_CALLS];
	_Atomic uint64_t *memory;
	atomic_bool ready; /* release, after the allocation */
	unsigned next;
	int size;
};

struct coll_call;

/* Collective call number begins: note its lengths. Without memory nothing is noted. */
void coll_tally_note(struct coll_tally *t, const struct coll_call *call, uint64_t number, int rank, int size);
void coll_tally_free(struct coll_tally *t);

/* What call number says of a rank; false: not on the tally. Any thread. */
bool coll_tally_find(const struct coll_tally *t, uint64_t number, int rank, uint64_t *to, uint64_t *from);

#endif
