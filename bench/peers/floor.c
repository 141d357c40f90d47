/*
 * What the machine can do, as one more library beside the others: hand-written loops
 * over memory that all ranks map, or over bare sockets. No library can be expected to be
 * faster; how near one comes is what is asked.
 *
 *   shared memory: whichever of these is fastest for the job, tried when it is prepared.
 *   Each rank copies its input to a slot, raises a flag in the same line or behind it, and
 *   reads the others' slots (two slots in turn, no closing wait). Or ranks read each
 *   other's inputs where they lie, each byte once, and write each output byte once, a root of two its part
 *   of the other's; with stores through the caches, or past them.
 *   tcp: the bytes that the collective must move, from the input to where the result goes (in place: to
 *   another buffer), from rank to next rank in a ring over one socket each way, under the congestion
 *   control COLL_BENCH_CC ("reno"; "" the system's). Nothing is summed: results are not checked.
 *
 * COLL_BENCH_FLOOR=line: a hand-off instead, one way: of one cache line, or of one small
 * segment over tcp. Each call is one, rank to rank.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "driver.h"
#include "floor_sum.h"

enum {
	RANKS = 64,
	SETS = 64,
	LINE = 48,       /* bytes that fit in one cache line with their flag */
	SLOT = 64 << 10, /* of a bounce */
	CALL = 1 << 20   /* most of one send or recv */
};

/* Written by one rank; turn counts its calls. */
struct flag {
	_Alignas(64) atomic_uint_least64_t turn;
	char data[LINE];
};

struct mail {
	struct flag line[2];     /* flag and data together, two calls in turn */
	struct flag flag;        /* behind a slot */
	struct flag done;        /* closing wait */
	_Alignas(64) int choice; /* of rank 0 */
	_Alignas(64) char slot[2][SLOT];
};

static struct {
	int rank, size;
	struct mail *mail; /* [size] */
	char *heap;        /* of all ranks, heap_bytes each */
	size_t heap_bytes, used;
	int live;
	uint64_t turn;
	uint64_t hand; /* line: hand-offs so far */
	float *in[SETS], *out[SETS];
	int next, prev; /* sockets; the same one between two ranks */
	bool tcp, line;
	bench_call *best; /* of this job */
	bool stream;      /* stores pass the caches */
} me;

static void relax(void)
{
#if defined(__x86_64__)
	_mm_pause();
#endif
}

/* ---- Shared memory ---------------------------------------------------------- */

/* Acquire: what the writer wrote before it raised the flag is seen after it. */
static void await(const struct flag *f, uint64_t turn)
{
	unsigned spins = 0;

	while (atomic_load_explicit(&f->turn, memory_order_acquire) < turn) {
		relax();
		if (++spins % 65536 == 0)
			sched_yield();
	}
}

static void raise_flag(struct flag *f, uint64_t turn)
{
	atomic_store_explicit(&f->turn, turn, memory_order_release);
}

static void await_all(size_t offset, uint64_t turn)
{
	for (int r = 0; r < me.size; r++)
		if (r != me.rank)
			await((const struct flag *)(const void *)((const char *)&me.mail[r] + offset), turn);
}

/* The same address in rank r's part of the heap. */
static float *of_rank(const float *mine, int r)
{
	return (float *)(void *)((char *)(uintptr_t)mine + ((ptrdiff_t)r - me.rank) * (ptrdiff_t)me.heap_bytes);
}

/* This rank's output from the inputs of all, wherever these are. */
static void from_all(const struct bench_job *j, const float *const *ins)
{
	const float *from[RANKS];
	float *out;

	switch (j->kind) {
	case BENCH_ALL_REDUCE:
	case BENCH_REDUCE_SCATTER:
		for (int r = 0; r < me.size; r++)
			from[r] = ins[r] + (j->kind == BENCH_REDUCE_SCATTER ? (size_t)me.rank * j->count : 0);
		floor_combine(me.stream, &j->out, 1, from, me.size, j->count);
		return;
	case BENCH_BROADCAST:
		if (me.rank != j->root)
			floor_combine(me.stream, &j->out, 1, &ins[j->root], 1, j->count);
		return;
	case BENCH_ALL_GATHER:
	case BENCH_ALL_TO_ALL:
		for (int k = 0; k < me.size; k++) {
			const int r = (me.rank + k) % me.size;

			from[0] = ins[r] + (j->kind == BENCH_ALL_TO_ALL ? (size_t)me.rank * j->count : 0);
			out = j->out + (size_t)r * j->count;
			if (out != from[0])
				floor_combine(me.stream, &out, 1, from, 1, j->count);
		}
		return;
	default: return;
	}
}

static size_t in_bytes(const struct bench_job *j)
{
	const bool blocks = j->kind == BENCH_REDUCE_SCATTER || j->kind == BENCH_ALL_TO_ALL;

	return j->count * sizeof(float) * (size_t)(blocks ? j->size : 1);
}

static size_t out_bytes(const struct bench_job *j)
{
	const bool blocks = j->kind == BENCH_ALL_GATHER || j->kind == BENCH_ALL_TO_ALL;

	return j->count * sizeof(float) * (size_t)(blocks ? j->size : 1);
}

/* Data and flag in one line; the slot of this turn was read by all before they raised the last one. The most usual
 * job is written out. */
static int by_line(const struct bench_job *j)
{
	const uint64_t turn = ++me.turn;
	struct flag *mine = &me.mail[me.rank].line[turn % 2];
	const float *ins[RANKS];

	if (me.size == 2 && j->kind == BENCH_ALL_REDUCE && j->count == 2) {
		struct flag *theirs = &me.mail[!me.rank].line[turn % 2];
		float other[2];

		memcpy(mine->data, j->in, sizeof(other));
		raise_flag(mine, turn);
		while (atomic_load_explicit(&theirs->turn, memory_order_acquire) < turn)
			relax();
		memcpy(other, theirs->data, sizeof(other));
		j->out[0] = j->in[0] + other[0];
		j->out[1] = j->in[1] + other[1];
		return 0;
	}
	memcpy(mine->data, j->in, in_bytes(j));
	raise_flag(mine, turn);
	for (int r = 0; r < me.size; r++) {
		await(&me.mail[r].line[turn % 2], turn);
		ins[r] = (const float *)(const void *)me.mail[r].line[turn % 2].data;
	}
	ins[me.rank] = j->in;
	from_all(j, ins);
	return 0;
}

static int by_bounce(const struct bench_job *j)
{
	const uint64_t turn = ++me.turn;
	const float *ins[RANKS];

	memcpy(me.mail[me.rank].slot[turn % 2], j->in, in_bytes(j));
	raise_flag(&me.mail[me.rank].flag, turn);
	for (int r = 0; r < me.size; r++)
		ins[r] = (const float *)(const void *)me.mail[r].slot[turn % 2];
	ins[me.rank] = j->in;
	await_all(offsetof(struct mail, flag), turn);
	from_all(j, ins);
	return 0;
}

static int by_reading(const struct bench_job *j)
{
	const uint64_t turn = ++me.turn;
	const float *ins[RANKS];
	float *outs[RANKS];

	raise_flag(&me.mail[me.rank].flag, turn);
	for (int r = 0; r < me.size; r++) {
		/* In place, an all-gather's input is elsewhere at each rank. */
		ins[r] = of_rank(j->in, r);
		if (j->in_place && j->kind == BENCH_ALL_GATHER)
			ins[r] += ((ptrdiff_t)r - me.rank) * (ptrdiff_t)j->count;
		outs[r] = of_rank(j->out, r);
	}
	await_all(offsetof(struct mail, flag), turn);
	if (j->kind == BENCH_ALL_REDUCE) {
		/* Slices of whole lines. */
		const size_t lines = (j->count + 15) / 16, lo = lines * (size_t)me.rank / (size_t)me.size * 16;
		const size_t to = lines * (size_t)(me.rank + 1) / (size_t)me.size * 16,
		             hi = to < j->count ? to : j->count;

		for (int r = 0; r < me.size; r++) {
			ins[r] += lo;
			outs[r] += lo;
		}
		floor_combine(me.stream, outs, me.size, ins, me.size, hi > lo ? hi - lo : 0);
	} else {
		from_all(j, ins);
	}
	raise_flag(&me.mail[me.rank].done, turn);
	await_all(offsetof(struct mail, done), turn);
	return 0;
}

/* A broadcast of two ranks, in place: each stores half of what the root's peer gets. */
static int by_halves(const struct bench_job *j)
{
	const uint64_t turn = ++me.turn;
	const size_t half = j->count / 32 * 16;
	const float *from = of_rank(j->in, j->root);
	float *to = of_rank(j->out, !j->root);

	raise_flag(&me.mail[me.rank].flag, turn);
	await_all(offsetof(struct mail, flag), turn);
	if (me.rank == j->root) {
		from += half;
		to += half;
	}
	floor_combine(me.stream, &to, 1, &from, 1, me.rank == j->root ? j->count - half : half);
	raise_flag(&me.mail[me.rank].done, turn);
	await_all(offsetof(struct mail, done), turn);
	return 0;
}

static int by_best(const struct bench_job *j)
{
	return me.best(j);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Rank 0 tells which way was fastest: the least of several times of each. */
static void try_all(const struct bench_job *job, float *const *in, float *const *out)
{
	const bool fits = in_bytes(job) <= SLOT, halves = job->kind == BENCH_BROADCAST && job->size == 2;
	const struct {
		bench_call *call;
		bool stream, may;
	} ways[] = {
	        {by_line, false, in_bytes(job) <= LINE},         {by_bounce, false, fits},
	        {by_reading, false, job->bytes > LINE},          {by_reading, true, job->bytes >= 256 << 10},
	        {by_halves, false, halves && job->bytes > LINE}, {by_halves, true, halves && job->bytes >= 256 << 10}};
	struct bench_job j = *job;
	double least = 1e9;

	j.in = in[0];
	j.out = out[0];
	for (int w = 0; w < (int)(sizeof(ways) / sizeof(*ways)); w++) {
		if (!ways[w].may)
			continue;
		me.stream = ways[w].stream;
		for (int k = 0; k < (j.bytes > 8 << 20 ? 4 : 16); k++) {
			double begin, s;

			for (size_t i = 0; i < in_bytes(&j) / sizeof(float); i++)
				j.in[i] = 1;
			bench_meet();
			begin = now_s();
			ways[w].call(&j);
			s = now_s() - begin;
			if (me.rank == 0 && s < least) {
				least = s;
				me.mail[0].choice = w;
			}
		}
	}
	bench_meet();
	me.best = ways[me.mail[0].choice].call;
	me.stream = ways[me.mail[0].choice].stream;
}

/* Rank to rank: the same number of hand-offs as of calls. */
static int hand_line(const struct bench_job *j)
{
	const uint64_t turn = ++me.hand;

	if (turn % (uint64_t)me.size == (uint64_t)me.rank)
		raise_flag(&me.mail[0].line[0], turn);
	else if ((turn + 1) % (uint64_t)me.size == (uint64_t)me.rank)
		await(&me.mail[0].line[0], turn);
	return 0;
}

/* ---- Sockets ------------------------------------------------------------------ */

/* Memory that is gone round where more is moved than it holds. */
struct round {
	char *at;
	size_t bytes;
};

/* Where byte n lies, and how many of the next go on from there, of left and in one call. */
static char *run_of(const struct round *r, size_t n, size_t left, size_t *bytes)
{
	const size_t at = n % r->bytes, rest = r->bytes - at;

	*bytes = left < rest ? left : rest;
	*bytes = *bytes < CALL ? *bytes : CALL;
	return r->at + at;
}

/* Send and receive so many bytes, both at once. */
static int exchange(const struct round *out, size_t send_bytes, const struct round *in, size_t recv_bytes)
{
	size_t sent = 0, got = 0, n;

	while (sent < send_bytes || got < recv_bytes) {
		if (sent < send_bytes) {
			const char *from = run_of(out, sent, send_bytes - sent, &n);
			const ssize_t k = send(me.next, from, n, MSG_NOSIGNAL);

			if (k > 0)
				sent += (size_t)k;
			else if (errno != EAGAIN)
				return 1;
		}
		if (got < recv_bytes) {
			char *to = run_of(in, got, recv_bytes - got, &n);
			const ssize_t k = recv(me.prev, to, n, 0);

			if (k > 0)
				got += (size_t)k;
			else if (k == 0 || errno != EAGAIN)
				return 1;
		}
	}
	return 0;
}

/* Bytes that each rank must at least send and receive. */
static size_t moved(const struct bench_job *j)
{
	const size_t others = j->bytes / (size_t)j->size * (size_t)(j->size - 1);

	switch (j->kind) {
	case BENCH_ALL_REDUCE: return 2 * others;
	case BENCH_BROADCAST: return j->bytes;
	case BENCH_BARRIER: return 1;
	default: return others;
	}
}

static char *beside[SETS]; /* in place: what comes in */

/* What the others send and get: the input that is written anew before each call, and the result. In place it is
 * another buffer: what comes in would overwrite what is still to be sent. A barrier has a page of each. */
static struct round input(const struct bench_job *j)
{
	return (struct round){(char *)j->in, in_bytes(j) ? in_bytes(j) : 1};
}

static struct round result(const struct bench_job *j)
{
	return (struct round){j->in_place ? beside[j->set] : (char *)j->out, out_bytes(j) ? out_bytes(j) : 1};
}

/* The peer's input, of which two numbers are here, is not zeros. Memory that nobody has written is one page of zeros,
 * however long: sending it would be to read a cache. */
static bool has_input(const struct bench_job *j)
{
	const float *got = (const float *)(const void *)result(j).at;

	return got[0] != 0 || got[1] != 0;
}

static int by_wire(const struct bench_job *j)
{
	const size_t bytes = moved(j);
	const struct round out = input(j), in = result(j);

	if (j->kind == BENCH_BROADCAST) {
		/* The last of the ring sends to nobody. */
		const bool last = (me.rank + 1) % me.size == j->root;

		return exchange(&out, last ? 0 : bytes, &in, me.rank == j->root ? 0 : bytes);
	}
	return exchange(&out, bytes, &in, bytes) ||
	       (j->kind == BENCH_ALL_REDUCE && bytes >= 2 * sizeof(float) && !has_input(j));
}

static int hand_wire(const struct bench_job *j)
{
	const uint64_t turn = ++me.hand;
	const size_t bytes = j->bytes ? j->bytes : 1;
	const struct round out = input(j), in = result(j);

	if (turn % (uint64_t)me.size == (uint64_t)me.rank)
		return exchange(&out, bytes, NULL, 0);
	if ((turn + 1) % (uint64_t)me.size == (uint64_t)me.rank)
		return exchange(NULL, 0, &in, bytes);
	return 0;
}

/* The control before the connection is made, and inherited by it: a paced one would pace from then on, for ever. */
static int new_socket(void)
{
	const char *cc = getenv("COLL_BENCH_CC");
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (!cc)
		cc = "reno";
	if (fd >= 0 && *cc)
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc));
	return fd;
}

static void tune_socket(int fd)
{
	const int one = 1, buffer = 8 << 20;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* Ports are told in the shared memory. */
static int connect_ring(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(to);
	const int l = new_socket(), next = (me.rank + 1) % me.size;
	const bool pair = me.size == 2;

	if (l < 0 || bind(l, (struct sockaddr *)&to, len) != 0 || listen(l, 1) != 0)
		return 1;
	getsockname(l, (struct sockaddr *)&to, &len);
	raise_flag(&me.mail[me.rank].flag, ntohs(to.sin_port));
	if (!pair || me.rank == 0) {
		await(&me.mail[next].flag, 1);
		to.sin_port = htons((uint16_t)atomic_load(&me.mail[next].flag.turn));
		me.next = new_socket();
		if (connect(me.next, (struct sockaddr *)&to, len) != 0)
			return 1;
		tune_socket(me.next);
	}
	if (!pair || me.rank == 1) {
		me.prev = accept(l, NULL, NULL);
		if (me.prev < 0)
			return 1;
		tune_socket(me.prev);
	}
	if (pair && me.rank == 0)
		me.prev = me.next;
	else if (pair)
		me.next = me.prev;
	close(l);
	return 0;
}

/* ---- The library ---------------------------------------------------------------- */

static int begin(int *argc, char ***argv, int *rank, int *size, char *text, size_t text_bytes)
{
	const char *transport = getenv("COLL_BENCH_TRANSPORT"), *floor = getenv("COLL_BENCH_FLOOR");
	size_t bytes;
	char *p = bench_shared(&bytes);

	me.rank = *rank = atoi(getenv("COLL_BENCH_RANK"));
	me.size = *size = atoi(getenv("COLL_BENCH_SIZE"));
	me.tcp = transport && strcmp(transport, "tcp") == 0;
	me.line = floor && strcmp(floor, "line") == 0;
	if (me.size < 2 || me.size > RANKS) {
		snprintf(text, text_bytes, "of 2 to %d ranks", RANKS);
		return 1;
	}
	me.mail = (struct mail *)(void *)p;
	me.heap = p + (size_t)me.size * sizeof(struct mail);
	me.heap_bytes = (bytes - (size_t)me.size * sizeof(struct mail)) / (size_t)me.size / 4096 * 4096;
	snprintf(text, text_bytes, "%s, %s", me.tcp ? "bare sockets" : "shared memory",
	         me.line ? "hand-off" : "by hand");
	return me.tcp ? connect_ring() : 0;
}

static bench_call *find(const struct bench_job *j)
{
	if (me.line)
		return me.size == 2 && j->bytes <= LINE && j->kind != BENCH_BROADCAST && j->kind != BENCH_SEND_RECV
		               ? me.tcp ? hand_wire : hand_line
		               : NULL;
	if (j->kind == BENCH_REDUCE || j->kind == BENCH_SEND_RECV || (j->kind == BENCH_BROADCAST && !j->in_place) ||
	    (j->kind == BENCH_ALL_TO_ALL && j->in_place))
		return NULL;
	if (me.tcp)
		return by_wire;
	return by_best;
}

static bool checked(const struct bench_job *j)
{
	return !me.tcp && !me.line;
}

/* Ranks ask for the same, so that what one gets lies where another gets it. */
static void *alloc(size_t bytes)
{
	char *p = me.heap + (size_t)me.rank * me.heap_bytes + me.used;

	if (bytes > me.heap_bytes - me.used)
		return NULL;
	/* Pages of a size that divides badly by the cache's: buffers do not fall on one another. */
	me.used += bytes + 4096;
	me.live++;
	return p;
}

static void release(void *memory)
{
	if (--me.live > 0)
		return;
	madvise(me.heap + (size_t)me.rank * me.heap_bytes, (me.used + 4095) / 4096 * 4096, MADV_REMOVE);
	me.used = 0;
}

static int ready(const struct bench_job *j, float *const *in, float *const *out)
{
	if (!me.tcp && !me.line)
		try_all(j, in, out);
	for (int s = 0; s < SETS; s++) {
		free(beside[s]);
		beside[s] = NULL;
	}
	for (int s = 0; me.tcp && j->in_place && s < j->sets; s++) {
		if (posix_memalign((void **)&beside[s], 4096, out_bytes(j) + 1) != 0)
			return 1;
		memset(beside[s], 0, out_bytes(j) + 1);
	}
	return 0;
}

static void place(const struct bench_job *j, size_t *in_at, size_t *out_at)
{
	*in_at = j->kind == BENCH_ALL_GATHER ? (size_t)j->rank * j->count : 0;
	*out_at = j->kind == BENCH_REDUCE_SCATTER ? (size_t)j->rank * j->count : 0;
}

static void end(void)
{
}

const struct bench_library bench_library = {.name = "floor",
                                            .begin = begin,
                                            .find = find,
                                            .checked = checked,
                                            .alloc = alloc,
                                            .release = release,
                                            .place = place,
                                            .ready = ready,
                                            .end = end};
