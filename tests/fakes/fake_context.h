/*
 * A context that never blocks: a pause takes no time, a sleep moves the clock by its length.
 */
#ifndef COLL_FAKES_FAKE_CONTEXT_H
#define COLL_FAKES_FAKE_CONTEXT_H

#include "context/context.h"

enum { FAKE_LINKS = 12 };

extern struct fake_context {
	unsigned pauses, sleeps, wakes, kicks, progressed;
	int users;         /* retained, less released */
	int last_sleep_ms; /* of the last sleep */
	bool signalled;    /* a signal ends every sleep */
	uint64_t spun_ns;  /* a wait that has not moved for so long sleeps */
	int progress;      /* what coll_context_progress() returns */
	/* Of the link to each process. */
	struct fake_link {
		bool up;
		struct coll_link_counts counts;
	} counts[FAKE_LINKS];
	/* NULL, or: something happens during a pause or a sleep, before the sleeper looks. */
	void (*on_idle)(void *arg);
	void *arg;
} fake_context;

void fake_context_reset(void);

#endif
