/*
 * Scatter: block d of the root's input goes to rank d. The size column is the
 * root's input. In place the root's own block stays where it is.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->rank == c->root ? c->count * (size_t)c->size : 0;
	*out = c->count;
}

static void place(const struct perf_call *c, size_t *in_at, size_t *out_at)
{
	*in_at = 0;
	*out_at = c->rank == c->root ? (size_t)c->rank * c->count : 0;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = c->root, .first = (size_t)c->rank * c->count};
	return k == 0;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_scatter(c->rank == c->root ? in : NULL, out, c->count, c->type, c->root, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "scatter_perf",
	        .kind = "scatter",
	        .rooted = true,
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
