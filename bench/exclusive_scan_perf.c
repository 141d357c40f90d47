/*
 * Exclusive scan: each rank gets the reduction of the inputs of the ranks before it, rank 0 nothing. The size column is
 * the vector. In place input and output are one buffer.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->count;
	*out = c->rank > 0 ? c->count : 0;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = PERF_REDUCED};
	return k == 0 && c->rank > 0;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_exclusive_scan(in, out, c->count, c->type, c->op, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "exclusive_scan_perf",
	        .kind = "exclusive_scan",
	        .reduces = true,
	        .prefix = PERF_BEFORE_OWN,
	        .in_place = true,
	        .bus_factor = perf_bus_one,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
