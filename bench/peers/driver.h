/*
 * One rank of a library that is measured: what driver.c and the file of each library
 * share. The parent (run.py) talks to every rank over a socket, a line each way, and
 * decides what is run when; a rank that is not asked for anything sleeps in read().
 *
 * The sizes of a job: bytes is the whole vector, that is the blocks of all ranks where
 * a collective has one per rank; count is the number of floats of the vector or of one
 * block.
 */
#ifndef COLL_BENCH_PEERS_DRIVER_H
#define COLL_BENCH_PEERS_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bench_kind {
	BENCH_ALL_REDUCE,
	BENCH_BROADCAST,
	BENCH_REDUCE_SCATTER,
	BENCH_ALL_GATHER,
	BENCH_ALL_TO_ALL,
	BENCH_BARRIER,
	BENCH_REDUCE,
	BENCH_SEND_RECV, /* ranks 2k and 2k + 1: there, then back, each in one message */
	BENCH_KINDS
};

/* What is run: floats, summed where the collective reduces. */
struct bench_job {
	enum bench_kind kind;
	size_t bytes;
	size_t count;
	int rank, size;
	int root;        /* of a broadcast or a reduce: see driver.c */
	bool in_place;   /* as far as the library has it; a broadcast always is */
	bool own_memory; /* in buffers of the library's own kind */
	float *in, *out; /* in place: where the library wants the two */
	int set;         /* index of the buffers in use, below sets */
	int sets;
};

typedef int bench_call(const struct bench_job *job); /* 0, or a failure */

struct bench_library {
	const char *name;
	/* Join the ranks of this library, at rank and of size as it says. text: what version it is. */
	int (*begin)(int *argc, char ***argv, int *rank, int *size, char *text, size_t text_bytes);
	/* The call that does the job; NULL: this library has none. Collective, before buffers exist. */
	bench_call *(*find)(const struct bench_job *job);
	/* Whether results are right, not only fast. NULL: always. */
	bool (*checked)(const struct bench_job *job);
	/* Memory of its own kind; NULL members: it has none. Collective. */
	void *(*alloc)(size_t bytes);
	void (*release)(void *memory);
	/* In place, where in starts in the one buffer of a rank and where out does, in floats. */
	void (*place)(const struct bench_job *job, size_t *in_at, size_t *out_at);
	/* The buffers of all sets exist: tell the others where, if they must know. May be NULL. */
	int (*ready)(const struct bench_job *job, float *const *in, float *const *out);
	void (*end)(void);
};

extern const struct bench_library bench_library; /* of this program */

/* Ranks of this program meet: in shared memory, whatever the library does. */
void bench_meet(void);
/* Memory that all ranks of this program map, where the parent gave some; for floors. */
void *bench_shared(size_t *len_bytes);

#ifdef __cplusplus
}
#endif

#endif
