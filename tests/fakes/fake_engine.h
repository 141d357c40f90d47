/*
 * Runs that move nothing and end as the test says.
 */
#ifndef COLL_FAKES_FAKE_ENGINE_H
#define COLL_FAKES_FAKE_ENGINE_H

#include "engine/run.h"

enum { FAKE_RUNS = 32, FAKE_STARTS = 64 };

/* A run. A test may make one of its own, or use those that coll_run_create() hands out. */
struct coll_run {
	int polls;       /* more polls before it ends; < 0: it does not end */
	coll_status end; /* with what */
	bool moves;      /* each poll that finds it waiting moves something */
	bool awaits;     /* coll_run_awaits_progress() */
	uint8_t way;     /* coll_run_way() */
	struct coll_run_where where;
	struct coll_job job;          /* of the last start */
	const struct coll_run *after; /* whom it follows */
	int polled, starts, restarts, cancelled;
	coll_status cancelled_with;
	bool used; /* handed out */
};

extern struct fake_engine {
	struct coll_run runs[FAKE_RUNS];
	int created, destroyed;
	/* What becomes of runs from their start on. */
	int polls;
	coll_status end;
	bool no_memory;     /* coll_run_create() fails */
	coll_status refuse; /* coll_run_start() returns it */
	/* In the order of starting: which run, and the number of its call; 0: a message. */
	struct coll_run *started[FAKE_STARTS];
	uint64_t number[FAKE_STARTS];
	int nstarted;
} fake_engine;

void fake_engine_reset(void);

/* The run in which collective `number` was started last; NULL: it was not. */
struct coll_run *fake_engine_run_of(uint64_t number);

#endif
