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

struct coll_pair_counts_sheet {
	_Atomic uint64_t number;   /* of the call; 0: none */
	_Atomic uint64_t *lengths; /* [2 * rank]: to that rank, [2 * rank + 1]: from it */
};

struct coll_pair_counts {
	struct coll_pair_counts_sheet sheets[COLL_PAIR_COUNTS_CALLS];
	_Atomic uint64_t *memory;
	atomic_bool ready; /* release, after the allocation */
	unsigned next;
	int size;
};

#endif
