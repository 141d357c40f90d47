/*
 * State of a communicator, data only: what its wait publishes while it does not move. See
 * watch/deadlock.h.
 */
#ifndef COLL_CORE_BLOCKED_STATE_H
#define COLL_CORE_BLOCKED_STATE_H

#include <stdatomic.h>

#include "control/mismatch_msg.h"

enum { COLL_BLOCKED_WORDS = sizeof(struct coll_blocked) / 8 };

struct coll_blocked_box {
	_Atomic uint32_t version; /* 0: nothing was ever published */
	_Atomic uint64_t word[COLL_BLOCKED_WORDS];
};

#endif
