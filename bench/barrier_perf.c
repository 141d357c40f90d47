/*
 * Barrier: no data, one row.
 */
#include "perf/perf.h"

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	(void)in;
	(void)out;
	return coll_barrier(c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "barrier_perf",
	        .kind = "barrier",
	        .no_data = true,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
