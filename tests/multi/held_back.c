/*
 * How often a rank has to wait in a long call while its peer does not run: sleeps and yields, as the library counts
 * them. Both ranks are threads of this process on one processor, though the library takes it that each has its own:
 * whichever runs holds the other back. What the kernel counts is printed beside it.
 *
 * usage: held_back shm
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "core/comm.h"
#include "plain.h"
#include "thread_ranks.h"

enum { CALLS = 5, WAITS_MAX = 12 };

static uint64_t waits(const coll_comm *comm)
{
	return atomic_load(&comm->ctx->sleeps) + atomic_load(&comm->ctx->yields);
}

static struct rusage used(void)
{
	struct rusage r;

	CHECK(getrusage(RUSAGE_THREAD, &r) == 0);
	return r;
}

static void adds(coll_comm **at, int rank, void *arg)
{
	const size_t count = *(const size_t *)arg;
	coll_comm *comm = *at;
	int *x = malloc(count * sizeof(*x)), *y = malloc(count * sizeof(*y));
	struct rusage before, after;
	uint64_t first, waited;

	REQUIRE(x && y);
	for (size_t i = 0; i < count; i++)
		x[i] = (int)i + rank;
	CHECK(coll_all_reduce(x, y, count, COLL_I32, COLL_SUM, comm, NULL) == COLL_OK);
	before = used();
	first = waits(comm);
	for (int i = 0; i < CALLS; i++)
		CHECK(coll_all_reduce(x, y, count, COLL_I32, COLL_SUM, comm, NULL) == COLL_OK);
	waited = waits(comm) - first;
	after = used();
	for (size_t i = 0; i < count; i++)
		if (y[i] != (int)(2 * i) + 1) {
			CHECK(false, "element %zu: %d", i, y[i]);
			break;
		}
	printf("rank %d, %zu bytes: %.1f sleeps and yields a call; switches: %.1f of its own, %.1f others\n", rank,
	       count * sizeof(*x), (double)waited / CALLS, (double)(after.ru_nvcsw - before.ru_nvcsw) / CALLS,
	       (double)(after.ru_nivcsw - before.ru_nivcsw) / CALLS);
	CHECK(waited <= CALLS * WAITS_MAX, "rank %d, %zu bytes: %d waits in %d calls", rank, count * sizeof(*x),
	      (int)waited, (int)CALLS);
	free(x);
	free(y);
}

TEST(held_back, long_sums)
{
	size_t counts[] = {25 << 18, 3 << 18, 64 << 10};

	for (int i = 0; i < 3; i++) {
		coll_comm *comms[2];

		REQUIRE(create(comms, 2));
		each_rank(comms, 2, adds, &counts[i]);
		each_rank(comms, 2, destroys, NULL);
	}
}

PROGRAM(held_back, "TRANSPORT")
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	setenv("COLL_TEST_CORES", "2", 1);
	threads_over(argv[1]);
	return 2;
}
