/*
 * Reduce-scatter: a block for each rank in, this rank's block of the reduction
 * out. The size column is the input. In place the output is the rank's own block
 * of the input.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->count * (size_t)c->size;
	*out = c->count;
}

static void place(const struct perf_call *c, size_t *in_at, size_t *out_at)
{
	*in_at = 0;
	*out_at = (size_t)c->rank * c->count;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = PERF_REDUCED, .first = (size_t)c->rank * c->count};
	return k == 0;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_reduce_scatter(in, out, c->count, c->type, c->op, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "reduce_scatter_perf",
	        .kind = "reduce_scatter",
	        .reduces = true,
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
