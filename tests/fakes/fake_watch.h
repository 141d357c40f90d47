/*
 * src/watch as those above it meet it, and each of its files alone: says of a wait what the test wants. All functions
 * are weak, so that what a program links of src/watch itself takes their place.
 */
#ifndef COLL_FAKES_FAKE_WATCH_H
#define COLL_FAKES_FAKE_WATCH_H

#include "watch/deadlock.h"
#include "watch/mismatch.h"
#include "watch/watchdog.h"

extern struct fake_watch {
	/* What the functions of these names return; a wait that fails fails its communicator too. */
	coll_status heed, inspect, inquire, attend;
	uint64_t inspect_from_ns; /* coll_comm_inspect() returns OK before */
	int unknown;              /* so often coll_comm_inquire() returns OK before */
	int heeded, inspected, inquired, attended;
	struct coll_run *faulty; /* the run that was inquired into */
	bool due;                /* coll_wait_timer_is_due() */
	bool differs, agrees;    /* the calls, as mismatch.c says */
	int behind;              /* the rank that a sender passes on frames of; 0: none */
	bool closes;             /* a circle, as deadlock.c says: it is this */
	struct coll_deadlock circle;
	char late_text[64]; /* what late.c was to read last */
	bool lags;          /* coll_comm_caught_up() says so once */
	bool chain_waits;   /* the chain has not been heard to its end */
	int chain_end;      /* the rank there; 0: the first */
	struct coll_record at_the_end;
	int shown, hidden, chains, noted;
	/* Of coll_wait_fail(). */
	coll_status status;
	int culprit;
	char cause[512];
} fake_watch;

void fake_watch_reset(void);

#endif
