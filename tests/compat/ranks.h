/*
 * Ranks as threads, for tests of libnccl: each creates its communicator, runs a body and destroys it.
 */
#ifndef TESTS_COMPAT_RANKS_H
#define TESTS_COMPAT_RANKS_H

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "tests/compat/functions.h"
#include "tests/compat/memory.h"
#include "tests/plain.h"

enum { RANKS = 4, COUNT = 1000 };

static inline void must(ncclResult_t r, const char *what)
{
	CHECK(r == ncclSuccess, "%s: %d %s", what, (int)r, ncclGetLastError(NULL));
}

#define CU(call) CHECK((call) == CUDA_SUCCESS)

static inline double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- Ranks as threads ------------------------------------------------------ */

static ncclUniqueId id;
static pthread_barrier_t meeting;

struct rank {
	int rank, n;
	ncclComm_t comm;
	cudaStream_t stream;
	float *in, *out;
	void (*body)(struct rank *r);
};

static inline void fill(const struct rank *r, float value)
{
	float host[COUNT];

	for (int i = 0; i < COUNT; i++)
		host[i] = value;
	write_to(r->in, host, sizeof(host), r->stream);
	wait_stream(r->stream);
}

/* A sum in which each rank has its number + 1. */
static inline void sum(const struct rank *r, ncclComm_t comm)
{
	int rank = -1, n = 0;
	float host[COUNT];

	must(ncclCommUserRank(comm, &rank), "rank");
	must(ncclCommCount(comm, &n), "count");
	fill(r, (float)(rank + 1));
	must(ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, ncclSum, comm, r->stream), "sum");
	read_from(host, r->out, sizeof(host), r->stream);
	for (int i = 0; i < COUNT; i += COUNT - 1)
		CHECK(host[i] == (float)(n * (n + 1)) / 2, "rank %d of %d: %g", rank, n, (double)host[i]);
}

static inline void *run_rank(void *arg)
{
	struct rank *r = arg;

	use_device(r->rank % devices());
	r->stream = make_stream();
	must(ncclMemAlloc((void **)&r->in, COUNT * sizeof(float)), "alloc");
	must(ncclMemAlloc((void **)&r->out, COUNT * sizeof(float)), "alloc");
	must(ncclCommInitRank(&r->comm, r->n, id, r->rank), "init");
	if (r->comm)
		r->body(r);
	if (r->comm)
		must(ncclCommDestroy(r->comm), "destroy");
	must(ncclMemFree(r->in), "free");
	must(ncclMemFree(r->out), "free");
	free_stream(r->stream);
	return NULL;
}

static inline void run_ranks(int n, void (*body)(struct rank *r))
{
	struct rank r[RANKS] = {{0}};
	pthread_t t[RANKS];

	must(ncclGetUniqueId(&id), "id");
	pthread_barrier_init(&meeting, NULL, (unsigned)n);
	for (int i = 0; i < n; i++) {
		r[i] = (struct rank){.rank = i, .n = n, .body = body};
		pthread_create(&t[i], NULL, run_rank, &r[i]);
	}
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&meeting);
}

/* A test whose body each rank runs. */
#define TEST_OF_RANKS(suite, name, n)          \
	static void name##_of(struct rank *r); \
	TEST(suite, name)                      \
	{                                      \
		run_ranks(n, name##_of);       \
	}                                      \
	static void name##_of(struct rank *r)

#endif
