/*
 * All-reduce over tcp for 2 to 8 ranks of one machine: how far 3, 5, 6 and 7 ranks are from
 * the line through 2, 4 and 8 (time against log2 n, least squares). All communicators are
 * made first and take turns, block by block; ranks that are not in one sleep meanwhile.
 *
 *   any_n [blocks [bytes ...]]      default: 9 blocks, 64 KiB and 1 MiB
 *
 * Exit status 1: a ratio above 1.3.
 */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "crowd.h"
#include "median.h"

enum { RANKS = 8, BLOCKS_MAX = 61 };
static const double BLOCK_NS = 15e6, LIMIT = 1.3;

struct bench {
	struct crowd crowd;
	coll_comm *world, *of[RANKS + 1];
	float *in, *out;
};

static void pin(int rank)
{
	cpu_set_t all, mine;
	int seen = 0;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&mine);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &all) && seen++ == rank % CPU_COUNT(&all))
			CPU_SET(c, &mine);
	sched_setaffinity(0, sizeof(mine), &mine);
}

/* Mean ns of one call of n ranks. */
static double block(struct bench *b, int n, size_t count, int times)
{
	uint64_t t;

	crowd_barrier(&b->crowd);
	t = coll_clock_ns();
	if (b->crowd.rank < n)
		for (int i = 0; i < times; i++)
			crowd_check(b->of[n], coll_all_reduce(b->in, b->out, count, COLL_F32, COLL_SUM, b->of[n], NULL),
			            "all_reduce");
	t = coll_clock_ns() - t;
	crowd_barrier(&b->crowd);
	return (double)t / times;
}

static int calibrate(struct bench *b, int n, size_t count)
{
	int *times = (int *)(void *)b->crowd.shared->user;
	double each;

	block(b, n, count, 3);
	each = block(b, n, count, 3);
	if (b->crowd.rank == 0)
		*times = each > BLOCK_NS / 3 ? 3 : (int)(BLOCK_NS / each);
	crowd_barrier(&b->crowd);
	return *times;
}

/* Least squares through (1, t2), (2, t4), (3, t8): the value at x. */
static double line_at(const double *time, double x)
{
	const double mean = (time[2] + time[4] + time[8]) / 3, slope = (time[8] - time[2]) / 2;

	return mean + slope * (x - 2);
}

static int measure(struct bench *b, size_t bytes, int blocks)
{
	double all[RANKS + 1][BLOCKS_MAX], time[RANKS + 1];
	int times[RANKS + 1], bad = 0;

	b->in = aligned_alloc(4096, bytes);
	b->out = aligned_alloc(4096, bytes);
	memset(b->in, 1, bytes);
	memset(b->out, 1, bytes);
	for (int n = 2; n <= RANKS; n++)
		times[n] = calibrate(b, n, bytes / sizeof(float));
	for (int i = 0; i < blocks; i++)
		for (int n = 2; n <= RANKS; n++)
			all[n][i] = block(b, n, bytes / sizeof(float), times[n]);
	free(b->in);
	free(b->out);
	if (b->crowd.rank != 0)
		return 0;
	for (int n = 2; n <= RANKS; n++)
		time[n] = median_of(all[n], blocks);
	for (int n = 2; n <= RANKS; n++) {
		const double line = line_at(time, log2(n));
		const int on_line = (n & (n - 1)) == 0;

		printf("%9zu B  n = %d  %10.2f us  line %10.2f  %s%.3f%s\n", bytes, n, time[n] / 1e3, line / 1e3,
		       on_line ? "(" : "", time[n] / line,
		       on_line                   ? ")"
		       : time[n] <= LIMIT * line ? ""
		                                 : "  above 1.3");
		bad += !on_line && time[n] > LIMIT * line;
	}
	fflush(stdout);
	return bad;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {65536, 1 << 20};
	const int blocks = argc > 1 ? atoi(argv[1]) : 9;
	const char *const settings[] = {"COLL_TRANSPORTS=tcp", NULL};
	struct bench b = {0};
	int bad = 0;

	if (blocks < 1 || blocks > BLOCKS_MAX)
		return 2;
	crowd_begin(&b.crowd, RANKS);
	pin(b.crowd.rank);
	b.world = crowd_create(&b.crowd, settings);
	for (int n = 2; n <= RANKS; n++)
		crowd_check(b.world,
		            coll_comm_split(b.world, b.crowd.rank < n ? 0 : COLL_NO_COLOUR, b.crowd.rank, &b.of[n]),
		            "split");
	for (int i = 2; i < argc; i++)
		bad += measure(&b, strtoull(argv[i], NULL, 0), blocks);
	for (size_t i = 0; argc <= 2 && i < sizeof(sizes) / sizeof(*sizes); i++)
		bad += measure(&b, sizes[i], blocks);
	for (int n = 2; n <= RANKS; n++)
		if (b.of[n])
			crowd_check(NULL, coll_comm_destroy(&b.of[n]), "destroy");
	crowd_check(NULL, coll_comm_destroy(&b.world), "destroy");
	return crowd_end(&b.crowd, bad > 0);
}
