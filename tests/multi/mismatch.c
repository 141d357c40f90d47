/*
 * Calls that differ between ranks, every kind of difference (mismatch_cases.c) in every way
 * to make calls (mismatch_issue.c): one rank of N processes calls something else than the
 * others. Every rank must end with COLL_ERR_MISMATCH within 2 s, those that had returned at
 * their next call, with a message that names two ranks that differ and what each of them
 * called; and no call after the difference succeeds.
 *
 * usage: mismatch shm|tcp|mixed [CASE|all|some [MODE|all [SIZE|0 [TIMES]]]]
 *
 * some, the default: each case at one size in one mode, others from case to case. all:
 * everything. mixed: ranks 0 and 2 on one host, the others on another.
 */
#include "mismatch.h"
#include "processes.h"

enum { WARM_UP = 3, AFTER = 3, LIMIT_MS = 2000 };

struct shared {
	struct processes job;
	int after[RANKS_MAX]; /* calls that succeeded after the difference */
};

static struct shared *shared;
static float in[256], out[256];

static coll_status all_reduce(coll_comm *c, size_t count)
{
	return coll_all_reduce(in, out, count, COLL_F32, COLL_SUM, c, NULL);
}

static void add(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	for (size_t i = 0; i < count; i++)
		((float *)inout)[i] += ((const float *)left)[i];
}

/* ---- Ranks ---- */

/* All ranks begin at once, so that the time counts from there. */
static void line_up(int size)
{
	if (atomic_fetch_add(&processes->ready, 1) == size - 1)
		atomic_store(&processes->struck_ns, coll_clock_ns());
	while (atomic_load(&processes->struck_ns) == 0)
		usleep(100);
}

/* Never waits for anybody, or not for long: must be told all the same. */
static coll_status repeat(const struct caller *c, enum mode mode, const struct kase *k)
{
	const uint64_t until = coll_clock_ns() + 10000 * 1000000ull;
	coll_status st = COLL_OK;

	while (st == COLL_OK && coll_clock_ns() < until)
		st = mismatch_issue(c, mode, k->odd, k->nodd, k->turned);
	return st;
}

static coll_status make_calls(const struct caller *c, enum mode mode, const struct kase *k)
{
	if (k->pair && c->rank > 1)
		return COLL_OK;
	if (c->rank != (k->pair ? 1 : c->odd))
		return mismatch_issue(c, mode, k->most, k->nmost, false);
	return k->repeat ? repeat(c, mode, k) : mismatch_issue(c, mode, k->odd, k->nodd, k->turned);
}

/* One case, for all ranks. */
struct job {
	const struct kase *k;
	enum mode mode;
	int size, odd;
	bool last; /* the calls are the last of the job: who has returned destroys the communicator */
};

static void run_rank(const void *arg, int rank)
{
	const struct job *job = arg;
	const struct kase *k = job->k;
	const int size = job->size;
	struct caller c = {.rank = rank, .size = size, .odd = job->odd};
	coll_status st = COLL_OK;
	int after = -1;

	c.comm = processes_world(rank, size, rank % 2, NULL);
	for (int i = 0; st == COLL_OK && i < WARM_UP; i++)
		st = all_reduce(c.comm, 100);
	if (st == COLL_OK)
		st = coll_op_create(&c.own_op, c.comm, add, NULL, 1);
	line_up(size);
	if (st == COLL_OK)
		st = make_calls(&c, job->mode, k);
	if (st == COLL_OK && job->last) {
		processes_report(rank, coll_comm_destroy(&c.comm), NULL);
		_exit(0);
	}
	/* Whoever has returned hears of it now. */
	for (; st == COLL_OK && after < AFTER; after++)
		st = all_reduce(c.comm, 7);
	shared->after[rank] = after;
	if (st == COLL_OK) {
		processes_report(rank, coll_comm_destroy(&c.comm), NULL);
		_exit(0);
	}
	processes_report(rank, st, c.comm);
	coll_comm_destroy(&c.comm);
	_exit(0);
}

/* ---- Checks ---- */

/* Two ranks and their calls: "calls differ: rank A calls X, rank B calls Y". */
static void names_both(const struct kase *k, int rank, int odd, bool late, const char *message)
{
	const char *first = strstr(message, "calls differ: rank "), *second = first ? strstr(first, ", rank ") : NULL;
	int a = -1, b = -1;

	CHECK(first && second && sscanf(first, "calls differ: rank %d", &a) == 1 &&
	              sscanf(second, ", rank %d", &b) == 1,
	      "%s: rank %d: %s", k->name, rank, message);
	if (a < 0 || b < 0)
		return;
	char of_a[512];

	snprintf(of_a, sizeof(of_a), "%.*s", (int)(second - first), first);
	if (k->pair)
		odd = 1;
	CHECK(k->anybody ? a != b : (a == odd) != (b == odd), "%s: rank %d names ranks %d and %d, odd is %d: %s",
	      k->name, rank, a, b, odd, message);
	/* Who has not seen that frame has the lengths from sums. */
	CHECK(late || (strstr(of_a, a == odd ? k->odd_says : k->most_says) &&
	               strstr(second, b == odd ? k->odd_says : k->most_says)),
	      "%s: rank %d (odd is %d): %s", k->name, rank, odd, message);
}

/* One rank alone makes another collective call; of lengths only their two ends know. */
static bool has_minority(const struct kase *k, int size)
{
	return size > 2 && k->odd[0].kind < SEND && k->most[0].kind < SEND && !k->stray && !k->anybody &&
	       !k->most[0].blocks.by_pairs && !k->odd[0].blocks.by_pairs;
}

/* Of real processes one may be kept from running for longer than a rank waits before it logs. */
static void logged_once(const char *which, bool at_destroy)
{
#ifdef COLL_SIM_JOBS
	const int errors = atomic_load(&processes->errors);

	CHECK(getenv("VERBOSE") || errors == 1 || (at_destroy && errors == 0), "%s: %d ranks log an error", which,
	      errors);
#endif
}

static void one(const struct kase *k, enum mode mode, int size, int odd, bool last)
{
	const struct job job = {k, mode, size, odd, last};
	pid_t pids[RANKS_MAX];
	char which[200];

	processes_start(pids, size, run_rank, &job);
	for (int r = 0; r < size; r++) {
		const struct process_report *report = &processes->report[r];

		snprintf(which, sizeof(which), "%s %s: size %d odd %d: rank %d", k->name, mode_names[mode], size, odd,
		         r);
		CHECK(processes_reach(&report->done, 1), "%s hangs", which);
		const bool late = k->stray && (last || shared->after[r] == AFTER);

		CHECK(report->status == COLL_ERR_MISMATCH && (late || shared->after[r] <= k->stray),
		      "%s: status %d, %d calls succeeded after it: %s", which, report->status, shared->after[r],
		      report->message);
		if (report->status == COLL_ERR_MISMATCH) {
			names_both(k, r, odd, late, report->message);
			CHECK(!has_minority(k, size) || report->culprit == odd, "%s blames rank %d, odd is %d: %s",
			      which, report->culprit, odd, report->message);
			processes_in_time(report->ns, LIMIT_MS, which);
		}
	}
	processes_reap(pids, size, -1);
	logged_once(which, last || k->stray);
}

/* ---- What is run ---- */

static const struct kase *current;
static enum mode mode;
static int only_size;

/* Calls that make a communicator are not made in groups. */
static bool fits(const struct kase *k, enum mode m)
{
	if (k->behind)
		return m == STREAM || m == EVENT || m == ODD_STREAMS;
	if (k->blocking && m != BLOCKING && m != GROUP)
		return false;
	/* The message that is pending would be taken for the first of the case, and destroy waits for it. */
	if (m == PENDING)
		return k->most[0].kind < SEND && k->odd[0].kind < SEND && !k->stray;
	return (m != GROUP && m != STREAM_GROUP) || (k->most[0].kind != SPLIT && k->odd[0].kind != SPLIT);
}

static void all_sizes(void)
{
	for (int size = 2; size <= RANKS_MAX; size++) {
		if (only_size && size != only_size)
			continue;
		one(current, mode, size, size - 1, false);
		if (!current->pair)
			one(current, mode, size, 0, false);
	}
}

/* What the suite runs: every second case blocking, the others in another mode; on shm those
 * that are not on tcp. */
static void some_sizes(void)
{
	const int n = (int)(current - mismatch_cases) + (strcmp(transport, "shm") == 0), m = 1 + n / 2 % (MODES - 1);
	const enum mode usual = fits(current, BLOCKING) ? BLOCKING : STREAM;
	const bool usually = n % 2 == 0 || !fits(current, (enum mode)m);

	one(current, usually ? usual : (enum mode)m, 2 + n / 2 % (RANKS_MAX - 1), n / 3 % 2, false);
	/* What a message differs in is found where the next one is expected, and behind it comes none. */
	if (current->most[0].kind < SEND && current->odd[0].kind < SEND)
		one(current, usual, 2 + n / 2 % (RANKS_MAX - 1), n / 3 % 2, true);
}

static void all_modes(const char *which)
{
	const bool all = !which || strcmp(which, "all") == 0;

	for (int m = 0; m < MODES; m++) {
		char name[80];

		if (!(all || strcmp(which, mode_names[m]) == 0) || !fits(current, (enum mode)m))
			continue;
		mode = (enum mode)m;
		snprintf(name, sizeof(name), "%s %s", current->name, mode_names[m]);
		plain_run(transport, name, all_sizes);
	}
}

PROGRAM(mismatch, "TRANSPORT [some|all|CASE [MODE [RANKS [TIMES]]]]")
{
	const char *which = argc > 2 ? argv[2] : "some";
	const bool all = strcmp(which, "all") == 0, some = strcmp(which, "some") == 0;

	only_size = argc > 4 ? atoi(argv[4]) : 0;
	shared = processes_begin(argv[1], sizeof(*shared));
	for (int times = argc > 5 ? atoi(argv[5]) : 1; times > 0; times--)
		for (current = mismatch_cases; current < mismatch_cases + mismatch_ncases; current++) {
			if (some)
				plain_run(transport, current->name, some_sizes);
			else if (all || strcmp(which, current->name) == 0)
				all_modes(argc > 3 ? argv[3] : "all");
		}
	return argc;
}
