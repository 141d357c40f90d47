/*
 * What abort.c, the rounds, and abort_calls.c, the calls of one round, have in common.
 */
#ifndef COLL_TESTS_MULTI_ABORT_H
#define COLL_TESTS_MULTI_ABORT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

enum { ABORT_COUNT_MAX = 1 << 18, ABORT_BATCH = 3 };

enum abort_manner { BLOCKING, STREAM, GROUP, PERSISTENT, MANNERS };

/* One round, drawn alike by all ranks. */
struct abort_plan {
	uint64_t seed;
	int aborter;
	uint64_t delay_ns;
	enum abort_manner manner;
};

struct abort_round {
	_Atomic uint64_t begun_ns; /* of the abort; 0: not yet */
	_Atomic uint64_t took_ns;  /* by the slowest rank */
	atomic_int pending;        /* ranks that were in a call then */
};

struct abort_job {
	const char *transport;
	int size, rounds;
	bool by_thread, loaded;
	uint64_t seed;
};

extern struct abort_job job;

struct abort_rank {
	int rank;
	coll_comm *world, *comm;
	struct abort_plan plan;
	struct abort_round *round;
	int number;
	bool over;   /* a call has said so */
	uint64_t at; /* when the aborter aborts */
	int32_t *in[ABORT_BATCH], *out[ABORT_BATCH];
	/* The thread that aborts. */
	pthread_t thread;
	sem_t go, done;
	bool quit;
};

/* A rank saw something wrong. */
void abort_fail(const struct abort_rank *me, const char *what, const char *detail);
/* The abort of this round. */
void abort_now(struct abort_rank *me);

/* Calls of the round, in its manner, until one of them fails; results and the error are checked. */
void abort_calls(struct abort_rank *me);

#endif
