/*
 * See cell.h.
 *
 * What is alike for both: plain buffers are the same memory; buffers of the libraries begin at the same place in a
 * page; as many calls a turn. Who is created first and whose turn is first changes all the time. Each turn begins with
 * calls that are not timed.
 *
 * What cannot be made alike is where in physical memory a library's data lies. Of two communicators of one library
 * one may take 1.3 times as long for short calls, all its life; of long buffers those allocated last are the faster
 * ones or the slower ones. So the shares of a block have processes of their own, in which the one or the other library
 * is first; short calls have new communicators before each turn too; and the time of a block is that of its fastest
 * turn.
 */
#include "cell.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../perf/perf.h"

enum {
	PAGE_BYTES = 4096,
	HUGE_PAGE_BYTES = 2 << 20,
	TOUCH_INSIDE_BYTES = 4096, /* up to this inputs are written inside the time: a clock would cost more */
	SHORT_BYTES = 4 << 20,     /* up to this each turn has new communicators */
	SHORT_TURNS = 6,           /* of each library in a share of a block; even, that orders alternate */
	LONG_TURNS = 4,            /* with the same communicators */
	SETTLING_CALLS = 12,       /* a library may time calls to choose how it makes them */
	CALLS_MAX = 1 << 26,
	POOL_PAGES = 1024
};
static const double SETTLING_PART = 0.5, WARM_PART = 0.1; /* of a turn */
static const double SETTLING_S = 0.3;                     /* at most, where calls are long */

const char *const cell_kind_names[CELL_KINDS] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                                 "all_to_all"};
const char *const cell_memory_names[CELL_MEMORIES] = {"plain", "library", "device"};

/* One library's side of the cell. */
struct side {
	const struct library *lib;
	coll_comm *comm;
	void *memory[2];
	float *in, *out;
	unsigned calls; /* made so far: the next root, what is written next */
	int times;      /* calls of a turn */
	int settling;   /* calls before the first */
};

struct bench {
	struct ranks *r;
	const struct cell *cell;
	const struct cell_how *how;
	size_t count, in, out; /* elements: of the call, of each buffer */
	void *plain[2];
	float *host; /* what is written to buffers and read from them by checks */
	char *pool;  /* see mix_pages() */
	uint64_t random;
	struct side side[2];
};

/*
 * A copy of the file, in memory of this process: its code lies in other pages in each process. Where the pages of a
 * file lie, which stay while the machine has memory, made one of two equal libraries 1.1 times as fast for many
 * processes.
 */
static void *load_copy(const char *path, char *why, size_t len_bytes)
{
	const int from = open(path, O_RDONLY | O_CLOEXEC), to = memfd_create("versus", MFD_CLOEXEC);
	char name[64];
	struct stat st;
	void *lib = NULL;
	off_t done = 0;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", to);
	snprintf(why, len_bytes, "%s: cannot be read", path);
	if (from >= 0 && to >= 0 && fstat(from, &st) == 0) {
		while (done < st.st_size && sendfile(to, from, NULL, (size_t)(st.st_size - done)) > 0)
			done = lseek(from, 0, SEEK_CUR);
		/* Local: neither of the two is found by the other, nor by name. */
		if (done == st.st_size && !(lib = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
			snprintf(why, len_bytes, "%s: %s", path, dlerror());
	}
	if (from >= 0)
		close(from);
	/* The other is kept: a library loaded next must not have the same name. */
	return lib;
}

bool library_load(struct library *l, const char *label, const char *path, bool quiet)
{
	char why[1024];
	void *lib = load_copy(path, why, sizeof(why));
	const char *missing = NULL;

	l->label = label;
	if (!lib) {
		if (!quiet)
			fprintf(stderr, "versus: %s library: %s\n", label, why);
		return false;
	}
#define LIBRARY_FIND(name)                                                 \
	if (!(*(void **)&l->name = dlsym(lib, "coll_" #name)) && !missing) \
		missing = "coll_" #name;
	LIBRARY_CALLS(LIBRARY_FIND)
	*(void **)&l->mem_alloc_on = dlsym(lib, "coll_mem_alloc_on");
	if (missing && !quiet)
		fprintf(stderr, "versus: %s library: %s has no %s\n", label, path, missing);
	return !missing;
}

static void describe(const struct bench *b, const struct side *s, char *text, size_t len_bytes)
{
	snprintf(text, len_bytes, "versus: %s library, rank %d: %s of %zu bytes, %s buffers", s->lib->label, b->r->rank,
	         cell_kind_names[b->cell->kind], b->cell->len_bytes, cell_memory_names[b->cell->memory]);
}

static int failed(const struct bench *b, const struct side *s, const coll_comm *comm, const char *what)
{
	char text[256];

	describe(b, s, text, sizeof(text));
	fprintf(stderr, "%s: %s%s\n", text, what, s->lib->last_error(comm)->message);
	return 1;
}

/* ---- Communicators and buffers -------------------------------------------- */

/* Elements of a call, of its input and of its output; a block has one at least. */
static void size_up(struct bench *b)
{
	const size_t n = (size_t)b->r->size, floats = b->cell->len_bytes / sizeof(float);
	const size_t vector = floats ? floats : 1, block = floats / n ? floats / n : 1;

	switch (b->cell->kind) {
	case ALL_GATHER: b->count = b->in = block, b->out = n * block; break;
	case REDUCE_SCATTER: b->count = b->out = block, b->in = n * block; break;
	case ALL_TO_ALL: b->count = block, b->in = b->out = n * block; break;
	default: b->count = b->in = b->out = vector; break;
	}
}

/* A setting of the old side alone: read when a communicator is created. */
static void set(const struct bench *b, const struct side *s, bool on)
{
	const char *setting = s == &b->side[0] ? b->how->old_setting : NULL;
	char name[64];

	if (!setting)
		return;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(setting, "="), setting);
	if ((on ? setenv(name, strchr(setting, '=') + 1, 1) : unsetenv(name)) != 0)
		perror("versus: setting of the old library");
}

static int create(struct bench *b, struct side *s)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status status;

	cfg.struct_size = offsetof(coll_config, interrupt); /* which builds from before that member read too */
	cfg.rank = b->r->rank;
	cfg.size = b->r->size;
	cfg.exchange = ranks_exchange;
	cfg.exchange_arg = b->r;
	if (b->cell->memory == DEVICE) {
		cfg.struct_size = sizeof(cfg);
		cfg.device = "cuda";
	}
	s->memory[0] = s->memory[1] = NULL;
	set(b, s, true);
	status = s->lib->comm_create(&s->comm, &cfg);
	set(b, s, false);
	return status == COLL_OK ? 0 : failed(b, s, NULL, "creation: ");
}

/* Copy into a buffer, or out of one. 0, or 1 after a message. */
static int put(const struct bench *b, float *to, const float *from, size_t floats)
{
	if (b->cell->memory != DEVICE)
		memcpy(to, from, floats * sizeof(float));
	else if (perf_device_write(to, from, floats * sizeof(float)) != COLL_OK)
		return fprintf(stderr, "versus: device memory cannot be written\n") != 0;
	return 0;
}

static int get(const struct bench *b, float *to, const float *from, size_t floats)
{
	if (b->cell->memory != DEVICE)
		memcpy(to, from, floats * sizeof(float));
	else if (perf_device_read(to, from, floats * sizeof(float)) != COLL_OK)
		return fprintf(stderr, "versus: device memory cannot be read\n") != 0;
	return 0;
}

static float *allocate_on_device(struct bench *b, struct side *s, int which, size_t floats)
{
	if (!s->lib->mem_alloc_on) {
		fprintf(stderr, "versus: %s library: has no coll_mem_alloc_on\n", s->lib->label);
		return NULL;
	}
	if (s->lib->mem_alloc_on(s->comm, &s->memory[which], floats * sizeof(float), COLL_MEM_DEVICE) != COLL_OK) {
		failed(b, s, s->comm, "coll_mem_alloc_on: ");
		return NULL;
	}
	memset(b->host, 0, floats * sizeof(float));
	return put(b, s->memory[which], b->host, floats) == 0 ? s->memory[which] : NULL;
}

/* A buffer: in the first's memory where both use the same. NULL: none to be had, which is told. */
static float *allocate(struct bench *b, struct side *s, int which, size_t floats)
{
	const size_t align = floats * sizeof(float) < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES;
	const size_t bytes = (floats * sizeof(float) + align - 1) / align * align;
	void *p = b->plain[which];

	if (b->cell->memory == DEVICE)
		return allocate_on_device(b, s, which, floats);
	if (b->cell->memory == LIBRARY) {
		if (s->lib->mem_alloc(s->comm, &s->memory[which], bytes + align) != COLL_OK) {
			failed(b, s, s->comm, "coll_mem_alloc: ");
			return NULL;
		}
		p = (char *)s->memory[which] + (align - (uintptr_t)s->memory[which] % align) % align;
	} else if (p) {
		return p;
	} else if (posix_memalign(&p, align, bytes) == 0) {
		b->plain[which] = p;
	}
	if (!p) {
		fprintf(stderr, "versus: no memory for %zu bytes\n", bytes);
		return NULL;
	}
	memset(p, 0, bytes);
	return p;
}

static int make_buffers(struct bench *b, struct side *s)
{
	const size_t mine = (size_t)b->r->rank * b->count;

	if (b->how->in_place) {
		if (!(s->in = s->out = allocate(b, s, 0, b->in > b->out ? b->in : b->out)))
			return 1;
		if (b->cell->kind == ALL_GATHER)
			s->in += mine;
		if (b->cell->kind == REDUCE_SCATTER)
			s->out += mine;
		return 0;
	}
	s->in = allocate(b, s, 0, b->in);
	s->out = s->in ? allocate(b, s, 1, b->out) : NULL;
	return s->out ? 0 : 1;
}

static int destroy(struct bench *b, struct side *s)
{
	for (int i = 0; i < 2 && b->cell->memory != PLAIN && s->comm; i++)
		if (s->lib->mem_free(s->comm, s->memory[i]) != COLL_OK)
			return failed(b, s, s->comm, "coll_mem_free: ");
	return s->lib->comm_destroy(&s->comm) == COLL_OK ? 0 : failed(b, s, NULL, "end: ");
}

/*
 * Mix the pages that the kernel gives next. It hands out again what was freed last: without this a library would get
 * the same pages, good or bad, for many communicators.
 */
static void mix_pages(struct bench *b)
{
	if (!b->pool) {
		b->pool =
		        mmap(NULL, POOL_PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (b->pool == MAP_FAILED) {
			b->pool = NULL;
			return;
		}
		madvise(b->pool, POOL_PAGES * PAGE_BYTES, MADV_NOHUGEPAGE);
		b->random = ranks_now_ns() + (uint64_t)b->r->rank;
	}
	for (int i = 0; i < POOL_PAGES; i++)
		((volatile char *)b->pool)[i * PAGE_BYTES] = 1;
	for (int i = 0; i < POOL_PAGES / 2; i++) {
		b->random = b->random * 6364136223846793005U + 1442695040888963407U;
		madvise(b->pool + (b->random >> 33) % POOL_PAGES * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED);
	}
}

/* New communicators and buffers for both sides. */
static int renew(struct bench *b, int first)
{
	for (int k = 0; k < 2; k++)
		if (destroy(b, &b->side[first ^ k]) != 0)
			return 1;
	mix_pages(b);
	for (int k = 0; k < 2; k++)
		if (create(b, &b->side[first ^ k]) != 0 || make_buffers(b, &b->side[first ^ k]) != 0)
			return 1;
	return 0;
}

/* ---- Calls ---------------------------------------------------------------- */

static coll_status call_once(const struct bench *b, struct side *s, unsigned number)
{
	const struct library *l = s->lib;

	switch (b->cell->kind) {
	case ALL_REDUCE: return l->all_reduce(s->in, s->out, b->count, COLL_F32, COLL_SUM, s->comm, NULL);
	case BROADCAST:
		return l->broadcast(s->in, s->out, b->count, COLL_F32, (int)(number % (unsigned)b->r->size), s->comm,
		                    NULL);
	case ALL_GATHER: return l->all_gather(s->in, s->out, b->count, COLL_F32, s->comm, NULL);
	case REDUCE_SCATTER: return l->reduce_scatter(s->in, s->out, b->count, COLL_F32, COLL_SUM, s->comm, NULL);
	default: return l->all_to_all(s->in, s->out, b->count, COLL_F32, s->comm, NULL);
	}
}

static void touch(const struct bench *b, const struct side *s, unsigned number)
{
	const float value = (float)(1 + number % 8);

	if (b->cell->memory == DEVICE ||
	    (b->cell->kind == BROADCAST && (int)(number % (unsigned)b->r->size) != b->r->rank))
		return;
	for (size_t i = 0; i < b->in; i++)
		s->in[i] = value;
}

static bool touches_outside(const struct bench *b)
{
	return b->how->touch && b->cell->len_bytes > TOUCH_INSIDE_BYTES;
}

/* Calls, timed or not. *spent_ns: what they took at this rank, where each is timed alone. 0 or 1. */
static int run(const struct bench *b, struct side *s, int times, uint64_t *spent_ns)
{
	const bool outside = touches_outside(b), inside = b->how->touch && !outside;
	coll_status status = COLL_OK;

	*spent_ns = 0;
	for (int i = 0; i < times && status == COLL_OK; i++, s->calls++) {
		uint64_t begin = 0;

		if (outside) {
			touch(b, s, s->calls);
			ranks_meet(b->r);
			begin = ranks_now_ns();
		} else if (inside) {
			touch(b, s, s->calls);
		}
		status = call_once(b, s, s->calls);
		if (outside)
			*spent_ns += ranks_now_ns() - begin;
	}
	return status == COLL_OK ? 0 : failed(b, s, s->comm, "");
}

/* The seconds of so many calls, the same at all ranks. */
static int time_calls(const struct bench *b, struct side *s, int times, double *seconds)
{
	uint64_t begin, spent;
	int status;

	ranks_meet(b->r);
	begin = ranks_now_ns();
	status = run(b, s, times, &spent);
	if (status == 0)
		*seconds = touches_outside(b) ? ranks_span(b->r, 0, spent) : ranks_span(b->r, begin, ranks_now_ns());
	return status;
}

/* ---- Results -------------------------------------------------------------- */

/* Small whole numbers: any order of summing them gives the same. */
static float pattern(int rank, size_t i, int seed)
{
	return (float)(((uint32_t)i * 2654435761U >> 25) + (uint32_t)(3 * rank + seed));
}

static float pattern_sum(int size, size_t i, int seed)
{
	float sum = 0;

	for (int k = 0; k < size; k++)
		sum += pattern(k, i, seed);
	return sum;
}

/* What element i of block `block` of the output must be. */
static float wanted(const struct bench *b, int block, size_t i, int seed, int root)
{
	const size_t mine = (size_t)b->r->rank * b->count;

	switch (b->cell->kind) {
	case ALL_REDUCE: return pattern_sum(b->r->size, i, seed);
	case BROADCAST: return pattern(root, i, seed);
	case ALL_GATHER: return pattern(block, i, seed);
	case REDUCE_SCATTER: return pattern_sum(b->r->size, mine + i, seed);
	default: return pattern(block, mine + i, seed);
	}
}

/* One call on fresh data, every element of its result. The host's copy is both input and output, one after the other.
 */
static int check(const struct bench *b, struct side *s, int seed)
{
	const unsigned number = s->calls++;
	const int root = (int)(number % (unsigned)b->r->size);
	size_t wrong = 0, first = 0;
	float *x = b->host;
	char text[256];

	for (size_t i = 0; i < b->out; i++)
		x[i] = -1;
	if (put(b, s->out, x, b->out) != 0)
		return 1;
	for (size_t i = 0; i < b->in; i++)
		x[i] = pattern(b->r->rank, i, seed);
	if ((b->cell->kind != BROADCAST || root == b->r->rank) && put(b, s->in, x, b->in) != 0)
		return 1;
	if (call_once(b, s, number) != COLL_OK)
		return failed(b, s, s->comm, "");
	if (get(b, x, s->out, b->out) != 0)
		return 1;
	for (size_t block = 0, at = 0; at < b->out; block++)
		for (size_t i = 0; i < b->count; i++, at++)
			if (x[at] != wanted(b, (int)block, i, seed, root) && wrong++ == 0)
				first = at;
	if (wrong == 0)
		return 0;
	describe(b, s, text, sizeof(text));
	fprintf(stderr, "%s: wrong result: %zu of %zu elements, the first is number %zu\n", text, wrong, b->out, first);
	return 1;
}

static int check_both(struct bench *b, int seed)
{
	for (int k = 0; k < 2; k++) {
		if (check(b, &b->side[k], seed + k) != 0)
			return 1;
		ranks_meet(b->r);
	}
	/* In place a sum grows from call to call; nothing does not. */
	for (int k = 0; k < 2 && b->how->in_place; k++) {
		const struct side *s = &b->side[k];

		memset(b->host, 0, (b->in > b->out ? b->in : b->out) * sizeof(float));
		if (put(b, s->in < s->out ? s->in : s->out, b->host, b->in > b->out ? b->in : b->out) != 0)
			return 1;
	}
	return 0;
}

/* ---- Times ---------------------------------------------------------------- */

/* Seconds of a call, after some that pay for pages that are touched for the first time. */
static int time_call(const struct bench *b, struct side *s, double *seconds)
{
	uint64_t unused;

	if (run(b, s, 2, &unused) != 0)
		return 1;
	for (int times = 1;; times *= 2) {
		if (time_calls(b, s, times, seconds) != 0)
			return 1;
		if (*seconds >= b->how->turn_s / 2 || times >= CALLS_MAX) {
			*seconds /= times;
			return 0;
		}
	}
}

/* Find out how many calls a turn has: the same for both, unless one is far slower. */
static int count_calls(struct bench *b, int first)
{
	double call_s[2], least;

	for (int k = 0; k < 2; k++)
		if (time_call(b, &b->side[first ^ k], &call_s[first ^ k]) != 0)
			return 1;
	least = call_s[0] < call_s[1] ? call_s[0] : call_s[1];
	for (int k = 0; k < 2; k++) {
		struct side *s = &b->side[k];
		const double s_of_call = call_s[k] < 4 * least ? least : call_s[k];

		s->times = (int)(1.1 * b->how->turn_s / s_of_call) + 1;
		s->settling = (int)(s->times * SETTLING_PART) + SETTLING_CALLS;
		if (s->settling * s_of_call > SETTLING_S)
			s->settling = (int)(SETTLING_S / s_of_call) + 1;
	}
	return 0;
}

/* Calls of both that are not timed, until each has chosen how it makes them. */
static int settle(struct bench *b, int first)
{
	uint64_t unused;

	for (int k = 0; k < 2; k++)
		if (run(b, &b->side[first ^ k], b->side[first ^ k].settling, &unused) != 0)
			return 1;
	return 0;
}

static int turn(const struct bench *b, struct side *s, double *seconds)
{
	uint64_t unused;

	if (run(b, s, (int)(s->times * WARM_PART) + 1, &unused) != 0 || time_calls(b, s, s->times, seconds) != 0)
		return 1;
	*seconds /= s->times;
	return 0;
}

/* Seconds of a call of each in its fastest turn; A B B A A B B A or the other way round. */
static int measure(struct bench *b, int number, double best[2])
{
	/* A communicator with a device takes a second to make. */
	const bool is_short = b->cell->len_bytes <= SHORT_BYTES && b->cell->memory != DEVICE;
	const int turns = is_short ? SHORT_TURNS : LONG_TURNS;

	for (int t = 0; t < turns; t++) {
		const int first = (number + t) % 2;

		if ((is_short && renew(b, first) != 0) || ((is_short || t == 0) && settle(b, first) != 0))
			return 1;
		for (int k = 0; k < 2; k++) {
			double seconds;

			if (turn(b, &b->side[first ^ k], &seconds) != 0)
				return 1;
			if (t == 0 || seconds < best[first ^ k])
				best[first ^ k] = seconds;
		}
	}
	return 0;
}

void cell_shift(int rank, const struct cell_part *part)
{
	const size_t number = (size_t)(part->block * CELL_SHARES + part->share) * 7 + (size_t)rank * 3;

	/* Kept until the process ends. */
	if (mmap(NULL, (1 + number * 37 % 1021) * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
	            MAP_FAILED ||
	    sbrk((intptr_t)(number * 61 % 251 * 16)) == (void *)-1)
		fprintf(stderr, "versus: addresses are not shifted\n");
}

int cell_measure(struct ranks *r, const struct library lib[2], const struct cell *cell, const struct cell_how *how,
                 const struct cell_part *part, double seconds[2])
{
	struct bench b = {.r = r, .cell = cell, .how = how, .side = {{.lib = &lib[0]}, {.lib = &lib[1]}}};
	const bool checks = part->block == 0 && part->share == 0;
	const int number = part->block + part->share;

	size_up(&b);
	b.host = malloc((b.in > b.out ? b.in : b.out) * sizeof(float));
	if (!b.host) {
		fprintf(stderr, "versus: no memory for %zu bytes\n", (b.in > b.out ? b.in : b.out) * sizeof(float));
		return 1;
	}
	if (renew(&b, number % 2) != 0 || (checks && check_both(&b, 1) != 0) || count_calls(&b, number % 2) != 0 ||
	    measure(&b, number, seconds) != 0 || (checks && check_both(&b, 5) != 0))
		return 1;
	for (int k = 0; k < 2; k++) {
		if (destroy(&b, &b.side[k]) != 0)
			return 1;
		free(b.plain[k]);
	}
	free(b.host);
	return 0;
}
