/*
 * Timing one row: warm-up, a meeting of all ranks, then the timed iterations.
 *
 * The mean is the whole loop over its iterations, as in nccl-tests. The
 * percentiles need a time stamp per iteration, which costs as much as a small
 * call does not bear: up to SMALL_BYTES they come from a second loop. With --touch
 * the input is rewritten before each call, outside the time.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

enum { SMALL_BYTES = 64 << 10 };

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static coll_status iterate(const struct perf_test *t, int iterations)
{
	coll_status status = COLL_OK;

	for (int i = 0; i < iterations * t->args->aggregate && status == COLL_OK; i++)
		status = perf_run(t);
	return status;
}

/* All ranks begin together. An exchange of numbers and no barrier, because it is
 * verified. */
static coll_status meet(const struct perf_test *t)
{
	return perf_exchange(t->call.comm, &t->salt, 1, t->numbers);
}

/* One time per iteration; *total_s without what lies between them. */
static coll_status iterate_stamped(const struct perf_test *t, double *total_s)
{
	coll_status status = COLL_OK;

	*total_s = 0;
	for (int i = 0; i < t->args->iters && status == COLL_OK; i++) {
		double begin;

		if (t->args->touch)
			status = perf_fill_input(t);
		if (status != COLL_OK)
			break;
		begin = now_s();
		status = iterate(t, 1);
		t->samples[i] = now_s() - begin;
		*total_s += t->samples[i];
	}
	return status;
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Smallest sample that is not below the given share of all. */
static double percentile(const double *sorted, int n, int percent)
{
	const int index = (int)(((int64_t)n * percent + 99) / 100) - 1;

	return sorted[index < 0 ? 0 : index];
}

/* One number out of every rank's, as -a asks. */
static double join(const struct perf_test *t, int index)
{
	const int how = t->args->average;
	double joined = 0;

	for (int rank = 0; rank < t->call.size; rank++) {
		double v;

		memcpy(&v, &t->numbers[rank].word[index], sizeof(v));
		if (rank == 0 || (how == 2 && v < joined) || (how == 3 && v > joined))
			joined = v;
		else if (how == 1)
			joined += v;
	}
	return how == 1 ? joined / t->call.size : joined;
}

/* A time stamp per iteration costs what a small call does not bear, but for one
 * iteration there is nothing to spare. */
static bool percentiles_apart(const struct perf_test *t)
{
	return !t->args->touch && t->bytes <= SMALL_BYTES && t->args->iters > 1;
}

bool perf_measure_leaves_result(const struct perf_test *t, bool in_place)
{
	return !in_place || (t->args->aggregate == 1 && (t->args->touch || t->args->iters + t->args->warmups == 1));
}

coll_status perf_measure_one(const struct perf_test *t, int index)
{
	const double begin = now_s();
	const coll_status status = perf_run(t);

	t->samples[index] = now_s() - begin;
	*t->way = coll_comm_last_way(t->call.comm);
	return status;
}

coll_status perf_measure_samples(const struct perf_test *t, double total_s, struct perf_times *times)
{
	const int n = t->args->iters;
	const double scale = 1.0 / t->args->aggregate;
	double values[4];
	uint64_t bits[4];
	coll_status status;

	qsort(t->samples, (size_t)n, sizeof(t->samples[0]), compare_doubles);
	values[0] = total_s / n * scale;
	values[1] = t->samples[0] * scale;
	values[2] = percentile(t->samples, n, 50) * scale;
	values[3] = percentile(t->samples, n, 99) * scale;
	memcpy(bits, values, sizeof(bits));
	status = perf_exchange(t->call.comm, bits, 4, t->numbers);
	if (status == COLL_OK)
		*times = (struct perf_times){join(t, 0), join(t, 1), join(t, 2), join(t, 3)};
	return status;
}

coll_status perf_measure(const struct perf_test *t, struct perf_times *times)
{
	const bool apart = percentiles_apart(t);
	const int n = t->args->iters;
	double total_s = 0, stamped_s = 0;
	coll_status status = iterate(t, t->args->warmups);

	if (status == COLL_OK)
		status = meet(t);
	if (status == COLL_OK && apart) {
		total_s = -now_s();
		status = iterate(t, n);
		total_s += now_s();
		if (status == COLL_OK)
			status = meet(t);
	}
	if (status == COLL_OK)
		status = iterate_stamped(t, &stamped_s);
	*t->way = coll_comm_last_way(t->call.comm); /* before the next exchange of numbers */
	if (status != COLL_OK)
		return status;
	return perf_measure_samples(t, apart ? total_s : stamped_s, times);
}
