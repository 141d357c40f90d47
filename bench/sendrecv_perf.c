/*
 * Send and receive around a ring: every rank sends its vector to the next rank and
 * receives that of the one before. There is no in-place form.
 */
#include "perf/perf.h"

static int before(const struct perf_call *c)
{
	return (c->rank + c->size - 1) % c->size;
}

static void extent(const struct perf_call *c, size_t *in, size_t *out)
{
	*in = *out = c->count;
}

static bool segment(const struct perf_call *c, int k, struct perf_segment *s)
{
	*s = (struct perf_segment){.count = c->count, .source = before(c)};
	return k == 0;
}

static coll_status run(const struct perf_call *c, const void *in, void *out)
{
	return coll_send_recv(in, c->count, (c->rank + 1) % c->size, out, c->count, before(c), c->type, c->comm, NULL);
}

int main(int argc, char **argv)
{
	static const struct perf_collective what = {
	        .program = "sendrecv_perf",
	        .kind = "send_recv",
	        .bus_factor = perf_bus_one,
	        .extent = extent,
	        .segment = segment,
	        .run = run,
	};

	return perf_main(&what, argc, argv);
}
