/*
 * Rates of this machine that no library can pass, between two processes, one core each;
 * one line of JSON. The best of several times each: a limit is not typical.
 *
 *   limits [MIB]     of memory and of tcp; default 64
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/clock.h"
#include "pair.h"

enum { TIMES = 6, HANDS = 100000, PONGS = 5000 };

/* At the start of the shared memory; then two buffers of each rank. */
struct area {
	_Alignas(64) atomic_int hand;
	_Alignas(64) pid_t pid[2];
	int port;
	_Alignas(4096) char data[];
};

static struct pair p;
static struct area *area;
static size_t len;

static char *buffer(int rank, int which)
{
	return area->data + ((size_t)rank * 2 + (size_t)which) * len;
}

static void put(const char *name, double value, const char *end)
{
	if (p.rank == 0)
		printf("\"%s\": %.4g%s", name, value, end);
}

static void hand_off(void)
{
	double least = 1e9;

	for (int t = 0; t < TIMES; t++) {
		uint64_t begin;

		pair_barrier(&p);
		atomic_store(&area->hand, 0);
		pair_barrier(&p);
		begin = coll_clock_ns();
		for (int i = p.rank; i < HANDS; i += 2) {
			while (atomic_load_explicit(&area->hand, memory_order_acquire) != i)
				;
			atomic_store_explicit(&area->hand, i + 1, memory_order_release);
		}
		pair_barrier(&p);
		if ((double)(coll_clock_ns() - begin) / HANDS < least)
			least = (double)(coll_clock_ns() - begin) / HANDS;
	}
	put("line_one_way_ns", least, ", ");
}

static int copy(void)
{
	memcpy(buffer(p.rank, 1), buffer(p.rank, 0), len);
	return 0;
}

static int copy_past_caches(void)
{
#if defined(__x86_64__)
	const __m128i *in = (const __m128i *)(const void *)buffer(p.rank, 0);
	__m128i *out = (__m128i *)(void *)buffer(p.rank, 1);

	for (size_t i = 0; i < len / sizeof(*in); i++)
		_mm_stream_si128(out + i, _mm_load_si128(in + i));
	_mm_sfence();
	return 0;
#else
	return 1;
#endif
}

/* The peer's memory through the kernel: cross memory attach. */
static int attach(void)
{
	struct iovec to = {buffer(p.rank, 1), len}, from = {buffer(!p.rank, 0), len};

	return process_vm_readv(area->pid[!p.rank], &to, 1, &from, 1, 0) != (ssize_t)len;
}

static int sock;

static int duplex(void)
{
	size_t out = 0, in = 0;

	while (out < len || in < len) {
		const size_t so = len - out < 1 << 20 ? len - out : 1 << 20,
		             si = len - in < 1 << 20 ? len - in : 1 << 20;
		const ssize_t s = out < len ? send(sock, buffer(p.rank, 0) + out, so, MSG_NOSIGNAL) : 0;
		const ssize_t r = in < len ? recv(sock, buffer(p.rank, 1) + in, si, 0) : 0;

		out += s > 0 ? (size_t)s : 0;
		in += r > 0 ? (size_t)r : 0;
	}
	return 0;
}

/* GB/s of each rank while both do it; 0: cannot. */
static double rate(int (*fn)(void))
{
	double best = 0;

	for (int t = 0; t < TIMES; t++) {
		uint64_t begin;
		double gbs;

		pair_barrier(&p);
		begin = coll_clock_ns();
		if (fn() != 0)
			return 0;
		pair_barrier(&p);
		gbs = (double)len / (double)(coll_clock_ns() - begin);
		best = gbs > best ? gbs : best;
	}
	return best;
}

static void connect_pair(const char *cc)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(to);
	const int one = 1, room = 8 << 20, l = socket(AF_INET, SOCK_STREAM, 0);

	/* Before the connection is made, and inherited by it: a paced control would pace from then on, for ever. */
	if (cc)
		setsockopt(l, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc));
	if (p.rank == 0) {
		if (bind(l, (struct sockaddr *)&to, n) != 0 || listen(l, 1) != 0)
			exit(1);
		getsockname(l, (struct sockaddr *)&to, &n);
		area->port = to.sin_port;
	}
	pair_barrier(&p);
	to.sin_port = (in_port_t)area->port;
	if (p.rank == 0) {
		sock = accept(l, NULL, NULL);
		close(l);
	} else {
		sock = l;
		if (connect(sock, (struct sockaddr *)&to, n) != 0)
			exit(1);
	}
	setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	pair_barrier(&p);
}

static double pong(bool spin)
{
	uint64_t begin;
	char b[8] = "";

	fcntl(sock, F_SETFL, spin ? O_NONBLOCK : 0);
	pair_barrier(&p);
	begin = coll_clock_ns();
	for (int i = 0; i < PONGS; i++)
		if (i % 2 == p.rank)
			while (send(sock, b, sizeof(b), MSG_NOSIGNAL) < 0)
				;
		else
			while (recv(sock, b, sizeof(b), 0) < 0)
				;
	pair_barrier(&p);
	return (double)(coll_clock_ns() - begin) / PONGS / 1e3;
}

int main(int argc, char **argv)
{
	len = (size_t)(argc > 1 && atoi(argv[1]) > 0 ? atoi(argv[1]) : 64) << 20;
	pair_begin(&p, sizeof(struct area) + 4 * len);
	area = (struct area *)(void *)p.memory;
	area->pid[p.rank] = getpid();
	for (int w = 0; w < 2; w++)
		memset(buffer(p.rank, w), 1 + w, len);
	if (p.rank == 0)
		printf("{");
	hand_off();
	put("copy_gbs", rate(copy), ", ");
	put("copy_past_caches_gbs", rate(copy_past_caches), ", ");
	put("attach_gbs", rate(attach), ", ");
	connect_pair(NULL);
	put("tcp_one_way_us", pong(true), ", ");
	put("tcp_one_way_asleep_us", pong(false), ", ");
	fcntl(sock, F_SETFL, O_NONBLOCK);
	put("tcp_duplex_gbs", rate(duplex), ", ");
	close(sock);
	connect_pair("reno");
	fcntl(sock, F_SETFL, O_NONBLOCK);
	put("tcp_duplex_reno_gbs", rate(duplex), "}\n");
	close(sock);
	return pair_end(&p, 0);
}
