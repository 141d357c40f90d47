/*
 * Yardsticks: a way of the library beside what does the same with less, in the same two pinned processes, turn by turn.
 *
 *   yardstick WHAT [--blocks N] [BYTES ...]
 *
 *   exchange     8-byte all_reduce over shm            a cache line each way, written by hand
 *   ring         all_reduce, forced to its ring        a ring over slots of 64 KiB, two tiles in flight, no engine
 *   tcp          all_reduce over tcp, input rewritten  bare sockets: one way of a ping-pong up to 64 bytes, else an
 * exchange persistent   start and wait of an operation        the same call of 8 bytes stream       the call on a
 * stream, and an event    the same call of 16 bytes overlap      1 MiB on a stream; the caller computes for 2 ms: from
 * the call until the event was reached calls N      N calls of 8 bytes and nothing else, for counting instructions and
 * system calls
 *
 * Prints medians of paired blocks, and the library's time as a multiple of the other with the interval that holds the
 * true median with 95 %. Exit status 1 only if a result is wrong or a call failed.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "median.h"
#include "pair.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

enum { SLOTS = 8, SLOT_BYTES = 65536, HEADS_BYTES = 4096, BLOCK_BYTES = 8192, PING_BYTES = 64, OVERLAPS = 200 };

/* Written by one rank, read by the other; two of them in turn, because the writer may be one operation ahead. */
struct line {
	_Alignas(64) atomic_uint_least64_t turn;
	float value[2];
};

/* One direction of the ring by hand. posted and freed are written by one side each. Slots begin at a page, as the
 * library's: loads that run ahead must not look like the stores behind them. */
struct way {
	_Alignas(128) atomic_uint_least64_t posted;
	_Alignas(128) atomic_uint_least64_t freed;
	char *slots;
};

struct bench {
	struct pair pair;
	float *in, *out;
	size_t count;
	bool failed;
	uint64_t turn;         /* exchange */
	uint64_t spent_ns;     /* tcp: without the rewriting of the input */
	struct way *to, *from; /* ring */
	uint64_t posted, freed_seen, taken;
	struct coll_reduction sum;
	int fd; /* tcp */
	coll_operation *op;
	coll_stream *stream;
	coll_event *event;
};

static float value(size_t i, int rank)
{
	return (float)(i % 1000) + (float)rank;
}

static void check(struct bench *b, coll_status st)
{
	if (st != COLL_OK && !b->failed)
		fprintf(stderr, "rank %d: %s\n", b->pair.rank, coll_last_error(b->pair.comm)->message);
	b->failed |= st != COLL_OK;
}

/* ---- The library ------------------------------------------------------------ */

static void plain(void *arg, int times)
{
	struct bench *b = arg;

	for (int i = 0; i < times; i++)
		check(b, coll_all_reduce(b->in, b->out, b->count, COLL_F32, COLL_SUM, b->pair.comm, NULL));
}

static void persistent(void *arg, int times)
{
	struct bench *b = arg;

	for (int i = 0; i < times; i++) {
		check(b, coll_operation_start(b->op, NULL));
		check(b, coll_operation_wait(b->op, -1));
	}
}

static void add_to_stream(struct bench *b)
{
	check(b, coll_all_reduce(b->in, b->out, b->count, COLL_F32, COLL_SUM, b->pair.comm, b->stream));
	check(b, coll_event_record(b->event, b->stream));
}

static void on_stream(void *arg, int times)
{
	struct bench *b = arg;

	for (int i = 0; i < times; i++) {
		add_to_stream(b);
		check(b, coll_event_wait(b->event, -1));
	}
}

/* ---- By hand: lines --------------------------------------------------------- */

static void lines(void *arg, int times)
{
	struct bench *b = arg;
	struct line(*all)[2] = (struct line(*)[2])(void *)b->pair.memory;

	for (int i = 0; i < times; i++) {
		const uint64_t turn = ++b->turn;
		struct line *mine = &all[b->pair.rank][turn % 2], *theirs = &all[!b->pair.rank][turn % 2];

		memcpy(mine->value, b->in, sizeof(mine->value));
		atomic_store_explicit(&mine->turn, turn, memory_order_release);
		while (atomic_load_explicit(&theirs->turn, memory_order_acquire) != turn)
			coll_cpu_relax();
		b->out[0] = b->in[0] + theirs->value[0];
		b->out[1] = b->in[1] + theirs->value[1];
	}
}

/* ---- By hand: a ring over slots ---------------------------------------------- */

static char *slot(struct bench *b)
{
	while (b->posted - b->freed_seen >= SLOTS) {
		b->freed_seen = atomic_load_explicit(&b->to->freed, memory_order_acquire);
		if (b->posted - b->freed_seen >= SLOTS)
			coll_cpu_relax();
	}
	return b->to->slots + b->posted % SLOTS * SLOT_BYTES;
}

static const char *view(const struct bench *b)
{
	while (atomic_load_explicit(&b->from->posted, memory_order_acquire) == b->taken)
		coll_cpu_relax();
	return b->from->slots + b->taken % SLOTS * SLOT_BYTES;
}

/* Chunk c of tile t, which has two slots: the first is one longer when the tile is odd. */
static size_t cut(const struct bench *b, size_t t, int c, size_t *first)
{
	const size_t whole = 2 * SLOT_BYTES / sizeof(float), left = b->count - t * whole,
	             tile = left < whole ? left : whole;

	*first = t * whole + (c ? (tile + 1) / 2 : 0);
	return c ? tile / 2 : (tile + 1) / 2;
}

static void send_chunk(struct bench *b, size_t t)
{
	size_t first;
	const size_t len = cut(b, t, b->pair.rank, &first);

	coll_reduce_copy(slot(b), b->in + first, len * sizeof(float));
	atomic_store_explicit(&b->to->posted, ++b->posted, memory_order_release);
}

/* out = in + incoming; forward out. */
static void reduce_and_forward(struct bench *b, size_t t)
{
	size_t first;
	const size_t len = cut(b, t, !b->pair.rank, &first), most = BLOCK_BYTES / sizeof(float);
	const float *incoming = (const float *)(const void *)view(b);
	char *to = slot(b);

	for (size_t at = 0; at < len; at += most) {
		const size_t n = len - at < most ? len - at : most;
		const void *operands[2] = {incoming + at, b->in + first + at};

		coll_reduce_run(&b->sum, b->out + first + at, operands, 2, -1, true, n);
		coll_reduce_copy(to + at * sizeof(float), b->out + first + at, n * sizeof(float));
	}
	atomic_store_explicit(&b->to->posted, ++b->posted, memory_order_release);
	atomic_store_explicit(&b->from->freed, ++b->taken, memory_order_release);
}

static void receive(struct bench *b, size_t t)
{
	size_t first;
	const size_t len = cut(b, t, b->pair.rank, &first);

	coll_reduce_copy(b->out + first, view(b), len * sizeof(float));
	atomic_store_explicit(&b->from->freed, ++b->taken, memory_order_release);
}

/* Posted in the order s0 s1 r0 s2 r1 s3 r2 ..., and consumed in that order. */
static void ring(void *arg, int times)
{
	struct bench *b = arg;
	const size_t tile = 2 * SLOT_BYTES / sizeof(float), tiles = (b->count + tile - 1) / tile;

	for (int i = 0; i < times; i++) {
		send_chunk(b, 0);
		for (size_t t = 0; t < tiles; t++) {
			if (t + 1 < tiles)
				send_chunk(b, t + 1);
			reduce_and_forward(b, t);
			if (t > 0)
				receive(b, t - 1);
		}
		receive(b, tiles - 1);
	}
}

/* ---- By hand: sockets --------------------------------------------------------- */

/* The congestion control before the connection is made: a paced one would pace for ever. Accepted sockets inherit it.
 */
static int new_socket(void)
{
	const char *cc = getenv("COLL_TCP_CONGESTION");
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	cc = cc && *cc ? cc : "reno";
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)))
		perror(cc);
	return fd;
}

static int connect_two(struct pair *p)
{
	struct sockaddr_in *at = (struct sockaddr_in *)(void *)p->memory;
	const int one = 1, fd = new_socket();
	socklen_t len = sizeof(*at);
	int made = fd, bad = 0;

	if (p->rank == 0) {
		*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		bad = bind(fd, (struct sockaddr *)at, len) || listen(fd, 1) ||
		      getsockname(fd, (struct sockaddr *)at, &len);
	}
	pair_barrier(p);
	if (p->rank == 0)
		made = bad ? -1 : accept(fd, NULL, NULL);
	else
		bad = connect(fd, (struct sockaddr *)at, sizeof(*at));
	if (bad || made < 0) {
		perror("yardstick: socket");
		exit(1);
	}
	setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	fcntl(made, F_SETFL, O_NONBLOCK);
	return made;
}

static size_t moved(ssize_t n)
{
	return n > 0 ? (size_t)n : 0;
}

/* Half as often there and back: a time is that of one way. */
static void ping(void *arg, int times)
{
	struct bench *b = arg;
	const size_t bytes = b->count * sizeof(float);

	for (int half = 0; half < times; half++)
		for (size_t done = 0; done < bytes;)
			done += moved(half % 2 == b->pair.rank
			                      ? send(b->fd, (char *)b->in + done, bytes - done, MSG_NOSIGNAL)
			                      : recv(b->fd, (char *)b->out + done, bytes - done, 0));
	/* An odd number leaves the sender of the last one alone: both end together. */
	pair_barrier(&b->pair);
}

static void exchange(void *arg, int times)
{
	struct bench *b = arg;
	const size_t bytes = b->count * sizeof(float);

	for (int i = 0; i < times; i++)
		for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
			if (sent < bytes)
				sent += moved(send(b->fd, (char *)b->in + sent, bytes - sent, MSG_NOSIGNAL));
			if (got < bytes)
				got += moved(recv(b->fd, (char *)b->out + got, bytes - got, 0));
		}
}

/* The input is written anew before each time, on both sides alike. */
static void rewrite(struct bench *b, pair_fn *fn, int times)
{
	b->spent_ns = 0;
	for (int i = 0; i < times; i++) {
		uint64_t begin;

		for (size_t k = 0; k < b->count; k++)
			b->in[k] = value(k, b->pair.rank);
		begin = coll_clock_ns();
		fn(b, 1);
		b->spent_ns += coll_clock_ns() - begin;
	}
}

static void over_tcp(void *arg, int times)
{
	rewrite(arg, plain, times);
}

static void over_sockets(void *arg, int times)
{
	rewrite(arg, exchange, times);
}

/* ---- The table ------------------------------------------------------------------ */

static const struct yard {
	const char *name, *other; /* `other` in the table of results */
	const char *settings[3];
	pair_fn *by_library, *by_hand;
	bool sums; /* the other side computes the sum, too */
	size_t bytes[8];
} yards[] = {
        {"exchange", "lines", {"COLL_TRANSPORTS=shm"}, plain, lines, true, {8}},
        {"ring",
         "by hand",
         {"COLL_TRANSPORTS=shm", "COLL_ALGO=all_reduce:ring", "COLL_SLOT_BYTES=65536"},
         plain,
         ring,
         true,
         {65536, 262144, 1 << 20, 4 << 20, 16 << 20}},
        {"tcp",
         "sockets",
         {"COLL_TRANSPORTS=tcp"},
         over_tcp,
         over_sockets,
         false,
         {8, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20}},
        {"persistent", "plain", {"COLL_TRANSPORTS=shm"}, persistent, plain, true, {8}},
        {"stream", "plain", {"COLL_TRANSPORTS=shm"}, on_stream, plain, true, {16}},
        {"overlap", NULL, {"COLL_TRANSPORTS=shm"}, on_stream, NULL, true, {1 << 20}},
        {"calls", NULL, {"COLL_TRANSPORTS=shm"}, plain, NULL, true, {8}},
};
enum { YARDS = sizeof(yards) / sizeof(yards[0]) };

/* Buffers of so many bytes, and what the library's side needs of its own. */
static void set_up(struct bench *b, const struct yard *y, size_t bytes)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;

	b->count = bytes / sizeof(float);
	b->in = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	b->out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!b->in || !b->out)
		exit(1);
	for (size_t i = 0; i < b->count; i++)
		b->in[i] = value(i, b->pair.rank);
	d.in = b->in;
	d.out = b->out;
	d.count = b->count;
	if (y->by_library == persistent)
		check(b, coll_operation_prepare(&b->op, &d, b->pair.comm));
	if (y->by_library == on_stream) {
		check(b, coll_stream_create(&b->stream, b->pair.comm));
		check(b, coll_event_create(&b->event, b->pair.comm));
	}
}

static void clear(struct bench *b)
{
	check(b, coll_operation_destroy(&b->op));
	check(b, coll_event_destroy(&b->event));
	check(b, coll_stream_destroy(&b->stream));
	free(b->in);
	free(b->out);
}

/* Once more, into a buffer of zeros. */
static void verify(struct bench *b, pair_fn *fn)
{
	memset(b->out, 0, b->count * sizeof(float));
	fn(b, 1);
	for (size_t i = 0; i < b->count && !b->failed; i++)
		if (b->out[i] != value(i, 0) + value(i, 1)) {
			fprintf(stderr, "rank %d: element %zu is %g\n", b->pair.rank, i, (double)b->out[i]);
			b->failed = true;
		}
}

static void compare(struct bench *b, const struct yard *y, size_t bytes, int blocks)
{
	const bool tcp = y->by_library == over_tcp, pings = tcp && bytes <= PING_BYTES;
	pair_fn *by_hand = pings ? ping : y->by_hand;
	struct pair_side sides[2] = {{y->by_library, b, 0, tcp ? &b->spent_ns : NULL},
	                             {by_hand, b, 0, tcp && !pings ? &b->spent_ns : NULL}};
	struct pair_verdict v;

	for (int k = 0; k < 2; k++)
		pair_calibrate(&b->pair, &sides[k]);
	pair_compare(&b->pair, sides, blocks, &v);
	if (b->pair.rank == 0)
		printf("%-10s %10zu B  %s %.3f us, library %.3f us, ratio %.3f (95 %% interval %.3f .. %.3f)\n",
		       y->name, bytes, y->other, v.seconds[1] * 1e6, v.seconds[0] * 1e6, v.ratio, v.low, v.high);
	fflush(stdout);
	verify(b, y->by_library);
	if (y->sums)
		verify(b, by_hand);
}

/* The caller computes and does not call the library: only the progress thread advances the call. */
static void overlap(struct bench *b)
{
	double us[OVERLAPS];

	for (int i = 0; i < OVERLAPS; i++) {
		double at = 0;
		uint64_t from;

		pair_barrier(&b->pair);
		from = coll_clock_ns();
		add_to_stream(b);
		while (coll_clock_ns() - from < 2000000)
			;
		check(b, coll_event_wait(b->event, -1));
		check(b, coll_event_time(b->event, &at));
		us[i] = at * 1e6 - (double)from / 1e3;
	}
	median_of(us, OVERLAPS);
	if (b->pair.rank == 0)
		printf("overlap: median %.2f us, 90 %% %.2f, 99 %% %.2f\n", us[OVERLAPS / 2], us[OVERLAPS * 9 / 10],
		       us[OVERLAPS * 99 / 100]);
}

static void open_hands(struct bench *b, const struct yard *y)
{
	struct way *ways = (struct way *)(void *)b->pair.memory;

	if (y->by_library == over_tcp)
		b->fd = connect_two(&b->pair);
	if (y->by_hand != ring)
		return;
	for (int r = 0; r < 2; r++)
		ways[r].slots = b->pair.memory + HEADS_BYTES + (size_t)r * SLOTS * SLOT_BYTES;
	b->to = &ways[b->pair.rank];
	b->from = &ways[!b->pair.rank];
	coll_reduce_bind(&b->sum, COLL_F32, COLL_SUM, 2, coll_reduce_best_isa());
}

static int usage(void)
{
	fprintf(stderr,
	        "usage: yardstick exchange|ring|tcp|persistent|stream|overlap|calls [--blocks N, %d to %d] [BYTES "
	        "...]\n",
	        PAIR_BLOCKS, PAIR_BLOCKS_MAX);
	return 2;
}

int main(int argc, char **argv)
{
	const struct yard *y = yards;
	const char *settings[4] = {NULL};
	struct bench b = {0};
	int blocks = PAIR_BLOCKS, at = 2;

	while (y < yards + YARDS && (argc < 2 || strcmp(y->name, argv[1]) != 0))
		y++;
	if (y == yards + YARDS)
		return usage();
	if (argc > 3 && strcmp(argv[2], "--blocks") == 0) {
		blocks = atoi(argv[3]);
		at = 4;
	}
	if (blocks < PAIR_BLOCKS || blocks > PAIR_BLOCKS_MAX)
		return usage();
	memcpy(settings, y->settings, sizeof(y->settings));
	pair_begin(&b.pair, HEADS_BYTES + (size_t)2 * SLOTS * SLOT_BYTES);
	open_hands(&b, y);
	pair_connect(&b.pair, settings);
	for (int i = 0; y->by_hand ? at + i < argc || (at == argc && i < 8 && y->bytes[i]) : i == 0; i++) {
		const size_t bytes = y->by_hand && at < argc ? strtoull(argv[at + i], NULL, 0) : y->bytes[i];

		if (bytes < sizeof(float))
			return usage();
		set_up(&b, y, bytes);
		if (y->by_hand)
			compare(&b, y, bytes, blocks);
		else if (y->by_library == on_stream)
			overlap(&b);
		else
			plain(&b, at < argc ? atoi(argv[at]) : 1);
		clear(&b);
	}
	return pair_end(&b.pair, b.failed);
}
