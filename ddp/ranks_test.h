/*
 * Ranks as threads of one process, and a small model whose gradients every rank can
 * compute of all others: for the tests of data-parallel steps, each against sums that are
 * taken one after the other.
 */
#ifndef DDP_RANKS_TEST_H
#define DDP_RANKS_TEST_H

#include "base/hash.h"
#include "coll/ddp.h"
#include "tests/plain.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define MOST_RANKS 8
#define SEED       20261121u

typedef void (*rank_fn)(coll_comm *comm, int rank, int size, void *arg);

struct thread {
	pthread_t id;
	coll_comm *comm;
	int rank, size;
	rank_fn fn;
	void *arg;
};

static inline void *thread_main(void *arg)
{
	struct thread *t = arg;

	t->fn(t->comm, t->rank, t->size, t->arg);
	CHECK(coll_comm_destroy(&t->comm) == COLL_OK);
	return NULL;
}

static inline void on_ranks(int n, rank_fn fn, void *arg)
{
	coll_comm *comms[MOST_RANKS] = {NULL};
	struct thread threads[MOST_RANKS];

	REQUIRE(coll_comm_create_all(comms, n, NULL) == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int r = 0; r < n; r++) {
		threads[r] = (struct thread){.comm = comms[r], .rank = r, .size = n, .fn = fn, .arg = arg};
		pthread_create(&threads[r].id, NULL, thread_main, &threads[r]);
	}
	for (int r = 0; r < n; r++)
		pthread_join(threads[r].id, NULL);
}

/* Between -1 and 1. */
static inline float value(uint64_t stream, size_t i)
{
	return (float)((double)(coll_mix64(coll_mix64(SEED + stream) ^ i) >> 11) * 0x1p-52 - 1);
}

/* ---- A small model ------------------------------------------------------- */

#define PARAMS 7
static const coll_ddp_param shapes[PARAMS] = {
        {"place", 2, {5, 24}, NULL, 0, NULL},   {"a.weight", 2, {96, 24}, NULL, 0, NULL},
        {"a.bias", 1, {96}, NULL, 0, NULL},     {"b.weight", 3, {4, 30, 33}, NULL, 0, NULL},
        {"b.bias", 1, {1}, NULL, 0, NULL},      {"empty", 2, {0, 7}, NULL, 0, NULL},
        {"table", 2, {101, 24}, NULL, 0, NULL},
};
#define TABLE 6

static inline size_t count_of(int i)
{
	size_t n = 1;

	for (int k = 0; k < shapes[i].dim_count; k++)
		n *= shapes[i].dims[k];
	return n;
}

static inline size_t total(void)
{
	size_t n = 0;

	for (int i = 0; i < PARAMS; i++)
		n += count_of(i);
	return n;
}

static inline coll_ddp *make(coll_comm *comm, const coll_ddp_config *config)
{
	coll_ddp *d = NULL;
	char problem[256] = "";
	coll_ddp_config c = *config;
	coll_status status;

	c.problem = problem;
	c.problem_bytes = sizeof(problem);
	status = coll_ddp_create(&d, shapes, PARAMS, &c, comm);
	CHECK(status == COLL_OK, "%s: %s", coll_status_string(status), problem);
	return d;
}

/* Gradients of rank in step are random, written when their turn comes and ready at once, in an order of the rank's own;
 * but is never ready. */
static inline void backward(coll_ddp *d, int rank, int step, uint64_t order, int but)
{
	float *g = coll_ddp_grads(d);
	int list[PARAMS];

	for (int i = 0; i < PARAMS; i++)
		list[i] = PARAMS - 1 - i;
	for (int i = PARAMS - 1; i > 0 && order; i--) {
		int j = (int)(coll_mix64(order + (uint64_t)i) % (uint64_t)(i + 1)), t = list[i];

		list[i] = list[j];
		list[j] = t;
	}
	for (int i = 0; i < PARAMS; i++) {
		const size_t from = coll_ddp_offset(d, list[i]), to = from + count_of(list[i]);

		for (size_t k = from; k < to; k++)
			g[k] += value((uint64_t)(rank + 100 * step), k);
		if (list[i] != but)
			CHECK(coll_ddp_ready(d, list[i]) == COLL_OK, "%s", coll_ddp_last_error(d));
	}
}

static inline void all_ready(coll_ddp *d)
{
	for (int i = PARAMS - 1; i >= 0; i--)
		CHECK(coll_ddp_ready(d, i) == COLL_OK, "%s", coll_ddp_last_error(d));
}

static inline double mean_of(int size, int step, size_t i)
{
	double s = 0;

	for (int r = 0; r < size; r++)
		s += (double)value((uint64_t)(r + 100 * step), i);
	return s / size;
}

static inline double worst_error(coll_ddp *d, int size, int step)
{
	const float *g = coll_ddp_grads(d);
	double worst = 0;

	for (size_t i = 0; i < coll_ddp_count(d); i++)
		worst = fmax(worst, fabs((double)g[i] - mean_of(size, step, i)));
	return worst;
}

/* A number that is the same on all ranks only if all bits are. */
static inline void check_same_bits(coll_comm *comm, const void *x, size_t len_bytes, const char *what)
{
	const uint64_t h = coll_hash_bytes(SEED, x, len_bytes);
	uint64_t both[2] = {h, ~h};

	CHECK(coll_all_reduce(both, both, 2, COLL_U64, COLL_MIN, comm, NULL) == COLL_OK);
	CHECK(both[0] == ~both[1], "%s: ranks hold different bits", what);
}

#endif
