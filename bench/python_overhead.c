/*
 * The other half of python_overhead.py: the same calls from C, on the communicator of the Python program.
 */
#include <coll/coll.h>
#include <stdint.h>
#include <time.h>

COLL_API double coll_bench_loop(uintptr_t comm, float *x, size_t count, int rounds);

/* Nanoseconds per all_reduce in place, of so many calls; negative: a call failed. */
double coll_bench_loop(uintptr_t comm, float *x, size_t count, int rounds)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < rounds; i++)
		if (coll_all_reduce(x, x, count, COLL_F32, COLL_MAX, (coll_comm *)comm, NULL) != COLL_OK)
			return -1;
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / rounds;
}
