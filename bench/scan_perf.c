/*
 * Scan: each rank gets the reduction of the inputs of all ranks up to its own. The size column is the vector. In place
 * input and output are one buffer.
 */
#include "perf/perf.h"

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
	return coll_scan(in, out, c->count, c->type, c->op, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "scan_perf",
	        .kind = "scan",
	        .reduces = true,
	        .prefix = PERF_UP_TO_OWN,
	        .in_place = true,
	        .bus_factor = perf_bus_one,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
