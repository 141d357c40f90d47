/*
 * The driver of every library: obeys the parent, times calls, checks results. All that
 * is measured is done by this file for all libraries alike; a library's own file makes
 * the call and nothing else.
 *
 *   DRIVER, with COLL_BENCH_SOCKET (a path) and COLL_BENCH_SHARED (a file to map) set
 *
 * A line from the parent, the same to all ranks, is answered by one line of each rank:
 *
 *   prepare KIND BYTES PLACE MEMORY SETS    "ok", or "none REASON"
 *           (PLACE: in or out; MEMORY: plain or own)
 *   check                                   "ok HASH", or "wrong COUNT of N at INDEX"
 *   block HOW CALLS WARM                    "time SECONDS CPU SLEEPS PREEMPTED" of CALLS calls, or "wrong WHAT"
 *           (HOW: loop, each or back; the last three of this process: seconds of all its threads, and how often
 *           the kernel took another thread, as this one waited or against its will)
 *   quit                                    ends the rank
 *
 * How a block is timed. Every call's input is written anew before it: a loop that never
 * touches its data measures caches that no program has.
 *
 *   loop: the writes are inside the time. One time for all calls, from the moment the
 *         last rank begins until the last rank ends. For sizes where a clock, or a wait
 *         for other ranks, costs more than writing the data.
 *   each: the writes are outside the time. Before each call ranks meet; its time is from
 *         the moment the last rank enters it until the last rank leaves it, so that ranks
 *         that leave the meeting a little late do not count.
 *
 *   back: the calls follow each other without a pause, on data that is written once, before
 *         the time begins. For links that are slower than the memory by far.
 *
 * The root of a broadcast or a reduce moves on by one with each call: a fixed root would run
 * ahead of the others, and the time would be that of a pipeline, not of a broadcast. Calls
 * back to back have root 0: a root that moves would use both directions of a link at once.
 */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 256, SETS_MAX = 64, LINE_MAX_BYTES = 256, CALLS_EACH_MAX = 1 << 14, HEADER_BYTES = 1 << 16 };

/* At the start of the shared file; then CALLS_EACH_MAX entries and leavings for each
 * rank; the rest is the library's. */
struct shared {
	_Alignas(64) atomic_uint arrived;
	_Alignas(64) atomic_uint round;
	_Alignas(64) struct {
		uint64_t begin, end;
	} rank[RANKS_MAX];
};

struct times {
	uint64_t begin[CALLS_EACH_MAX], end[CALLS_EACH_MAX];
};

static struct {
	int fd;
	FILE *from;
	struct shared *shared;
	struct times *times; /* [size] */
	char *rest;
	size_t rest_bytes;
	int rank, size;
	bool crowded; /* more ranks than cores */
	struct bench_job job;
	bench_call *call;
	float *memory[2 * SETS_MAX]; /* as allocated; in place only the even ones */
	float *in[SETS_MAX], *out[SETS_MAX];
} me;

static void die(const char *what)
{
	fprintf(stderr, "%s: rank %d: %s: %s\n", bench_library.name, me.rank, what, strerror(errno));
	_exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

/* The last one to arrive lets the others go: its increment is the last of this round, and the
 * release of the new round orders all that was written before any arrival. */
void bench_meet(void)
{
	struct shared *s = me.shared;
	const unsigned round = atomic_load_explicit(&s->round, memory_order_acquire);
	unsigned spins = 0;

	if (atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel) == (unsigned)me.size - 1) {
		atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&s->round, round + 1, memory_order_release);
		return;
	}
	while (atomic_load_explicit(&s->round, memory_order_acquire) == round) {
		relax();
		if (++spins % (me.crowded ? 16 : 65536) == 0)
			sched_yield();
	}
}

void *bench_shared(size_t *len_bytes)
{
	*len_bytes = me.rest_bytes;
	return me.rest;
}

/* ---- Data ----------------------------------------------------------------- */

static size_t blocks_in(const struct bench_job *j)
{
	return j->kind == BENCH_REDUCE_SCATTER || j->kind == BENCH_ALL_TO_ALL ? (size_t)j->size : 1;
}

static size_t blocks_out(const struct bench_job *j)
{
	return j->kind == BENCH_ALL_GATHER || j->kind == BENCH_ALL_TO_ALL ? (size_t)j->size : 1;
}

/* Small whole numbers: any order of summing them gives the same. */
static float pattern(int rank, size_t i)
{
	return (float)((i * 7 + (size_t)rank * 13 + i / 1021) % 101);
}

static float pattern_sum(int size, size_t i)
{
	float sum = 0;

	for (int r = 0; r < size; r++)
		sum += pattern(r, i);
	return sum;
}

/* What the patterns make of element i of the output. */
static float pattern_out(const struct bench_job *j, size_t i)
{
	const size_t block = i / (j->count ? j->count : 1), in_block = i % (j->count ? j->count : 1);

	switch (j->kind) {
	case BENCH_ALL_REDUCE: return pattern_sum(j->size, i);
	case BENCH_BROADCAST: return pattern(j->root, i);
	case BENCH_REDUCE_SCATTER: return pattern_sum(j->size, (size_t)j->rank * j->count + i);
	case BENCH_ALL_GATHER: return pattern((int)block, in_block);
	case BENCH_ALL_TO_ALL: return pattern((int)block, (size_t)j->rank * j->count + in_block);
	case BENCH_REDUCE: return pattern_sum(j->size, i);
	case BENCH_SEND_RECV: return pattern(j->rank ^ 1, i);
	default: return 0;
	}
}

/* What a rank's input is in a timed call, all elements alike. */
static float mark(int rank, unsigned call)
{
	return (float)(1 + rank + (int)(call % 8));
}

static void touch(const struct bench_job *j, unsigned call)
{
	const float value = mark(j->rank, call);
	const size_t n = j->count * blocks_in(j);
	float *restrict in = j->in;

	if (j->kind == BENCH_BROADCAST && j->rank != j->root)
		return;
	for (size_t i = 0; i < n; i++)
		in[i] = value;
}

static bool right_mark(const struct bench_job *j, unsigned call)
{
	const size_t n = j->count * blocks_out(j);
	float sum = 0;

	for (int r = 0; r < j->size; r++)
		sum += mark(r, call);
	for (int k = 0; k < 5 && n; k++) {
		const size_t i = (n - 1) * (size_t)k / 4, block = i / j->count;
		const float want = j->kind == BENCH_BROADCAST   ? mark(j->root, call)
		                   : j->kind == BENCH_SEND_RECV ? mark(j->rank ^ 1, call)
		                   : j->kind == BENCH_ALL_GATHER || j->kind == BENCH_ALL_TO_ALL ? mark((int)block, call)
		                                                                                : sum;

		if (j->out[i] != want)
			return false;
	}
	return true;
}

/* ---- Commands ------------------------------------------------------------- */

static __attribute__((format(printf, 1, 2))) void answer(const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(line, sizeof(line) - 1, format, list);
	va_end(list);
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	for (int done = 0; done < n;) {
		const ssize_t k = write(me.fd, line + done, (size_t)(n - done));

		if (k <= 0)
			die("write");
		done += (int)k;
	}
}

static void drop_buffers(void)
{
	for (int i = 0; i < 2 * SETS_MAX; i++) {
		if (me.memory[i] && me.job.own_memory)
			bench_library.release(me.memory[i]);
		else
			free(me.memory[i]);
		me.memory[i] = NULL;
	}
}

static float *allocate(size_t floats)
{
	/* A page more than needed and never none: every rank makes the same requests. */
	const size_t bytes = (floats * sizeof(float) / 4096 + 1) * 4096;
	void *p = NULL;

	if (me.job.own_memory)
		p = bench_library.alloc(bytes);
	else if (posix_memalign(&p, 4096, bytes) != 0)
		p = NULL;
	if (!p)
		die("no memory");
	memset(p, 0, bytes);
	return p;
}

static void make_buffers(void)
{
	struct bench_job *j = &me.job;
	const size_t in = j->count * blocks_in(j), out = j->count * blocks_out(j);

	for (int s = 0; s < j->sets; s++) {
		if (j->in_place) {
			size_t in_at = 0, out_at = 0;

			bench_library.place(j, &in_at, &out_at);
			me.memory[2 * s] = allocate(in > out ? in : out);
			me.in[s] = me.memory[2 * s] + in_at;
			me.out[s] = me.memory[2 * s] + out_at;
		} else {
			me.in[s] = me.memory[2 * s] = allocate(in);
			me.out[s] = me.memory[2 * s + 1] = allocate(out);
		}
	}
}

static void use(int set)
{
	me.job.set = set;
	me.job.in = me.in[set];
	me.job.out = me.out[set];
}

static int kind_named(const char *name)
{
	static const char *const names[BENCH_KINDS] = {"all_reduce", "broadcast", "reduce_scatter", "all_gather",
	                                               "all_to_all", "barrier",   "reduce",         "send_recv"};

	for (int k = 0; k < BENCH_KINDS; k++)
		if (strcmp(names[k], name) == 0)
			return k;
	return -1;
}

static void prepare(const char *line)
{
	struct bench_job *j = &me.job;
	char kind[32], place[8], memory[8];
	size_t bytes, blocks;
	int sets;

	drop_buffers();
	me.call = NULL;
	if (sscanf(line, "%31s %zu %7s %7s %d", kind, &bytes, place, memory, &sets) != 5 || kind_named(kind) < 0 ||
	    sets < 1 || sets > SETS_MAX) {
		answer("none of this form");
		return;
	}
	*j = (struct bench_job){.kind = (enum bench_kind)kind_named(kind),
	                        .bytes = bytes,
	                        .rank = me.rank,
	                        .size = me.size,
	                        .in_place = strcmp(place, "in") == 0,
	                        .own_memory = strcmp(memory, "own") == 0,
	                        .sets = sets};
	blocks = blocks_in(j) > blocks_out(j) ? blocks_in(j) : blocks_out(j);
	j->count = bytes / sizeof(float) / blocks;
	if (j->kind != BENCH_BARRIER && j->count * sizeof(float) * blocks != bytes) {
		answer("none: %zu bytes are not whole blocks", bytes);
		return;
	}
	if (j->kind == BENCH_SEND_RECV && j->size % 2) {
		answer("none: an odd number of ranks are not all in pairs");
		return;
	}
	if (j->own_memory && !bench_library.alloc) {
		j->own_memory = false;
		answer("none: no memory of its own");
		return;
	}
	if (!(me.call = bench_library.find(j))) {
		answer("none: not in this library");
		return;
	}
	make_buffers();
	if (bench_library.ready && bench_library.ready(j, me.in, me.out) != 0) {
		me.call = NULL;
		answer("none: buffers do not fit");
		return;
	}
	use(0);
	bench_meet();
	answer("ok");
}

static bool rooted(const struct bench_job *j)
{
	return j->kind == BENCH_BROADCAST || j->kind == BENCH_REDUCE;
}

/* Whether there is a result, and it must be right. */
static bool checked(void)
{
	return me.job.kind != BENCH_BARRIER && (me.job.kind != BENCH_REDUCE || me.job.rank == me.job.root) &&
	       (!bench_library.checked || bench_library.checked(&me.job));
}

static void check(void)
{
	struct bench_job *j = &me.job;
	const size_t in = j->count * blocks_in(j), out = j->count * blocks_out(j);
	size_t wrong = 0, first = 0;
	uint64_t hash = 14695981039346656037U;
	int status;

	j->root = j->size - 1;
	for (size_t i = 0; !j->in_place && i < out; i++)
		j->out[i] = -1;
	for (size_t i = 0; i < in; i++)
		j->in[i] = j->kind == BENCH_BROADCAST && j->rank != j->root ? -1 : pattern(j->rank, i);
	bench_meet();
	status = me.call(j);
	for (size_t i = 0; i < out && checked(); i++) {
		uint32_t bits;

		memcpy(&bits, &j->out[i], sizeof(bits));
		hash = (hash ^ bits) * 1099511628211U;
		if (j->out[i] != pattern_out(j, i) && wrong++ == 0)
			first = i;
	}
	bench_meet();
	if (status)
		answer("wrong: the call failed with %d", status);
	else if (wrong)
		answer("wrong %zu of %zu at %zu", wrong, out, first);
	else
		answer("ok %016llx", (unsigned long long)hash);
}

/* Calls first .. first + n - 1, inputs written inside. */
static int run_loop(struct bench_job *j, unsigned first, int n)
{
	int failed = 0;

	for (unsigned k = first; k != first + (unsigned)n; k++) {
		if (j->sets > 1)
			use((int)(k % (unsigned)j->sets));
		if (rooted(j))
			j->root = (int)(k % (unsigned)j->size);
		touch(j, k);
		failed |= me.call(j);
	}
	return failed;
}

/* The same, inputs written outside. With several sets what is written is what will be used half
 * a round later, so that it is no longer in a cache by then. */
static int run_each(struct bench_job *j, unsigned first, int n, struct times *t)
{
	int failed = 0;

	for (int i = 0; i < n; i++) {
		const unsigned k = first + (unsigned)i, ahead = (unsigned)j->sets / 2;

		if (rooted(j))
			j->root = (int)(k % (unsigned)j->size);
		use((int)((k + ahead) % (unsigned)j->sets));
		touch(j, ahead ? 0 : k);
		use((int)(k % (unsigned)j->sets));
		bench_meet();
		t->begin[i] = now_ns();
		failed |= me.call(j);
		t->end[i] = now_ns();
	}
	return failed;
}

/* Calls on the same data, which the caller has written. */
static int run_back(struct bench_job *j, int n)
{
	int failed = 0;

	for (int i = 0; i < n; i++)
		failed |= me.call(j);
	return failed;
}

/* The input of call 0 of root 0; no result of an earlier call is left. */
static void write_once(struct bench_job *j)
{
	const size_t out = j->count * blocks_out(j);

	use(0);
	j->root = 0;
	for (size_t i = 0; i < out; i++)
		j->out[i] = -1;
	touch(j, 0);
}

/* Nanoseconds from the last entry to the last exit. */
static uint64_t span(const uint64_t *begin, const uint64_t *end, size_t stride)
{
	uint64_t last_begin = 0, last_end = 0;

	for (int r = 0; r < me.size; r++) {
		last_begin = begin[(size_t)r * stride] > last_begin ? begin[(size_t)r * stride] : last_begin;
		last_end = end[(size_t)r * stride] > last_end ? end[(size_t)r * stride] : last_end;
	}
	return last_end > last_begin ? last_end - last_begin : 0;
}

/* What this process has used. */
struct usage {
	double cpu;
	long sleeps, preempted;
};

static struct usage usage(void)
{
	struct rusage r;

	if (getrusage(RUSAGE_SELF, &r) != 0)
		die("getrusage");
	return (struct usage){.cpu = (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	                             1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec),
	                      .sleeps = r.ru_nvcsw,
	                      .preempted = r.ru_nivcsw};
}

static void block(const char *line)
{
	struct bench_job *j = &me.job;
	struct usage before, after;
	const size_t stride = sizeof(struct times) / sizeof(uint64_t);
	char how[8];
	int calls, warm, failed;
	uint64_t ns = 0;
	unsigned last;

	if (!me.call || sscanf(line, "%7s %d %d", how, &calls, &warm) != 3 || calls < 1 || warm < 0) {
		answer("wrong: no such block");
		return;
	}
	if (strcmp(how, "each") == 0) {
		const int n = calls < CALLS_EACH_MAX ? calls : CALLS_EACH_MAX;
		const int w = warm < CALLS_EACH_MAX ? warm : CALLS_EACH_MAX;

		for (int s = 0; j->sets > 1 && s < j->sets; s++) {
			use(s);
			touch(j, 0);
		}
		failed = run_each(j, 0, w, &me.times[me.rank]);
		before = usage();
		failed |= run_each(j, (unsigned)w, n, &me.times[me.rank]);
		after = usage();
		last = j->sets > 1 ? 0 : (unsigned)(w + n) - 1;
		bench_meet();
		for (int i = 0; i < n; i++)
			ns += span(&me.times[0].begin[i], &me.times[0].end[i], stride);
		ns = (uint64_t)((double)ns * calls / n);
	} else {
		const bool back = strcmp(how, "back") == 0;

		if (back)
			write_once(j);
		failed = back ? run_back(j, warm) : run_loop(j, 0, warm);
		bench_meet();
		before = usage();
		me.shared->rank[me.rank].begin = now_ns();
		failed |= back ? run_back(j, calls) : run_loop(j, (unsigned)warm, calls);
		me.shared->rank[me.rank].end = now_ns();
		after = usage();
		last = back ? 0 : (unsigned)(warm + calls) - 1;
		bench_meet();
		ns = span(&me.shared->rank[0].begin, &me.shared->rank[0].end, 2);
	}
	bench_meet();
	if (failed)
		answer("wrong: a call failed with %d", failed);
	else if (checked() && !right_mark(j, last))
		answer("wrong result of the last call");
	else
		answer("time %.9f %.6f %ld %ld", (double)ns * 1e-9, after.cpu - before.cpu,
		       after.sleeps - before.sleeps, after.preempted - before.preempted);
}

static void obey(void)
{
	char line[LINE_MAX_BYTES];

	while (fgets(line, sizeof(line), me.from)) {
		line[strcspn(line, "\n")] = 0;
		if (strncmp(line, "prepare ", 8) == 0)
			prepare(line + 8);
		else if (strcmp(line, "check") == 0 && me.call)
			check();
		else if (strncmp(line, "block ", 6) == 0)
			block(line + 6);
		else if (strcmp(line, "quit") == 0)
			break;
		else
			answer("wrong: no such command");
	}
}

/* ---- Start ---------------------------------------------------------------- */

static void connect_parent(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *path = getenv("COLL_BENCH_SOCKET");

	if (!path || strlen(path) >= sizeof(to.sun_path)) {
		fprintf(stderr, "%s: started by run.py only\n", bench_library.name);
		_exit(2);
	}
	memcpy(to.sun_path, path, strlen(path));
	me.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (me.fd < 0 || connect(me.fd, (struct sockaddr *)&to, sizeof(to)) != 0 ||
	    !(me.from = fdopen(dup(me.fd), "r")))
		die(path);
}

static void map_shared(void)
{
	const size_t times = (size_t)RANKS_MAX * sizeof(struct times);
	const char *path = getenv("COLL_BENCH_SHARED");
	const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	struct stat st;
	char *p;

	_Static_assert(sizeof(struct shared) <= HEADER_BYTES, "room for the meeting place");
	if (fd < 0 || fstat(fd, &st) != 0 || (size_t)st.st_size < HEADER_BYTES + times)
		die("COLL_BENCH_SHARED");
	p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	close(fd);
	me.shared = (struct shared *)p;
	me.times = (struct times *)(p + HEADER_BYTES);
	me.rest = p + HEADER_BYTES + times;
	me.rest_bytes = (size_t)st.st_size - HEADER_BYTES - times;
}

/* Before the library starts, so that its threads stay here, too. Its rank is not known yet: the parent's
 * sockets are numbered in the order of connection, and rank order is put right by pin(). */
static void pin(int rank)
{
	static cpu_set_t allowed;
	cpu_set_t mine;
	int seen = 0, cores;

	if (CPU_COUNT(&allowed) == 0 && sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		die("sched_getaffinity");
	cores = CPU_COUNT(&allowed);
	me.crowded = me.size > cores;
	if (getenv("COLL_BENCH_UNPINNED"))
		return;
	CPU_ZERO(&mine);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &allowed) && seen++ == rank % cores)
			CPU_SET(c, &mine);
	if (sched_setaffinity(0, sizeof(mine), &mine) != 0)
		die("sched_setaffinity");
}

/* The launcher's word for this rank, where it has one: COLL_BENCH_RANK, or any of these. */
static int launched_rank(void)
{
	static const char *const names[] = {"COLL_BENCH_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "COLL_RANK"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (getenv(names[i]))
			return atoi(getenv(names[i]));
	return -1;
}

int main(int argc, char **argv)
{
	char text[LINE_MAX_BYTES - 64] = "";
	const int early = launched_rank();

	connect_parent();
	map_shared();
	if (early >= 0)
		pin(early);
	if (bench_library.begin(&argc, &argv, &me.rank, &me.size, text, sizeof(text)) != 0) {
		answer("failed %s", text);
		return 1;
	}
	if (me.size > RANKS_MAX)
		die("too many ranks");
	pin(me.rank);
	answer("hello %d %d %d %s", me.rank, me.size, (int)getpid(), text);
	obey();
	drop_buffers();
	bench_library.end();
	return 0;
}
