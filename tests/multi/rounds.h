/*
 * What the files of the program `rounds` share: the board that soak.py maps, phases, and
 * the communicators a rank has, each with the ranks of the job that are in it.
 */
#ifndef TESTS_MULTI_ROUNDS_H
#define TESTS_MULTI_ROUNDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

enum phase { START, CREATE, CONNECT, ALL_REDUCE, ALL_TO_ALL, PAIRS, STREAMS, SPLIT, DESTROY, PHASES };
enum { SEATS = 8, COUNT_MAX = 150000 };
enum { REDUCES = 12, EXCHANGES = 6, CHAINS = 3, STREAM_CALLS = 4, SPLIT_CALLS = 6 };

/* soak.py reads this by offset. */
struct seat {
	_Atomic uint32_t pid;
	_Atomic uint32_t phase;
	_Atomic uint64_t phase_ns; /* when it entered the phase */
	_Atomic uint32_t round;
	_Atomic uint32_t call;      /* of the phase */
	_Atomic uint64_t strike_ns; /* when the signal comes, 0: not armed */
	_Atomic uint32_t state;     /* 0 runs, 1 has a status, 2 has destroyed its communicators */
	int32_t status;
	int32_t culprit;        /* rank of the job */
	_Atomic uint32_t wrong; /* results that were */
	uint64_t error_ns, end_ns;
	char transport[32];
	_Atomic uint64_t calls;                 /* completed */
	uint16_t descriptors, descriptors_most; /* between communicators: before the first, most since */
	uint16_t threads, threads_most;
	char spare[16];
	char message[896];
};
_Static_assert(sizeof(struct seat) == 1024, "soak.py knows the layout");

struct board {
	_Atomic uint32_t stop;
	char spare[1020];
	struct seat seats[SEATS];
};

extern struct board *board;
extern struct seat *seat;
extern int my_rank;
extern uint64_t seed;

/* A communicator, and the ranks of the job by its ranks. */
struct crowd {
	coll_comm *comm; /* NULL: this rank is not in it */
	int rank, size;
	int job_rank[SEATS];
};

/* ---- rounds.c ---- */

/* This rank is in this call now: where strikes come from. */
void enter(enum phase phase, int round, int call);
/* How this rank ended; the first time counts. c: whose ranks the error speaks of. */
void record(coll_status st, const coll_error *e, const struct crowd *c);
/* The same of a call that failed on c. */
coll_status failed_on(const struct crowd *c, coll_status st);

/* ---- rounds_calls.c: calls on one communicator, with their results ---- */

bool buffers_open(void);
void buffers_close(void);
/* Equal on all ranks. Mostly small, now and then past every threshold of the library. */
size_t count_of(int round, int phase, int call);
uint64_t mix(uint64_t x);
/* The first element says whether rank 0 wants to stop. */
coll_status reduce_once(const struct crowd *c, int round, int phase, int call, bool *stop);
coll_status exchange_once(const struct crowd *c, int round, int phase, int call);
coll_status chain_once(const struct crowd *c, int round, int call);

/* Asynchronous: several calls at once, on streams; each its own buffers. */
struct pending {
	const struct crowd *crowd;
	int call;
	bool exchange;
	size_t count;
	int32_t *in, *out;
};
enum { PENDING_MAX = 8 };
coll_status begin_reduce(struct pending *p, const struct crowd *c, int round, int call, coll_stream *stream);
coll_status begin_exchange(struct pending *p, const struct crowd *c, int round, int call, coll_stream *stream);
void check_pending(const struct pending *p);
/* Call number call of the phase STREAMS. */
coll_status streams_once(const struct crowd *world, int round, int call);

/* ---- rounds_family.c: communicators made of others ---- */

struct family {
	struct crowd twin;   /* all ranks once more: until the end of the round */
	struct crowd halves; /* even and odd ranks, in reverse order */
	struct crowd some;   /* a few, from a list */
	struct crowd team;   /* two or more that made it alone */
};
/* Call number call of the phase SPLIT. */
coll_status split_once(const struct crowd *world, struct family *f, int round, int call);
/* The end of all, in an order of this rank's own. A failure that destroy tells is recorded. */
coll_status part(struct crowd *world, struct family *f, int round);

#endif
