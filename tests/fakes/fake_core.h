/*
 * A communicator of ranks that do not exist, and the calls by which it fails or refuses.
 */
#ifndef COLL_FAKES_FAKE_CORE_H
#define COLL_FAKES_FAKE_CORE_H

#include "core/comm.h"

enum { FAKE_RANKS = 12, FAKE_COMMS = 2, FAKE_COMM_ID = 77 };

extern struct fake_core {
	enum coll_link_end link_end[FAKE_RANKS];
	int failures, refusals, aborts;
	/* Of the last failure; of the last refusal its text only. */
	int culprit;
	char cause[512];
	char circumstances[256];
	char logged[1024]; /* the last line */
	int lines;
} fake_core;

/* Rank `rank` of `size` in a new context, whose processes are the ranks; everything else is forgotten. The second of
 * the same ranks, with the next id, is in that context's list as well. Both are static. */
struct coll_comm *fake_comm_open(int rank, int size);
struct coll_comm *fake_comm_second(void);

#endif
