/*
 * The 8-byte yardstick: an all-reduce of two floats between two processes, written
 * by a bare program (one cache line each way, nothing else) and through the library.
 *
 *   yardstick_exchange [--calls N]
 *
 * Paired blocks, interleaved; prints nanoseconds of both and their difference with
 * the 95 % interval of 30 blocks. Exit status 1 only if a result is wrong. --calls N
 * makes N library calls and nothing else, for counting system calls and
 * instructions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pair.h"

/* Written by one rank, read by the other; two of them in turn, because the writer
 * may be one operation ahead of the reader. */
struct line {
	_Alignas(64) atomic_uint_least64_t turn;
	float value[2];
};

struct hand {
	struct line (*lines)[2]; /* [rank][parity] */
	int rank;
	uint64_t turn;
	float in[2], out[2];
};

struct library {
	coll_comm *comm;
	float in[2], out[2];
	int failed;
};

static void by_hand(void *arg, int times)
{
	struct hand *h = arg;

	for (int i = 0; i < times; i++) {
		const uint64_t turn = ++h->turn;
		struct line *mine = &h->lines[h->rank][turn % 2], *theirs = &h->lines[!h->rank][turn % 2];

		memcpy(mine->value, h->in, sizeof(h->in));
		atomic_store_explicit(&mine->turn, turn, memory_order_release);
		while (atomic_load_explicit(&theirs->turn, memory_order_acquire) != turn)
			coll_cpu_relax();
		h->out[0] = h->in[0] + theirs->value[0];
		h->out[1] = h->in[1] + theirs->value[1];
	}
}

static void by_library(void *arg, int times)
{
	struct library *l = arg;

	for (int i = 0; i < times; i++)
		if (coll_all_reduce(l->in, l->out, 2, COLL_F32, COLL_SUM, l->comm, NULL) != COLL_OK)
			l->failed = 1;
}

static int right(const float *out)
{
	return out[0] == 3 && out[1] == 30;
}

static int compare(struct pair *p, struct hand *h, struct library *l)
{
	double hand[PAIR_BLOCKS], library[PAIR_BLOCKS], more[PAIR_BLOCKS], mean, half, hand_mean, library_mean;
	struct pair_side sides[2] = {{by_hand, h, 0}, {by_library, l, 0}};

	pair_calibrate(p, &sides[0]);
	pair_calibrate(p, &sides[1]);
	for (int b = 0; b < PAIR_BLOCKS; b++) {
		double seconds[2];

		pair_block(p, sides, seconds);
		hand[b] = seconds[0] * 1e9;
		library[b] = seconds[1] * 1e9;
		more[b] = library[b] - hand[b];
	}
	pair_interval(hand, PAIR_BLOCKS, &hand_mean, &half);
	pair_interval(library, PAIR_BLOCKS, &library_mean, &half);
	pair_interval(more, PAIR_BLOCKS, &mean, &half);
	if (p->rank == 0)
		printf("8 bytes: bare %.1f ns, library %.1f ns, more by %.1f ns (95 %% interval %.1f .. %.1f)\n",
		       hand_mean, library_mean, mean, mean - half, mean + half);
	return l->failed || !right(h->out) || !right(l->out);
}

int main(int argc, char **argv)
{
	const float in[2][2] = {{1, 10}, {2, 20}};
	struct pair p;
	struct hand h = {0};
	struct library l = {0};
	int status;

	if (argc != 1 && (argc != 3 || strcmp(argv[1], "--calls") != 0)) {
		fprintf(stderr, "usage: yardstick_exchange [--calls N]\n");
		return 2;
	}
	pair_begin(&p, 4096);
	pair_connect(&p, (const char *const[]){"COLL_TRANSPORTS=shm", NULL});
	h.lines = (struct line(*)[2])p.memory;
	h.rank = p.rank;
	l.comm = p.comm;
	memcpy(h.in, in[p.rank], sizeof(h.in));
	memcpy(l.in, in[p.rank], sizeof(l.in));
	if (argc == 3) {
		by_library(&l, atoi(argv[2]));
		status = l.failed || !right(l.out);
	} else {
		status = compare(&p, &h, &l);
	}
	return pair_end(&p, status);
}
