/*
 * All-gather: one block of each rank in, all blocks on every rank. The size column
 * is the output. In place the input is the rank's own block of the output.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->count;
	*out = c->count * (size_t)c->size;
}

static void place(const struct perf_call *c, size_t *in_at, size_t *out_at)
{
	*in_at = (size_t)c->rank * c->count;
	*out_at = 0;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.at = (size_t)k * c->count, .count = c->count, .source = k};
	return k < c->size;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_all_gather(in, out, c->count, c->type, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "all_gather_perf",
	        .kind = "all_gather",
	        .blocks = true,
	        .in_place = true,
	        .bus_factor = perf_bus_others,
	        .extent = extent,
	        .place = place,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
