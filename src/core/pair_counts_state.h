/*
 * State of a communicator, data only: counts of its last pairwise calls. See watch/pair_counts.h.
 */
#ifndef COLL_CORE_PAIR_COUNTS_STATE_H
#define COLL_CORE_PAIR_COUNTS_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_PAIR_COUNTS_CALLS = 4 };

/* Of all such calls so far, what this rank sent less what it expected, in elements: see coll_pair_counts_differ(). */
enum coll_pair_sum {
	COLL_PAIR_SUM_ELEMENTS,
	COLL_PAIR_SUM_PAIRS,   /* times number of the pair */
	COLL_PAIR_SUM_CALLS,   /* times number of the call */
	COLL_PAIR_SUM_HASH,    /* times a hash of both */
	COLL_PAIR_SUM_UNNOTED, /* calls that there was no memory for */
	COLL_PAIR_SUMS
};

struct coll_pair_counts_sheet {
	_Atomic uint64_t number;   /* of the call; 0: none */
	_Atomic uint64_t *lengths; /* [2 * rank]: to that rank, [2 * rank + 1]: from it */
};

struct coll_pair_counts {
	struct coll_pair_counts_sheet sheets[COLL_PAIR_COUNTS_CALLS];
	_Atomic uint64_t *memory; /* lengths, then the sums */
	bool any;                 /* there was such a call */
	atomic_bool ready;        /* release, after the allocation */
	unsigned next;
	int size;
};

#endif
