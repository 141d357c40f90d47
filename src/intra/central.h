/*
 * One area that all ranks of a communicator map and write: for more ranks than can each read
 * all others. Private to src/intra.
 *
 * The area is of rank 0. In an *epoch* (a piece of a call: see region.h for the word) every rank
 * writes what others need to its own cell, and counts itself: first in its group of COLL_CENTRAL_GROUP
 * ranks, and who completes a group counts the group. Who is the last of all says that the epoch is *done*. So a
 * rank looks at one word, however many ranks there are, and is put to sleep and woken once an epoch at most; where
 * there are more ranks than cores that is nearly all of the time.
 *
 * What is to be reduced is reduced by whoever completes a group, in the order of ranks, to the
 * group's cell, and by the last of all, in the order of groups, to the epoch's result: the same bits
 * whoever that is.
 *
 * A rank may be COLL_CENTRAL_AHEAD epochs ahead of what it has finished. Ordering:
 *
 *  - A rank enters epoch t (writes, and counts itself) when epoch t - AHEAD is done, and it has read all it
 *    will of epoch t - AHEAD and those before. So when epoch t is done, all have read all of epoch t - AHEAD.
 *  - Memory of epoch t was of epoch t - DEPTH before, and DEPTH is 2 AHEAD: who enters t knows that
 *    t - AHEAD is done, so all have read what epoch t - DEPTH left there.
 *  - Bytes are written before the count (release), which the next one adds to (acquire and release), and so on
 *    to the last, who stores the word (release) that readers load (acquire).
 *  - Who completes a count sets it to 0 before it goes on: the next that adds to it is of epoch t + DEPTH.
 *
 * In a broadcast or scatter readers look at the root's line, not at the epoch: the root alone has
 * something for them. central_model_test.c explores all of that.
 *
 * With each count goes the sum of what the calls look like: who is last sees whether all are the same.
 */
#ifndef COLL_INTRA_CENTRAL_H
#define COLL_INTRA_CENTRAL_H

#include "base/limits.h"
#include "intra/enter.h"

enum {
	COLL_CENTRAL_AHEAD = 4,
	COLL_CENTRAL_DEPTH = 2 * COLL_CENTRAL_AHEAD,
	COLL_CENTRAL_GROUP = 16,
	COLL_CENTRAL_GROUPS = COLL_CENTRAL_SIZE_MAX / COLL_CENTRAL_GROUP,
	COLL_CENTRAL_CELL_MIN = COLL_CENTRAL_SIZE_MAX * COLL_CENTRAL_BLOCK_MIN,
};

/* How many have come: ranks << COLL_CENTRAL_COUNT_BIT, and below it the sum of their marks. */
enum { COLL_CENTRAL_STALE_BIT = 42, COLL_CENTRAL_COUNT_BIT = 48 };
struct central_count {
	_Alignas(COLL_LINE_BYTES) _Atomic uint64_t ranks;
};

/* The last epoch in which a rank has done all that others wait for: its part, and what it does for
 * them as the last of a count. For diagnosis; nobody orders anything by it. A line of its own, which stays with its
 * writer. */
struct central_arrival {
	_Alignas(COLL_LINE_BYTES) _Atomic uint32_t epoch;
};

/* What an epoch has, beside cells. */
struct central_round {
	struct intra_line done; /* a short result, too */
	struct central_count all;
	struct central_count groups[COLL_CENTRAL_GROUPS];
	struct intra_line partial[COLL_CENTRAL_GROUPS]; /* a short one of each group */
	struct intra_line lines[COLL_CENTRAL_SIZE_MAX]; /* of each rank */
};

struct central_area {
	_Alignas(COLL_LINE_BYTES) _Atomic uint32_t verdict; /* enum intra_verdict, of rank 0 */
	uint32_t size;
	uint64_t cell_bytes;
	_Atomic uint32_t joined[COLL_CENTRAL_SIZE_MAX]; /* it has mapped this */
	struct central_arrival arrivals[COLL_CENTRAL_SIZE_MAX];
	_Alignas(4096) struct central_round rounds[COLL_CENTRAL_DEPTH];
	char cells[]; /* of each epoch: of the ranks, of the groups, of the result */
};

/* central.c, central_move.c: of more ranks. */
size_t coll_intra_central_cell_bytes(size_t payload_bytes);
size_t coll_intra_central_bytes(int size, size_t payload_bytes);

static inline size_t coll_central_stride(size_t cell_bytes)
{
	return cell_bytes + COLL_AREA_GAP;
}
static inline uint32_t coll_central_groups(int size)
{
	return ((uint32_t)size + COLL_CENTRAL_GROUP - 1) / COLL_CENTRAL_GROUP;
}
static inline struct central_round *coll_central_round(const struct coll_intra *n, uint32_t epoch)
{
	return &n->central.area->rounds[epoch % COLL_CENTRAL_DEPTH];
}
/* Cell i of an epoch: of rank i; size + g: of group g; size + groups: of the result. */
static inline char *coll_central_cell(const struct coll_intra *n, uint32_t epoch, uint32_t i)
{
	const size_t cells = (size_t)n->size + coll_central_groups(n->size) + 1;

	return n->central.area->cells +
	       (epoch % COLL_CENTRAL_DEPTH * cells + i) * coll_central_stride(n->central.cell_bytes);
}

/* What is reduced, of an epoch: elements of the calls' type; short: they lie in lines. */
struct central_part {
	size_t count;
	bool reduces, is_short;
};

/* central.c */
/* The area is there and used by all (OK), by nobody ever (UNSUPPORTED), or not yet known (AGAIN). */
coll_status coll_central_form(struct coll_intra *n, uint32_t *waits_for);
/* Before the first operation of a root: who wakes whom. */
void coll_central_root(struct coll_intra *n, int root);
/* Those wake up to whom there is a link. */
void coll_central_nudge(struct coll_intra *n);
/* central_epoch.c */

#endif
