/*
 * The pair counts: the number of elements that this rank sends to and expects from each other rank, in its
 * last few calls whose block lengths only the two ends have (all_to_allv, gatherv, scatterv).
 * The record of such a call cannot show whether two ranks differ; the pair counts can.
 *
 * One writer (the communicator's thread, when such a call begins), any readers. Each sheet
 * is a sequence lock like a call record (record.h): number is 0 while it is written, and
 * the numbers of calls never repeat. So a reader that finds the same number before and
 * after has a consistent copy. Sheets are allocated with the first such call and
 * live as long as the communicator.
 */
#ifndef COLL_WATCH_PAIR_COUNTS_H
#define COLL_WATCH_PAIR_COUNTS_H

#include "core/pair_counts_state.h"

struct coll_call;

/* Collective call number begins: note its lengths. Without memory nothing is noted. */
void coll_pair_counts_note(struct coll_pair_counts *t, const struct coll_call *call, uint64_t number, int rank,
                           int size);
void coll_pair_counts_free(struct coll_pair_counts *t);

/* What call number says of a rank; false: not on the pair counts. Any thread. */
bool coll_pair_counts_find(const struct coll_pair_counts *t, uint64_t number, int rank, uint64_t *to, uint64_t *from);

#endif
