/*
 * All-reduce: every rank's vector in, the reduction on every rank.
 * Bus factor 2 (n - 1) / n: what a ring sends per byte of the vector.
 */
#include "perf/perf.h"

static double bus_factor(int n)
{
	return 2.0 * (n - 1) / n;
}

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = *out = c->count;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = PERF_REDUCED};
	return k == 0;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_all_reduce(in, out, c->count, c->type, c->op, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "allreduce_perf",
	        .kind = "all_reduce",
	        .reduces = true,
	        .in_place = true,
	        .bus_factor = bus_factor,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
