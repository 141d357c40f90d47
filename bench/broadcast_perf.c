/*
 * Broadcast: the root's vector to every rank.
 */
#include "perf/perf.h"

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = c->rank == c->root ? c->count : 0;
	*out = c->count;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = c->root};
	return k == 0;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_broadcast(c->rank == c->root ? in : NULL, out, c->count, c->type, c->root, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "broadcast_perf",
	        .kind = "broadcast",
	        .rooted = true,
	        .in_place = true,
	        .bus_factor = perf_bus_one,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
