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
struct coll_comm;

/* Collective call number begins: note its lengths. Without memory nothing is noted. */
void coll_pair_counts_note(struct coll_pair_counts *t, const struct coll_call *call, uint64_t number, int rank,
                           int size);
void coll_pair_counts_free(struct coll_pair_counts *t);

/* Whether such calls were made. All ranks say the same, unless their calls differ in more than lengths. */
bool coll_pair_counts_any(const struct coll_pair_counts *t);

/* The sums over all ranks are 0, modulo 2^64, if each has sent what the others expected: a block that nobody expected
 * may be on a channel on which no other frame comes. For the thread of the communicator. */
void coll_pair_counts_sums(const struct coll_pair_counts *t, uint64_t sums[COLL_PAIR_SUMS]);

/* The sums over all size ranks: whether they show a difference. If it is one of one pair in one call, then by how many
 * elements *from sent more in *call than *to expected; else *call is 0. */
bool coll_pair_counts_differ(const uint64_t sums[COLL_PAIR_SUMS], int size, int *from, int *to, uint64_t *call,
                             int64_t *elements);

/* The same as a sentence, and whom this rank blames; -1: nobody. */
bool coll_pair_counts_verdict(const struct coll_comm *comm, const uint64_t sums[COLL_PAIR_SUMS], int *culprit,
                              char *text, size_t len_bytes);

/* What call number says of a rank; false: not on the pair counts. Any thread. */
bool coll_pair_counts_find(const struct coll_pair_counts *t, uint64_t number, int rank, uint64_t *to, uint64_t *from);

#endif
