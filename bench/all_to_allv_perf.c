/*
 * All-to-all with blocks of different sizes, from next to nothing up to twice the mean: as tokens go to experts. The
 * size column is the mean input of a rank; each rank sends as much as it receives.
 */
#include <stdlib.h>

#include "perf/perf.h"

/* Of rank `from` for rank `to`. In each row and each column all sizes occur once. */
static size_t block(const struct perf_call *c, int from, int to)
{
	return 2 * c->count * (size_t)((from + to) % c->size + 1) / (size_t)(c->size + 1);
}

static size_t before(const struct perf_call *c, int rank, int k)
{
	size_t sum = 0;

	for (int i = 0; i < k; i++)
		sum += block(c, rank, i); /* as block(c, i, rank) */
	return sum;
}

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = *out = before(c, c->rank, c->size);
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	if (k >= c->size)
		return false;
	*s = (struct perf_segment){.at = before(c, c->rank, k),
	                           .count = block(c, k, c->rank),
	                           .source = k,
	                           .first = before(c, k, c->rank)};
	return true;
}

/* The counts of one row of the table: made when it begins, and kept by the thread of the rank. */
static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	static _Thread_local size_t *counts;
	static _Thread_local size_t of;

	if (!counts || of != c->count) {
		free(counts);
		counts = calloc((size_t)c->size, sizeof(*counts));
		if (!counts)
			return COLL_ERR_MEMORY;
		for (int i = 0; i < c->size; i++)
			counts[i] = block(c, c->rank, i);
		of = c->count;
	}
	return coll_all_to_allv(in, counts, NULL, out, counts, NULL, c->type, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "all_to_allv_perf",
	        .kind = "all_to_allv",
	        .blocks = true,
	        .bus_factor = perf_bus_others,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
