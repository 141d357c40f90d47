/*
 * Reduce: every rank's vector in, the reduction at the root.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->count;
	*out = c->rank == c->root ? c->count : 0;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = PERF_REDUCED};
	return k == 0 && c->rank == c->root;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_reduce(in, c->rank == c->root ? out : NULL, c->count, c->type, c->op, c->root, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "reduce_perf",
	        .kind = "reduce",
	        .reduces = true,
	        .rooted = true,
	        .in_place = true,
	        .bus_factor = perf_bus_one,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
