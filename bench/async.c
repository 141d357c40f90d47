/*
 * What a stream costs beside the plain call: a 16-byte all-reduce between two pinned processes over
 * shm, as coll_all_reduce() and as the same call on a stream, an event recorded behind it and a
 * wait for the event, in the same two processes, turn by turn.
 *
 *   async [BLOCKS]
 *
 * Prints the medians of the paired blocks; then, of single calls on the stream, the median and what
 * 90 and 99 of 100 stay below; and the same of 1 MiB, reduced while the caller computes for 2 ms: how
 * long after the call the event was reached. Exit status 1 only if a result is wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "pair.h"

enum { COUNT = 4, SINGLE = 20000, LARGE = 1 << 18, OVERLAPS = 200 };

struct side {
	coll_comm *comm;
	coll_stream *stream;
	coll_event *event;
	float in[COUNT], out[COUNT];
	int failed;
};

static void plain(void *arg, int times)
{
	struct side *s = arg;

	for (int i = 0; i < times; i++)
		if (coll_all_reduce(s->in, s->out, COUNT, COLL_F32, COLL_SUM, s->comm, NULL) != COLL_OK)
			s->failed = 1;
}

static void on_stream(void *arg, int times)
{
	struct side *s = arg;

	for (int i = 0; i < times; i++)
		if (coll_all_reduce(s->in, s->out, COUNT, COLL_F32, COLL_SUM, s->comm, s->stream) != COLL_OK ||
		    coll_event_record(s->event, s->stream) != COLL_OK || coll_event_wait(s->event, -1) != COLL_OK)
			s->failed = 1;
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const struct pair *p, const char *what, double *us, int n)
{
	qsort(us, (size_t)n, sizeof(*us), ascending);
	if (p->rank == 0)
		printf("%s: median %.2f us, 90 %% %.2f, 99 %% %.2f\n", what, us[n / 2], us[n * 9 / 10],
		       us[n * 99 / 100]);
}

/* Each call alone, from the call to the return of the wait. */
static void singles(const struct pair *p, struct side *s)
{
	static double us[SINGLE];

	for (int i = 0; i < SINGLE; i++) {
		const double from = now_us();

		on_stream(s, 1);
		us[i] = now_us() - from;
	}
	report(p, "one call of 16 bytes on a stream", us, SINGLE);
}

/* The caller computes and does not call the library: only the progress thread advances the call. */
static void overlap(struct pair *p, struct side *s)
{
	static float in[LARGE], out[LARGE];
	static double us[OVERLAPS];

	for (int i = 0; i < OVERLAPS; i++) {
		double from, at = 0;

		pair_barrier(p);
		from = now_us();
		s->failed |= coll_all_reduce(in, out, LARGE, COLL_F32, COLL_SUM, s->comm, s->stream) != COLL_OK ||
		             coll_event_record(s->event, s->stream) != COLL_OK;
		while (now_us() - from < 2000)
			;
		s->failed |= coll_event_wait(s->event, -1) != COLL_OK || coll_event_time(s->event, &at) != COLL_OK;
		us[i] = at * 1e6 - from;
	}
	report(p, "1 MiB while the caller computes", us, OVERLAPS);
}

int main(int argc, char **argv)
{
	const int blocks = argc > 1 ? atoi(argv[1]) : PAIR_BLOCKS;
	struct side s[2] = {{0}};
	struct pair_side sides[2] = {{on_stream, &s[1], 0}, {plain, &s[0], 0}};
	struct pair_verdict v;
	struct pair p;
	int status = 0;

	if (blocks < PAIR_BLOCKS || blocks > PAIR_BLOCKS_MAX) {
		fprintf(stderr, "usage: async [BLOCKS, %d to %d]\n", PAIR_BLOCKS, PAIR_BLOCKS_MAX);
		return 2;
	}
	pair_begin(&p, 4096);
	pair_connect(&p, (const char *const[]){"COLL_TRANSPORTS=shm", NULL});
	for (int i = 0; i < 2; i++) {
		s[i].comm = p.comm;
		for (int k = 0; k < COUNT; k++)
			s[i].in[k] = (float)(p.rank + 1);
	}
	if (coll_stream_create(&s[1].stream, p.comm) != COLL_OK || coll_event_create(&s[1].event, p.comm) != COLL_OK) {
		fprintf(stderr, "rank %d: %s\n", p.rank, coll_last_error(p.comm)->message);
		return 1;
	}
	pair_calibrate(&p, &sides[0]);
	pair_calibrate(&p, &sides[1]);
	pair_compare(&p, sides, blocks, &v);
	if (p.rank == 0)
		printf("16-byte all_reduce, %d paired blocks: plain %.2f us, stream and event %.2f us (medians); "
		       "ratio %.2f (95 %% interval %.2f .. %.2f)\n",
		       blocks, v.seconds[1] * 1e6, v.seconds[0] * 1e6, v.ratio, v.low, v.high);
	singles(&p, &s[1]);
	overlap(&p, &s[1]);
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < COUNT; k++)
			status |= s[i].failed || s[i].out[k] != 3;
	status |= coll_event_destroy(&s[1].event) != COLL_OK || coll_stream_destroy(&s[1].stream) != COLL_OK;
	return pair_end(&p, status);
}
