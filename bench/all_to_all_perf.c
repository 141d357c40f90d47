/*
 * All-to-all: block d of every rank's input goes to rank d. The size column is the
 * input, which is as large as the output.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = *out = c->count * (size_t)c->size;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){
	        .at = (size_t)k * c->count, .count = c->count, .source = k, .first = (size_t)c->rank * c->count};
	return k < c->size;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_all_to_all(in, out, c->count, c->type, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "all_to_all_perf",
	        .kind = "all_to_all",
	        .blocks = true,
	        .in_place = true,
	        .bus_factor = perf_bus_others,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
