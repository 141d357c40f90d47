/*
 * Who is touched by a death: forked ranks with communicators that overlap; one rank is
 * killed. Those it is a member of fail and name it, by the rank it has there; the others
 * go on. Also while ranks are making and destroying communicators: every survivor ends,
 * in time, with an error that names the dead; the same at the end, where destroy tells it,
 * and in a child that the dead is no member of but that another member could not make.
 *
 * usage: members TRANSPORT [TEST [TIMES [SEED]]]
 */
#include "base/hash.h"
#include "processes.h"

enum { RANKS = 4, ROUNDS_MAX = 1000000, GRACE_MS = 2000 };

struct shared {
	struct processes job;
	atomic_int rounds[RANKS];
	atomic_int halves; /* ranks with a child that others could not make */
};

static struct shared *shared;
static int times = 6;
static uint64_t seed = 31;
static char hook[96];

static coll_comm *create(int rank)
{
	const char *more[] = {"COLL_ARRIVAL_TIMEOUT_MS=60000", hook[0] ? hook : NULL, NULL};

	return processes_world(rank, RANKS, 0, more);
}

static coll_status sum_up(coll_comm *comm)
{
	int32_t x = 1;
	coll_status st = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, NULL);

	MUST(st != COLL_OK || x == coll_comm_size(comm), "a wrong sum: %d of %d", x, coll_comm_size(comm));
	return st;
}

static void expect_sums(coll_comm *comm, int n, const char *name)
{
	for (int i = 0; comm && i < n; i++) {
		coll_status st = sum_up(comm);

		MUST(st == COLL_OK, "%s: %s", name, coll_last_error(comm)->message);
		if (st != COLL_OK)
			return;
	}
}

/* Calls until it fails: within the time promised after the death, and naming it so. */
static void expect_death(coll_comm *comm, int culprit, const char *text)
{
	coll_status st = COLL_OK;
	uint64_t late;

	if (!comm)
		return;
	while (st == COLL_OK)
		st = sum_up(comm);
	late = coll_clock_ns() - atomic_load(&processes->struck_ns);
	MUST(st == COLL_ERR_PEER_DEAD && coll_last_error(comm)->rank == culprit, "%d, rank %d: %s", st,
	     coll_last_error(comm)->rank, coll_last_error(comm)->message);
	MUST(strstr(coll_last_error(comm)->message, text), "no '%s' in: %s", text, coll_last_error(comm)->message);
	MUST(late < (uint64_t)2 * GRACE_MS * 1000000 + starved_ns(), "after %.3f s", (double)late * 1e-9);
}

/* ---- Overlapping groups ---- */

/* world = 0 1 2 3; a = 0 1 2; b = 3 2 (in this order); c = 0 1; d = another world. */
static void overlapping_rank(const void *arg, int rank)
{
	const int a_ranks[] = {0, 1, 2}, b_ranks[] = {3, 2}, c_ranks[] = {0, 1};
	coll_comm *world = create(rank), *a, *b, *c, *d, *late = NULL;

	MUST(coll_comm_create_from_ranks(world, a_ranks, 3, &a) == COLL_OK, "a");
	MUST(coll_comm_create_from_ranks(world, b_ranks, 2, &b) == COLL_OK, "b");
	MUST(coll_comm_create_from_ranks(world, c_ranks, 2, &c) == COLL_OK, "c");
	MUST(coll_comm_duplicate(world, &d) == COLL_OK, "d");
	expect_sums(a, 20, "a");
	expect_sums(b, 20, "b");
	expect_sums(c, 20, "c");
	expect_sums(d, 20, "d");
	processes_meet(RANKS);
	if (rank == 3) {
		usleep(20000); /* others are in calls by then, or not: both are met */
		atomic_store(&processes->struck_ns, coll_clock_ns());
		kill(getpid(), SIGKILL);
	}
	/* As many calls on both ranks: they stop together. */
	for (int32_t seen = 0; c && seen == 0;) {
		seen = atomic_load(&processes->struck_ns) != 0;
		MUST(coll_all_reduce(&seen, &seen, 1, COLL_I32, COLL_MAX, c, NULL) == COLL_OK, "c: %s",
		     coll_last_error(c)->message);
	}
	while (atomic_load(&processes->struck_ns) == 0)
		usleep(100);
	if (rank == 2)
		expect_death(b, 0, "rank 0 (rank 3 of the job)");
	expect_death(world, 3, "rank 3 on host");
	expect_sums(a, 500, "a after the death");
	expect_sums(c, 500, "c after the death");
	expect_death(d, 3, "rank 3 on host");
	/* Living members make more of their own. */
	if (a) {
		MUST(coll_comm_split(a, 0, -rank, &late) == COLL_OK, "late: %s", coll_last_error(a)->message);
		coll_comm_destroy(rank == 1 ? &world : &a);
		expect_sums(late, 100, "late");
		MUST(coll_comm_rank(late) == 2 - rank, "late: order");
	}
	coll_comm_destroy(&b);
	coll_comm_destroy(&late);
	coll_comm_destroy(&c);
	coll_comm_destroy(&a);
	coll_comm_destroy(&d);
	coll_comm_destroy(&world);
	exit(0);
}

TEST(members, only_members_are_touched)
{
	pid_t pids[RANKS];

	for (int i = 0; i < times; i++) {
		processes_start(pids, RANKS, overlapping_rank, NULL);
		processes_reap(pids, RANKS, 3);
	}
}

/* ---- Death while communicators come and go ---- */

/* Splits by a colour drawn alike, sums, ends: until something fails. The error must be
 * the death of the victim. Without it nothing may fail. */
static void going_rank(const void *arg, int rank)
{
	const int *number = arg;
	struct coll_rng rng = {seed * 977 + (uint64_t)*number};
	coll_comm *world = create(rank), *child = NULL, *failed = NULL;
	coll_status st = COLL_OK;

	processes_meet(RANKS);
	for (int i = 0; st == COLL_OK && i < ROUNDS_MAX; i++) {
		const uint32_t kind = coll_rng_below(&rng, 3), bits = coll_rng_below(&rng, 16);

		st = kind == 0 ? coll_comm_duplicate(world, &child)
		               : coll_comm_split(world, bits >> rank & 1, 0, &child);
		failed = st == COLL_OK ? NULL : world;
		if (st == COLL_OK && (kind == 1 || bits & 1))
			st = sum_up(child);
		if (st != COLL_OK && !failed)
			failed = child;
		else if (kind == 2 || st == COLL_OK)
			coll_comm_destroy(&child);
		atomic_fetch_add(&shared->rounds[rank], 1);
	}
	/* The parent has yet to note the time; when it killed nobody, it never will. */
	for (int i = 0; i < 50 && failed && atomic_load(&processes->struck_ns) == 0; i++)
		usleep(1000);
	processes_report(rank, st, failed);
	coll_comm_destroy(&child);
	coll_comm_destroy(&world);
	exit(0);
}

TEST(members, death_while_they_come_and_go)
{
	struct coll_rng rng = {seed};
	pid_t pids[RANKS];

	for (int i = 0; i < times; i++) {
		const int victim = (int)coll_rng_below(&rng, RANKS);
		const int after = 1 + (int)coll_rng_below(&rng, 60);

		processes_start(pids, RANKS, going_rank, &i);
		for (int k = 0; atomic_load(&shared->rounds[victim]) < after && k < 30000; k++)
			usleep(1000);
		processes_kill(pids, victim);
		processes_reap(pids, RANKS, victim);
		for (int r = 0; r < RANKS; r++) {
			const struct process_report *report = &processes->report[r];

			if (r == victim)
				continue;
			CHECK(report->done && report->status == COLL_ERR_PEER_DEAD &&
			              processes_named(report->message, victim),
			      "case %d, rank %d, %d dead: status %d: %s", i, r, victim, report->status,
			      report->message);
			processes_in_time(report->ns, GRACE_MS, report->message);
		}
	}
}

/* ---- The end ---- */

static void expect_told(coll_status st, int culprit, const char *text)
{
	const coll_error *e = coll_last_error(NULL);

	MUST(st == COLL_ERR_PEER_DEAD && e->status == st && e->rank == culprit && strstr(e->message, text),
	     "%d, rank %d: %s", st, e->rank, e->message);
}

/* Rank 3 dies where the others have nothing to do any more but to destroy. */
static void ending_rank(const void *arg, int rank)
{
	const int b_ranks[] = {3, 2}, c_ranks[] = {0, 1};
	coll_comm *world = create(rank), *b, *c;
	coll_status st;

	MUST(coll_comm_create_from_ranks(world, b_ranks, 2, &b) == COLL_OK, "b");
	MUST(coll_comm_create_from_ranks(world, c_ranks, 2, &c) == COLL_OK, "c");
	expect_sums(world, 5, "world");
	expect_sums(b, 5, "b");
	expect_sums(c, 5, "c");
	if (rank == 3)
		kill(getpid(), SIGKILL);
	MUST(coll_comm_destroy(&c) == COLL_OK, "c has no dead: %s", coll_last_error(NULL)->message);
	/* The first of two does not wait for long, and may know nothing yet. */
	if (rank == 2 && seed % 2) {
		st = coll_comm_destroy(&b);
		if (st != COLL_OK)
			expect_told(st, 0, "comm_destroy: rank 0 (rank 3 of the job)");
		expect_told(coll_comm_destroy(&world), 3, "comm_destroy: rank 3 on host");
	} else if (rank == 2) {
		st = coll_comm_destroy(&world);
		if (st != COLL_OK)
			expect_told(st, 3, "comm_destroy: rank 3 on host");
		expect_told(coll_comm_destroy(&b), 0, "comm_destroy: rank 0 (rank 3 of the job)");
	} else {
		expect_told(coll_comm_destroy(&world), 3, "comm_destroy: rank 3 on host");
	}
	MUST(!world, "world is still there");
	exit(0);
}

TEST(members, destroy_tells_who_died)
{
	pid_t pids[RANKS];

	for (int i = 0; i < times; i++, seed++) {
		processes_start(pids, RANKS, ending_rank, NULL);
		processes_reap(pids, RANKS, 3);
	}
}

/* Rank 1 is killed at a frame of the list's way around: some of the others may have their
 * child by then, in which it is not, and others may not. */
static void unborn_rank(const void *arg, int rank)
{
	const int ranks[] = {3, 0, 2}, culprit_here = -1;
	coll_comm *world = create(rank), *child = NULL;
	const coll_error *e;
	coll_status st = COLL_OK;

	while (st == COLL_OK) {
		coll_comm_destroy(&child);
		st = coll_comm_create_from_ranks(world, ranks, 3, &child);
		e = coll_last_error(world);
		if (st != COLL_OK || rank == 1) {
			MUST(rank == 1 || e->rank == 1, "rank %d: %s", e->rank, e->message);
			continue;
		}
		st = sum_up(child);
		e = coll_last_error(child);
		if (st != COLL_OK) {
			atomic_fetch_add(&shared->halves, 1);
			MUST(e->rank == culprit_here, "rank %d: %s", e->rank, e->message);
		}
	}
	MUST(st == COLL_ERR_PEER_DEAD && strstr(e->message, "rank 1 on host"), "%d: %s", st, e->message);
	coll_comm_destroy(&child);
	coll_comm_destroy(&world);
	exit(0);
}

TEST(members, a_child_that_some_could_not_make)
{
	int halves = 0;
	pid_t pids[RANKS];

	for (int frame = 0; frame < 2 * times; frame++) {
		snprintf(hook, sizeof(hook), "COLL_HOOK=delay:rank=1,us=2000;kill:rank=1,frame=%d", frame);
		processes_start(pids, RANKS, unborn_rank, NULL);
		processes_reap(pids, RANKS, 1);
		halves += atomic_load(&shared->halves) > 0;
	}
	hook[0] = 0;
	printf("     %d of %d deaths left a child that some had made\n", halves, 2 * times);
	CHECK(halves > 0 || times < 6);
}

PROGRAM(members, "TRANSPORT [TEST [TIMES [SEED]]]")
{
	if (argc > 3)
		times = atoi(argv[3]);
	if (argc > 4)
		seed = strtoull(argv[4], NULL, 0);
	shared = processes_begin(argv[1], sizeof(*shared));
	printf("seed %llu, %d times\n", (unsigned long long)seed, times);
	return 2;
}
