/*
 * Gather: one block of each rank to the root. The size column is the root's output.
 * In place the root's own block lies in the output already.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->count;
	*out = c->rank == c->root ? c->count * (size_t)c->size : 0;
}

static void place(const struct perf_call *c, size_t *in_at, size_t *out_at)
{
	*in_at = c->rank == c->root ? (size_t)c->rank * c->count : 0;
	*out_at = 0;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.at = (size_t)k * c->count, .count = c->count, .source = k};
	return c->rank == c->root && k < c->size;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_gather(in, c->rank == c->root ? out : NULL, c->count, c->type, c->root, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "gather_perf",
	        .kind = "gather",
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
