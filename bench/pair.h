/*
 * Two processes of one machine, each pinned to a core, that measure the library
 * against a hand-written loop: what the yardsticks share.
 */
#ifndef COLL_BENCH_PAIR_H
#define COLL_BENCH_PAIR_H

#include <stdatomic.h>
#include <stddef.h>

#include "coll/coll.h"

enum { PAIR_BLOCKS = 30, PAIR_BLOCKS_MAX = 1000, PAIR_NOTE_BYTES = 4096 };

struct pair_shared; /* mapped by both */

struct pair {
	int rank; /* 0 or 1 */
	struct pair_shared *shared;
	char *memory; /* len_bytes of zeroed shared memory for the hand-written side */
	coll_comm *comm;
	int child; /* at rank 0: process id of rank 1 */
};

/* Fork rank 1, pin both; memory of len_bytes is shared. Ends the program on failure. */
void pair_begin(struct pair *p, size_t len_bytes);
/* How the two make a communicator of any build of the library, over settings. */
coll_config pair_config(struct pair *p, const char *const *settings);
/* A communicator of both over settings ("COLL_ALGO=ring" ..., ended by NULL). */
void pair_connect(struct pair *p, const char *const *settings);
/* Destroy it, wait for the child; returns the program's exit status. */
int pair_end(struct pair *p, int status);

void pair_barrier(struct pair *p);
/* coll_config.exchange of the two: arg is the pair. */
int pair_exchange(void *arg, const void *mine, void *all, size_t len_bytes);

/* Mean of n values and the half width of its 95 % interval (n == PAIR_BLOCKS). */
void pair_interval(const double *values, int n, double *mean, double *half);

/* One measured side: repeat the operation times times. */
typedef void pair_fn(void *arg, int times);

/* What is compared: two ways to do the same. */
struct pair_side {
	pair_fn *fn;
	void *arg;
	int times;                /* per measurement: about 3 ms, see pair_calibrate() */
	const uint64_t *spent_ns; /* what fn counted of the times; NULL: all of its time counts */
};

/* Agreed by both ranks. */
void pair_calibrate(struct pair *p, struct pair_side *side);

/*
 * One block: both sides in turn, five times each, about 30 ms in all. Seconds of one
 * operation, of the least disturbed time of each side.
 */
void pair_block(struct pair *p, const struct pair_side sides[2], double seconds[2]);

/* What paired blocks say of two sides. */
struct pair_verdict {
	double seconds[2]; /* medians */
	double ratio;      /* of the first's to the second's: the median of the blocks' */
	double low, high;  /* the interval that holds the true median with 95 % */
};

/* Calibrated sides, blocks of them: PAIR_BLOCKS to PAIR_BLOCKS_MAX. */
void pair_compare(struct pair *p, const struct pair_side sides[2], int blocks, struct pair_verdict *v);

#endif
