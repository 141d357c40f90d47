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
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
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

static void set_congestion(int fd)
{
	const char *cc = getenv("COLL_TCP_CONGESTION");

	if (cc == NULL || cc[0] == '\0')
		cc = "reno";
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) != 0)
		perror(cc);
}

static void connect_bare(struct floor *f)
{
	struct sockaddr_in *at = (struct sockaddr_in *)(void *)f->pair.memory;
	socklen_t len = sizeof(*at);
	const int one = 1;
	int l;

	if (f->pair.rank == 0) {
		l = socket(AF_INET, SOCK_STREAM, 0);
		*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		if (bind(l, (struct sockaddr *)at, len) || listen(l, 1))
			exit(1);
		getsockname(l, (struct sockaddr *)at, &len);
		pair_barrier(&f->pair);
		f->fd = accept(l, NULL, NULL);
		close(l);
	} else {
		pair_barrier(&f->pair);
		f->fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(f->fd, (struct sockaddr *)at, len))
			exit(1);
	}
	setsockopt(f->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	set_congestion(f->fd);
	fcntl(f->fd, F_SETFL, O_NONBLOCK);
}

static void bare_ping(struct floor *f, size_t bytes)
{
	for (int half = 0; half < 2; half++)
		for (size_t done = 0; done < bytes;) {
			const ssize_t k = half == f->pair.rank ? send(f->fd, f->in + done, bytes - done, MSG_NOSIGNAL)
			                                       : recv(f->fd, f->out + done, bytes - done, 0);

			if (k > 0)
				done += (size_t)k;
		}
}

static void bare_exchange(struct floor *f, size_t bytes)
{
	size_t sent = 0, got = 0;

	while (sent < bytes || got < bytes) {
		if (sent < bytes) {
			const ssize_t k = send(f->fd, f->in + sent, bytes - sent, MSG_NOSIGNAL);

			sent += k > 0 ? (size_t)k : 0;
		}
		if (got < bytes) {
			const ssize_t k = recv(f->fd, f->out + got, bytes - got, 0);

			got += k > 0 ? (size_t)k : 0;
		}
	}
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

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void compare(struct floor *f, size_t bytes, int blocks)
{
	const bool small = bytes <= PING_BYTES;
	work *bare = small ? bare_ping : bare_exchange;
	const double ways = small ? 2 : 1;
	const int nb = calibrate(f, bare, bytes), no = calibrate(f, ours, bytes);
	double ratio[BLOCKS_MAX], a[BLOCKS_MAX], b[BLOCKS_MAX];

	for (int i = 0; i < blocks; i++) {
		a[i] = block(f, bare, bytes, nb) / ways;
		b[i] = block(f, ours, bytes, no);
		ratio[i] = a[i] / b[i];
	}
	if (f->pair.rank != 0)
		return;
	qsort(a, (size_t)blocks, sizeof(*a), ascending);
	qsort(b, (size_t)blocks, sizeof(*b), ascending);
	qsort(ratio, (size_t)blocks, sizeof(*ratio), ascending);
	printf("%10zu B  bare %10.2f us  ours %10.2f us  rate %5.3f of bare (%5.3f .. %5.3f)  best %10.2f %10.2f\n",
	       bytes, a[blocks / 2] / 1e3, b[blocks / 2] / 1e3, ratio[blocks / 2], ratio[blocks / 4],
	       ratio[3 * blocks / 4], a[0] / 1e3, b[0] / 1e3);
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
	work *w = strcmp(which, "ours") == 0 ? ours : bytes <= PING_BYTES ? bare_ping : bare_exchange;

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
	connect_bare(&f);
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
