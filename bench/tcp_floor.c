/*
 * All-reduce over tcp beside what bare sockets need for the same bytes: two
 * processes of one machine, one core each, the same congestion control, blocks
 * of the two in turn (A B A B). The input is written anew before every
 * operation, on both sides alike; only the operation is timed.
 *
 *   8 bytes   one way of a ping-pong of a spinning pair
 *   others    an exchange: each end sends and receives that many bytes at once
 *
 *   tcp_floor [blocks [bytes ...]]       ratio: rate of ours / rate of the bare sockets
 *   tcp_floor ours count bytes           count all-reduces and nothing else, for strace and perf
 *   tcp_floor bare count bytes           the same of the bare sockets
 *
 * COLL_TCP_CONGESTION is obeyed by both.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "base/clock.h"
#include "median.h"
#include "pair.h"

enum { BLOCKS_MAX = 101, PING_BYTES = 64 };
static const uint64_t BLOCK_NS = 12000000;

struct floor {
	struct pair pair;
	int fd;
	char *in, *out;
	uint64_t spent_ns; /* in operations, of this block */
};

/* ---- the bare sockets ------------------------------------------------------ */

static const char *congestion(void)
{
	const char *cc = getenv("COLL_TCP_CONGESTION");

	return cc && cc[0] ? cc : "reno";
}

static void meet(void *pair)
{
	pair_barrier(pair);
}

static void ping(struct floor *f, size_t bytes)
{
	bare_ping(f->fd, f->pair.rank, f->in, f->out, bytes);
}

static void exchange(struct floor *f, size_t bytes)
{
	bare_duplex(f->fd, f->in, f->out, bytes, 1);
}

static void ours(struct floor *f, size_t bytes)
{
	if (coll_all_reduce(f->in, f->out, bytes / sizeof(float), COLL_F32, COLL_SUM, f->pair.comm, NULL) != COLL_OK) {
		fprintf(stderr, "all_reduce failed\n");
		exit(1);
	}
}

/* ---- blocks -------------------------------------------------------------------- */

typedef void work(struct floor *f, size_t bytes);

static void touch(struct floor *f, size_t bytes)
{
	const float value = (float)(f->pair.rank + 1);

	for (size_t i = 0; i < bytes / sizeof(float); i++)
		((float *)(void *)f->in)[i] = value;
}

/* Mean ns of one of n operations. */
static double block(struct floor *f, work *w, size_t bytes, int n)
{
	uint64_t spent = 0;

	pair_barrier(&f->pair);
	for (int i = 0; i < n; i++) {
		uint64_t t;

		touch(f, bytes);
		t = coll_clock_ns();
		w(f, bytes);
		spent += coll_clock_ns() - t;
	}
	return (double)spent / n;
}

/* How many operations fill a block; rank 0 says. */
static int calibrate(struct floor *f, work *w, size_t bytes)
{
	int *n = (int *)(void *)f->pair.memory;

	block(f, w, bytes, 2);
	const double each = block(f, w, bytes, 4);

	if (f->pair.rank == 0)
		*n = each > (double)BLOCK_NS / 2 ? 2 : (int)((double)BLOCK_NS / each);
	pair_barrier(&f->pair);
	const int times = *n;

	pair_barrier(&f->pair);
	return times;
}

static void compare(struct floor *f, size_t bytes, int blocks)
{
	const bool small = bytes <= PING_BYTES;
	work *bare = small ? ping : exchange;
	const double ways = small ? 2 : 1;
	const int nb = calibrate(f, bare, bytes), no = calibrate(f, ours, bytes);
	double ratio[BLOCKS_MAX], a[BLOCKS_MAX], b[BLOCKS_MAX], ma, mb, mr;

	for (int i = 0; i < blocks; i++) {
		a[i] = block(f, bare, bytes, nb) / ways;
		b[i] = block(f, ours, bytes, no);
		ratio[i] = a[i] / b[i];
	}
	if (f->pair.rank != 0)
		return;
	ma = median_of(a, blocks);
	mb = median_of(b, blocks);
	mr = median_of(ratio, blocks);
	printf("%10zu B  bare %10.2f us  ours %10.2f us  rate %5.3f of bare (%5.3f .. %5.3f)  best %10.2f %10.2f\n",
	       bytes, ma / 1e3, mb / 1e3, mr, ratio[blocks / 4], ratio[3 * blocks / 4], a[0] / 1e3, b[0] / 1e3);
	fflush(stdout);
}

/* ---- main ------------------------------------------------------------------------ */

static void memory(struct floor *f, size_t bytes)
{
	f->in = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	f->out = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
	if (f->in == NULL || f->out == NULL)
		exit(1);
	memset(f->in, 1, bytes);
	memset(f->out, 1, bytes);
}

static int one_side(struct floor *f, const char *which, int count, size_t bytes)
{
	work *w = strcmp(which, "ours") == 0 ? ours : bytes <= PING_BYTES ? ping : exchange;

	memory(f, bytes);
	for (int i = 0; i < count; i++)
		w(f, bytes);
	return pair_end(&f->pair, 0);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = {8, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
	const char *const settings[] = {"COLL_TRANSPORTS=tcp", NULL};
	struct floor f = {0};
	int blocks;

	pair_begin(&f.pair, 4096);
	f.fd = bare_connect(f.pair.rank, (struct sockaddr_in *)(void *)f.pair.memory, meet, &f.pair, congestion());
	pair_connect(&f.pair, settings);
	if (argc == 4 && (strcmp(argv[1], "ours") == 0 || strcmp(argv[1], "bare") == 0))
		return one_side(&f, argv[1], atoi(argv[2]), strtoull(argv[3], NULL, 0));
	blocks = argc > 1 ? atoi(argv[1]) : 15;
	if (blocks < 1 || blocks > BLOCKS_MAX)
		return 2;
	for (size_t i = 0; i < (argc > 2 ? (size_t)argc - 2 : sizeof(sizes) / sizeof(*sizes)); i++) {
		const size_t bytes = argc > 2 ? strtoull(argv[2 + i], NULL, 0) : sizes[i];

		memory(&f, bytes);
		compare(&f, bytes, blocks);
		free(f.in);
		free(f.out);
	}
	return pair_end(&f.pair, 0);
}
