/*
 * What a persistent operation costs beside the plain call: an 8-byte all-reduce between two
 * processes over shm, as coll_all_reduce() and as start and wait of an operation prepared once,
 * in the same two processes, turn by turn.
 *
 *   persistent [BLOCKS]
 *
 * Prints the median of the paired blocks' ratios, and the interval that holds the true
 * median with 95 % (order statistics). Exit status 1 only if a result is wrong.
 */
#include <stdio.h>
#include <stdlib.h>

#include "pair.h"

struct side {
	coll_comm *comm;
	coll_operation *op;
	float in[2], out[2];
	int failed;
};

static void plain(void *arg, int times)
{
	struct side *s = arg;

	for (int i = 0; i < times; i++)
		if (coll_all_reduce(s->in, s->out, 2, COLL_F32, COLL_SUM, s->comm, NULL) != COLL_OK)
			s->failed = 1;
}

static void persistent(void *arg, int times)
{
	struct side *s = arg;

	for (int i = 0; i < times; i++)
		if (coll_operation_start(s->op, NULL) != COLL_OK || coll_operation_wait(s->op, -1) != COLL_OK)
			s->failed = 1;
}

int main(int argc, char **argv)
{
	const int blocks = argc > 1 ? atoi(argv[1]) : PAIR_BLOCKS;
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	struct side s[2] = {{0}};
	struct pair_side sides[2] = {{persistent, &s[1], 0}, {plain, &s[0], 0}};
	struct pair_verdict v;
	struct pair p;
	int status = 0;

	if (blocks < PAIR_BLOCKS || blocks > PAIR_BLOCKS_MAX) {
		fprintf(stderr, "usage: persistent [BLOCKS, %d to %d]\n", PAIR_BLOCKS, PAIR_BLOCKS_MAX);
		return 2;
	}
	pair_begin(&p, 4096);
	pair_connect(&p, (const char *const[]){"COLL_TRANSPORTS=shm", NULL});
	for (int i = 0; i < 2; i++) {
		s[i].comm = p.comm;
		s[i].in[0] = (float)p.rank + 1;
		s[i].in[1] = 10 * s[i].in[0];
	}
	d.in = s[1].in;
	d.out = s[1].out;
	d.count = 2;
	if (coll_operation_prepare(&s[1].op, &d, p.comm) != COLL_OK) {
		fprintf(stderr, "rank %d: %s\n", p.rank, coll_last_error(p.comm)->message);
		return 1;
	}
	pair_calibrate(&p, &sides[0]);
	pair_calibrate(&p, &sides[1]);
	pair_compare(&p, sides, blocks, &v);
	if (p.rank == 0)
		printf("8-byte all_reduce, %d paired blocks: plain %.1f ns, persistent %.1f ns (medians); "
		       "persistent/plain %.3f (95 %% interval %.3f .. %.3f)\n",
		       blocks, v.seconds[1] * 1e9, v.seconds[0] * 1e9, v.ratio, v.low, v.high);
	for (int i = 0; i < 2; i++)
		status |= s[i].failed || s[i].out[0] != 3 || s[i].out[1] != 30;
	status |= coll_operation_destroy(&s[1].op) != COLL_OK;
	return pair_end(&p, status);
}
