/*
 * coll_comm_shrink(): ranks are killed, and the others agree who is left and go on, on one host and with each rank on a
 * host of its own by name. Ranks are processes.
 *
 * usage: shrink shm|tcp|mixed (mixed: each rank on another host by name) [SEED]
 */
#include "processes.h"

#include "base/hash.h"

enum { SIZE = 5, GENERATIONS = 8, PATIENCE_MS = 20000, SHORT_MS = 1500, RANDOM_RUNS = 6 };

struct shared {
	struct processes processes;
	_Atomic uint64_t list[GENERATIONS]; /* what a rank got first, as bits of ranks of the job; 0: none yet */
	atomic_int struck;
};

static struct shared *shared;
static uint64_t seed = 1;

PROGRAM(shrink, "shm|tcp|mixed [SEED]")
{
	if (argc < 2)
		return -1;
	shared = processes_begin(argv[1], sizeof(*shared));
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	return argc > 2 ? 3 : 2;
}

struct killed {
	unsigned ranks; /* bits */
	int after;      /* calls */
};

static bool in(unsigned ranks, int r)
{
	return ranks >> r & 1;
}

static unsigned bits_of(const int *ranks, int n)
{
	unsigned bits = 0;

	for (int i = 0; i < n; i++)
		bits |= 1u << ranks[i];
	return bits;
}

static void die(void)
{
	raise(SIGKILL);
}

static coll_status sum_of(coll_comm *comm, int *sum)
{
	const int one = 1;

	return coll_all_reduce(&one, sum, 1, COLL_I32, COLL_SUM, comm, NULL);
}

/* Until it fails; the victims die on their way. */
static void call_until_failure(coll_comm *comm, int rank, const struct killed *k)
{
	coll_status st = COLL_OK;
	int sum;

	for (int i = 0; st == COLL_OK; i++) {
		if (in(k->ranks, rank) && i == k->after)
			die();
		st = sum_of(comm, &sum);
	}
}

static coll_status shrink_again(coll_comm *comm, coll_comm **next, int *lost, int *nlost)
{
	const uint64_t until_ns = coll_clock_ns() + PATIENCE_MS * UINT64_C(1000000);
	coll_status st;

	do
		st = coll_comm_shrink(comm, next, lost, nlost);
	while (st == COLL_AGAIN && coll_clock_ns() < until_ns);
	return st;
}

/* All that are left of the job have one list in each generation. */
static void same_list(int generation, unsigned living)
{
	uint64_t first = 0;

	if (!atomic_compare_exchange_strong(&shared->list[generation], &first, living))
		MUST(first == living, "generation %d: list %x, another rank has %x", generation, living,
		     (unsigned)first);
}

static void expect(coll_comm *comm, int rank, int size)
{
	int sum = 0;

	MUST(coll_comm_size(comm) == size && coll_comm_rank(comm) == rank, "rank %d of %d, not %d of %d",
	     coll_comm_rank(comm), coll_comm_size(comm), rank, size);
	for (int i = 0; i < 3; i++)
		MUST(sum_of(comm, &sum) == COLL_OK && sum == size, "call %d: sum %d: %s", i, sum,
		     coll_last_error(comm)->message);
}

static int place_of(unsigned living, int rank)
{
	return __builtin_popcount(living & ((1u << rank) - 1));
}

/* ---- Known victims ---- */

static void survive(const void *arg, int rank)
{
	const struct killed *k = arg;
	coll_comm *comm = processes_world(rank, SIZE, rank, NULL), *next = NULL;
	const unsigned living = ((1u << SIZE) - 1) & ~k->ranks;
	int lost[SIZE], nlost = -1;
	coll_status st;

	processes_meet(SIZE);
	call_until_failure(comm, rank, k);
	st = shrink_again(comm, &next, lost, &nlost);
	MUST(st == COLL_OK, "shrink: %d %s", (int)st, coll_last_error(NULL)->message);
	if (st != COLL_OK)
		_exit(1);
	MUST(bits_of(lost, nlost) == k->ranks, "lost %x, not %x", bits_of(lost, nlost), k->ranks);
	same_list(0, living);
	expect(next, place_of(living, rank), __builtin_popcount(living));
	MUST(coll_comm_shrink(comm, &next, NULL, NULL) == COLL_ERR_ARGUMENT, "shrunk twice");
	MUST(coll_comm_destroy(&next) == COLL_OK, "destroy: %s", coll_last_error(NULL)->message);
	coll_comm_destroy(&comm);
	_exit(0);
}

static void run_killed(const struct killed *k)
{
	pid_t pids[MEETING_RANKS_MAX];

	processes_start(pids, SIZE, survive, k);
	for (int r = 0; r < SIZE; r++) {
		int status = 0;

		if (!in(k->ranks, r))
			continue;
		CHECK(waitpid(pids[r], &status, 0) == pids[r] && WIFSIGNALED(status), "the victim %d: %x", r,
		      (unsigned)status);
		pids[r] = 0;
	}
	processes_reap(pids, SIZE, -1);
}

TEST(shrink, one_is_killed)
{
	run_killed(&(struct killed){.ranks = 1u << 2, .after = 3});
}

TEST(shrink, rank_0_is_killed)
{
	run_killed(&(struct killed){.ranks = 1u << 0, .after = 3});
}

TEST(shrink, two_are_killed_at_once)
{
	run_killed(&(struct killed){.ranks = 1u << 0 | 1u << 3, .after = 3});
}

/* On one host it is known what those that ended had agreed to; from other hosts more than half must answer. */
static void one_of_five(const void *arg, int rank)
{
	const struct killed *k = arg;
	coll_comm *comm = processes_world(rank, SIZE, rank, NULL), *next = NULL;
	const bool apart = strcmp(transport, "mixed") == 0;
	coll_status st;

	processes_meet(SIZE);
	call_until_failure(comm, rank, k);
	MUST(coll_comm_set_timeout(comm, apart ? SHORT_MS : PATIENCE_MS, -1) == COLL_OK, "set_timeout");
	st = coll_comm_shrink(comm, &next, NULL, NULL);
	MUST(st == (apart ? COLL_AGAIN : COLL_OK), "shrink: %d %s", (int)st, coll_last_error(NULL)->message);
	if (st == COLL_OK)
		expect(next, 0, 1);
	coll_comm_destroy(&next);
	coll_comm_destroy(&comm);
	_exit(0);
}

static void run_all_but_one(void (*body)(const void *arg, int rank))
{
	const struct killed k = {.ranks = 0x1d, .after = 3}; /* all but rank 1 */
	pid_t pids[MEETING_RANKS_MAX];

	processes_start(pids, SIZE, body, &k);
	for (int r = 0; r < SIZE; r++)
		if (in(k.ranks, r)) {
			waitpid(pids[r], NULL, 0);
			pids[r] = 0;
		}
	processes_reap(pids, SIZE, -1);
}

TEST(shrink, four_of_five_are_killed)
{
	run_all_but_one(one_of_five);
}

/* ---- A communicator that has not failed ---- */

TEST_OF_PROCESSES(shrink, nobody_is_killed, SIZE)
{
	coll_comm *comm = processes_world(rank, SIZE, rank, NULL), *next = NULL;
	int nlost = -1, sum;
	coll_status st;

	processes_meet(SIZE);
	/* Others may be through with it, and shrink. */
	st = sum_of(comm, &sum);
	MUST(st == COLL_OK || st == COLL_ERR_ABORTED, "the first call: %s", coll_last_error(comm)->message);
	/* Those that are in a call of it come out, and shrink too. */
	if (rank % 2)
		while (sum_of(comm, &sum) == COLL_OK)
			;
	MUST(shrink_again(comm, &next, NULL, &nlost) == COLL_OK, "shrink: %s", coll_last_error(NULL)->message);
	MUST(nlost == 0, "%d lost", nlost);
	MUST(sum_of(comm, &sum) == COLL_ERR_ABORTED && strstr(coll_last_error(comm)->message, "shrunk"),
	     "the old one: %s", coll_last_error(comm)->message);
	expect(next, rank, SIZE);
	coll_comm_destroy(&next);
	coll_comm_destroy(&comm);
	_exit(0);
}

/* ---- Random deaths, also while the others agree ---- */

struct random_run {
	uint64_t seed;
};

/* When a rank dies after the first one, in microseconds; 0: it lives. */
static unsigned death_of(const struct random_run *run, int rank)
{
	struct coll_rng r = {run->seed};
	unsigned after[SIZE] = {0};

	after[coll_rng_below(&r, SIZE)] = 1;
	for (int i = 0; i < 2; i++)
		after[coll_rng_below(&r, SIZE)] = 1 + coll_rng_below(&r, 40000);
	return after[rank];
}

static void dies(int ignored)
{
	(void)ignored;
	die();
}

static void random_rank(const void *arg, int rank)
{
	const struct random_run *run = arg;
	coll_comm *comm = processes_world(rank, SIZE, rank, NULL), *next = NULL;
	const unsigned after_us = death_of(run, rank);
	int member[SIZE] = {0, 1, 2, 3, 4}, sum = 0, lost[SIZE], nlost, generation = 0;

	signal(SIGALRM, dies);
	processes_meet(SIZE);
	if (after_us)
		ualarm(after_us + 2000, 0);
	/* Until nobody dies any more: the last one is whole. */
	for (int calls = 0; calls < 300;) {
		unsigned living = 0;
		coll_status st = sum_of(comm, &sum);
		int n = 0;

		if (st == COLL_OK) {
			usleep(500);
			calls++;
			continue;
		}
		calls = 0;
		st = shrink_again(comm, &next, lost, &nlost);
		MUST(st == COLL_OK, "shrink %d: %d %s", generation, (int)st, coll_last_error(NULL)->message);
		if (st != COLL_OK || generation == GENERATIONS - 1)
			_exit(1);
		for (int r = 0; r < coll_comm_size(comm); r++)
			if (!in(bits_of(lost, nlost), r))
				member[n++] = member[r];
		for (int i = 0; i < n; i++)
			living |= 1u << member[i];
		same_list(generation++, living);
		coll_comm_destroy(&comm);
		comm = next;
		next = NULL;
	}
	coll_comm_destroy(&comm);
	_exit(0);
}

TEST(shrink, random_deaths)
{
	for (int i = 0; i < RANDOM_RUNS; i++) {
		const struct random_run run = {coll_mix64(seed * 1000 + (uint64_t)i)};
		pid_t pids[MEETING_RANKS_MAX];
		unsigned victims = 0;

		for (int r = 0; r < SIZE; r++)
			victims |= (unsigned)(death_of(&run, r) != 0) << r;
		/* Of each rank on a host of its own more than half must live. */
		if (strcmp(transport, "mixed") == 0 && __builtin_popcount(victims) > 2)
			continue;
		processes_start(pids, SIZE, random_rank, &run);
		for (int r = 0; r < SIZE; r++)
			if (in(victims, r)) {
				waitpid(pids[r], NULL, 0);
				pids[r] = 0;
			}
		processes_reap(pids, SIZE, -1);
	}
}

/* ---- A partition, for shrink_parted.py: it cuts the cable between ranks 0, 2, 4 and 1, 3, and mends it ---- */

static void say(const char *what)
{
	printf("%s\n", what);
	fflush(stdout);
}

/* Three go on. Two get AGAIN while the cable is cut, and EXCLUDED behind that. */
static void parted_rank(const void *arg, int rank)
{
	const struct killed none = {0};
	const unsigned living = 1u << 0 | 1u << 2 | 1u << 4;
	coll_comm *comm = processes_world(rank, SIZE, rank % 2, NULL), *next = NULL;
	int again = 0;
	coll_status st;

	(void)arg;
	processes_meet(SIZE);
	if (rank == 0)
		say("ready");
	call_until_failure(comm, rank, &none);
	MUST(coll_comm_set_timeout(comm, SHORT_MS, -1) == COLL_OK, "set_timeout");
	while ((st = coll_comm_shrink(comm, &next, NULL, NULL)) == COLL_AGAIN && again < 40)
		if (again++ == 0 && rank == 1)
			say("again");
	MUST(st == (in(living, rank) ? COLL_OK : COLL_ERR_EXCLUDED), "shrink: %d %s", (int)st,
	     coll_last_error(NULL)->message);
	if (st == COLL_OK)
		expect(next, place_of(living, rank), 3);
	MUST(rank != 1 || again > 0, "excluded before the cable was mended");
	/* The others can ask only while somebody is left who answers. */
	if (rank == 0 && st == COLL_OK)
		say("going on");
	atomic_fetch_add(&shared->struck, 1);
	while (atomic_load(&shared->struck) < SIZE)
		usleep(1000);
	coll_comm_destroy(&next);
	coll_comm_destroy(&comm);
	_exit(0);
}

TEST(shrink, parted)
{
	if (!getenv("MEETING_HOSTS"))
		SKIP("shrink_parted.py runs it");
	processes_run(SIZE, parted_rank, NULL);
}

/* ---- Wrong use ---- */

TEST(shrink, wrong_use_is_refused)
{
	coll_comm *comm = NULL, *next = NULL;
	coll_config cfg = COLL_CONFIG_INIT;
	int status = 0;
	pid_t child;

	cfg.rank = 0;
	cfg.size = 1;
	CHECK(coll_comm_shrink(NULL, &next, NULL, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(NULL)->message, "communicator is NULL"), "%s", coll_last_error(NULL)->message);
	REQUIRE(coll_comm_create(&comm, &cfg) == COLL_OK);
	CHECK(coll_comm_shrink(comm, NULL, NULL, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(NULL)->message, "shrunk is NULL"), "%s", coll_last_error(NULL)->message);
	CHECK(coll_group_begin() == COLL_OK && coll_comm_shrink(comm, &next, NULL, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(NULL)->message, "inside a group"), "%s", coll_last_error(NULL)->message);
	CHECK(coll_group_end() == COLL_OK);
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(coll_comm_shrink(comm, &next, NULL, NULL) == COLL_ERR_ARGUMENT &&
		                      strstr(coll_last_error(NULL)->message, "forked")
		              ? 0
		              : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0, "in a child: %x", (unsigned)status);
	CHECK(coll_comm_shrink(comm, &next, NULL, NULL) == COLL_OK && next && coll_comm_size(next) == 1);
	coll_comm_destroy(&next);
	coll_comm_destroy(&comm);
}
