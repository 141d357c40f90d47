/*
 * Groups: communicators that their members make alone. Four forked ranks on one host or on several emulated ones: two
 * hundred groups and what they cost, unused and used, overlapping ones, equal members with different tags, lists that
 * differ, calls of the parent meanwhile, a member that never comes. Deaths: groups_random.c, members.c.
 *
 * usage: groups shm|tcp|mixed [PART-OF-A-TEST'S-NAME [TIMES]]
 */
#include "base/hash.h"
#include "core/comm.h"
#include "holdings.h"
#include "intra/region.h"
#include "processes.h"

enum { RANKS = 4, MANY = 200, GROUP_BYTES_MAX = 64 << 10 };

/* Sanitizers keep books of their own, and simulated ranks share one heap. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(COLL_SIM_JOBS)
enum { BYTES_COUNT = 0 };
#else
enum { BYTES_COUNT = 1 };
#endif

struct shared {
	struct processes job;
	atomic_int turn, told;
	_Atomic long kept_bytes[RANKS];
};

static struct shared *shared;
static const char *arrival = "60000";
static int times = 6;

static coll_comm *create(int rank)
{
	char limit[64];

	snprintf(limit, sizeof(limit), "COLL_ARRIVAL_TIMEOUT_MS=%s", arrival);
	return processes_world(rank, RANKS, rank / 2, (const char *[]){limit, NULL});
}

/* Who is in it in which order, and that its sums are right. ranks: of the job. */
static coll_status use(coll_comm *comm, const int *ranks, int n, int rank, size_t count)
{
	int32_t x[1000], mine = rank, all[RANKS], sum = 0;
	coll_status st = coll_all_gather(&mine, all, 1, COLL_I32, comm, NULL);

	MUST(coll_comm_size(comm) == n && ranks[coll_comm_rank(comm)] == rank, "rank %d of %d", coll_comm_rank(comm),
	     coll_comm_size(comm));
	for (int i = 0; i < n && st == COLL_OK; i++) {
		MUST(all[i] == ranks[i], "rank %d is %d, not %d", i, all[i], ranks[i]);
		sum += ranks[i] + 1;
	}
	for (size_t i = 0; i < count; i++)
		x[i] = rank + 1;
	if (st == COLL_OK)
		st = coll_all_reduce(x, x, count, COLL_I32, COLL_SUM, comm, NULL);
	for (size_t i = 0; i < count && st == COLL_OK; i++)
		MUST(x[i] == sum, "a sum is %d, not %d", x[i], sum);
	return st;
}

static bool in_list(const int *ranks, int n, int rank)
{
	for (int i = 0; i < n; i++)
		if (ranks[i] == rank)
			return true;
	return false;
}

/* A group that must come into being, or NULL on a rank that is not in it and makes no call. */
static coll_comm *group(coll_comm *parent, const int *ranks, int n, uint64_t tag)
{
	coll_comm *child = NULL;

	if (in_list(ranks, n, coll_comm_rank(parent)))
		MUST(coll_comm_create_group(parent, ranks, n, tag, &child) == COLL_OK, "tag %llu: %s",
		     (unsigned long long)tag, coll_last_error(parent)->message);
	return child;
}

static void expect_use(coll_comm *comm, const int *ranks, int n, int rank, size_t count)
{
	if (comm)
		MUST(use(comm, ranks, n, rank, count) == COLL_OK, "%s", coll_last_error(comm)->message);
}

/* ---- Ranks ---- */

static void leave(coll_comm **world)
{
	coll_comm_destroy(world);
	fflush(stdout);
	_exit(0);
}

/* ---- Every size, overlapping, nested ---- */

static const int lists[][RANKS] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {2, 0, 1}, {3, 1, 2}, {3, 2, 1, 0}, {0, 1, 2, 3}};
static const int lengths[] = {2, 2, 2, 2, 3, 3, 4, 4};
enum { LISTS = sizeof(lengths) / sizeof(lengths[0]) };

TEST_OF_PROCESSES(groups, overlapping_groups_of_every_size, RANKS)
{
	coll_comm *world = create(rank), *made[LISTS], *alone, *inner;
	const int reversed[] = {1, 0};

	for (int i = 0; i < LISTS; i++)
		made[i] = group(world, lists[i], lengths[i], 5);
	for (int round = 0; round < 5; round++)
		for (int i = 0; i < LISTS; i++)
			expect_use(made[i], lists[i], lengths[i], rank, 1 + 100 * (size_t)round);
	alone = group(world, &rank, 1, 0);
	expect_use(alone, &rank, 1, rank, 10);
	/* Of a group; its ranks are those of the group. */
	if (made[1]) {
		const int ranks[] = {2, 1};

		inner = group(made[1], reversed, 2, 0);
		expect_use(inner, ranks, 2, rank, 10);
		coll_comm_destroy(&inner);
	}
	coll_comm_destroy(&alone);
	/* In an order of this rank's own, the parent among them. */
	for (int i = 0; i < LISTS; i++) {
		if (i == rank)
			coll_comm_destroy(&world);
		coll_comm_destroy(&made[rank % 2 ? i : LISTS - 1 - i]);
	}
	leave(&world);
}

/* ---- Tags ---- */

TEST_OF_PROCESSES(groups, equal_members_with_equal_and_other_tags, RANKS)
{
	const int all[] = {0, 1, 2, 3}, pair[] = {1, 3};
	coll_comm *world = create(rank), *made[3 * RANKS] = {NULL};
	uint64_t ids[3 * RANKS];

	/* Equal members, one tag again and again, and others: each is a communicator of its own. */
	for (int i = 0; i < 3 * RANKS; i++) {
		made[i] = group(world, all, RANKS, (uint64_t)(i % 3) << 40);
		ids[i] = made[i] ? made[i]->id : 0;
		for (int k = 0; k < i; k++)
			MUST(ids[k] != ids[i], "%d and %d have one id", k, i);
		coll_comm_destroy(&made[i % 2 ? i : i / 2]);
	}
	for (int i = 0; i < 3 * RANKS; i++) {
		expect_use(made[i], all, RANKS, rank, 20);
		coll_comm_destroy(&made[i]);
	}
	/* The same number of calls of the parent on all ranks, but some made groups meanwhile. */
	for (int i = 0; i < 10; i++) {
		made[0] = group(world, pair, 2, 1);
		expect_use(made[0], pair, 2, rank, 3);
		coll_comm_destroy(&made[0]);
		expect_use(world, all, RANKS, rank, 3);
	}
	leave(&world);
}

/* Long messages to a rank that may still be in the creation, and numbers its ranks anew. */
static void early_message_rank(const void *arg, int rank)
{
	const int order[] = {3, 1, 2, 0};
	coll_comm *world = create(rank), *made;
	int32_t x[5000] = {0}, y[5000] = {0};

	for (int round = 0; round < 60; round++) {
		coll_message_info info = {.source = -1};
		coll_request *r = NULL;
		int next, prev;

		made = group(world, order, RANKS, 8);
		if (!made)
			break;
		next = (coll_comm_rank(made) + 1) % RANKS;
		prev = (coll_comm_rank(made) + RANKS - 1) % RANKS;
		MUST(coll_irecv(y, 5000, COLL_I32, COLL_ANY_SOURCE, 1, made, &r) == COLL_OK, "%s",
		     coll_last_error(made)->message);
		MUST(coll_send_tag(x, round % 2 ? 5000 : 1, COLL_I32, next, 1, made, NULL) == COLL_OK, "%s",
		     coll_last_error(made)->message);
		MUST(coll_request_wait(&r, 20000, &info) == COLL_OK && info.source == prev, "round %d: %s", round,
		     coll_last_error(made)->message);
		coll_comm_destroy(&made);
	}
	leave(&world);
}

TEST(groups, messages_before_the_ranks_are_numbered_anew)
{
	arrival = "5000"; /* a message that is lost ends the send */
	processes_run(RANKS, early_message_rank, NULL);
	arrival = "60000";
}

/* ---- The parent meanwhile ---- */

/* Ranks 2 and 3 wait in a call of the parent that 0 and 1 make only after their group; those have asynchronous calls of
 * the parent in flight. */
TEST_OF_PROCESSES(groups, others_call_the_parent_meanwhile, RANKS)
{
	const int pair[] = {1, 0}, all[] = {0, 1, 2, 3};
	coll_comm *world = create(rank), *child = NULL;
	coll_stream *stream = NULL;
	int32_t x[200], y[200];

	for (int i = 0; i < 200; i++)
		x[i] = rank;
	for (int round = 0; round < times; round++) {
		if (rank < 2) {
			MUST(coll_stream_create(&stream, world) == COLL_OK, "stream");
			MUST(coll_all_reduce(x, y, 200, COLL_I32, COLL_SUM, world, stream) == COLL_OK, "%s",
			     coll_last_error(world)->message);
			child = group(world, pair, 2, 0);
			expect_use(child, pair, 2, rank, 50);
			atomic_fetch_add(&shared->turn, 1);
			MUST(coll_stream_destroy(&stream) == COLL_OK, "%s", coll_last_error(world)->message);
			MUST(y[199] == 6, "%d", y[199]);
		} else {
			/* In every other round they come only when the group was made and used. */
			while (round % 2 && atomic_load(&shared->turn) < 2 * (round + 1))
				usleep(100);
			MUST(coll_all_reduce(x, y, 200, COLL_I32, COLL_SUM, world, NULL) == COLL_OK, "%s",
			     coll_last_error(world)->message);
		}
		coll_comm_destroy(&child);
		expect_use(world, all, RANKS, rank, 10);
	}
	leave(&world);
}

/* ---- Refusals ---- */

static void expect_refusal(coll_comm *world, const int *ranks, int n, const char *text)
{
	coll_comm *child = world;
	const coll_status st = coll_comm_create_group(world, ranks, n, 0, &child);

	MUST(st == COLL_ERR_ARGUMENT && child == world, "status %d", st);
	MUST(strstr(coll_last_error(world)->message, text), "no '%s' in: %s", text, coll_last_error(world)->message);
}

TEST_OF_PROCESSES(groups, lists_that_are_refused, RANKS)
{
	const int all[] = {0, 1, 2, 3}, far[] = {0, 1, 2, 4, 3}, twice[] = {0, 1, 2, 3, 3}, others[] = {1, 2, 3, 0};
	const int differ[] = {0, 1, 3, 2};
	coll_comm *world = create(rank), *child = NULL;

	/* On this rank alone: nobody waits for it. */
	expect_refusal(world, all, 0, "impossible length");
	expect_refusal(world, all, 5, "impossible length");
	expect_refusal(world, NULL, 2, "is NULL");
	expect_refusal(world, far + 1, 4, rank == 0 ? "does not" : "does not exist");
	expect_refusal(world, twice + 1, 4, rank == 0 ? "does not have this rank" : "has rank 3 twice");
	expect_refusal(world, others + (rank == 1) + 2 * (rank == 2), rank == 0 ? 3 : 1, "does not have this rank");
	MUST(coll_comm_create_group(NULL, all, 4, 0, &child) == COLL_ERR_ARGUMENT, "parent");
	MUST(coll_comm_create_group(world, all, 4, 0, NULL) == COLL_ERR_ARGUMENT, "child");
	MUST(coll_group_begin() == COLL_OK, "group");
	expect_refusal(world, all, 4, "not inside a group");
	MUST(coll_group_end() == COLL_OK, "group");
	/* On all of them. */
	for (int i = 0; i < 3; i++)
		expect_refusal(world, rank == 2 ? differ : all, RANKS, "lists differ: ranks ");
	MUST(strstr(coll_last_error(world)->message, "ranks 2 and 0 ") ||
	             strstr(coll_last_error(world)->message, "ranks 0 and 2 "),
	     "%s", coll_last_error(world)->message);
	/* Nothing is lost by it. */
	child = group(world, all, RANKS, 0);
	expect_use(child, all, RANKS, rank, 10);
	expect_use(world, all, RANKS, rank, 10);
	coll_comm_destroy(&child);
	leave(&world);
}

/* ---- A member that never comes ---- */

static void absent_rank(const void *arg, int rank)
{
	const int absent = *(const int *)arg, all[] = {2, 3, 0, 1}, others[] = {0, 1, 2, 3};
	coll_comm *world = create(rank), *child = NULL;
	int some[RANKS], n = 0;
	coll_status st;

	for (int r = 0; r < RANKS; r++)
		if (r != absent)
			some[n++] = r;
	if (rank != absent) {
		st = coll_comm_create_group(world, all, RANKS, 9, &child);
		MUST(st == COLL_ERR_PEER_LATE && !child && coll_last_error(world)->rank == absent,
		     "rank %d: %d, rank %d, not %d: %s", rank, st, coll_last_error(world)->rank, absent,
		     coll_last_error(world)->message);
		MUST(strstr(coll_last_error(world)->message, "comm_create_group"), "%s",
		     coll_last_error(world)->message);
		atomic_fetch_add(&shared->told, 1);
	}
	/* The absent one comes when all have given up: it gets their reason. */
	while (atomic_load(&shared->told) < RANKS - 1)
		usleep(1000);
	if (rank == absent) {
		st = coll_comm_create_group(world, all, RANKS, 9, &child);
		MUST(st == COLL_ERR_PEER_LATE && !child, "%d: %s", st, coll_last_error(world)->message);
	}
	/* The parent stands, and so do other groups and a further one of these. */
	child = group(world, some, n, 9);
	expect_use(child, some, n, rank, 10);
	coll_comm_destroy(&child);
	child = group(world, all, RANKS, 9);
	expect_use(child, all, RANKS, rank, 10);
	coll_comm_destroy(&child);
	expect_use(world, others, RANKS, rank, 10);
	leave(&world);
}

TEST(groups, a_member_that_never_comes_is_named)
{
	arrival = "1200";
	for (int absent = 0; absent < RANKS; absent++)
		processes_run(RANKS, absent_rank, &absent);
	arrival = "60000";
}

/* Equal members, different tags, in different orders: each waits for the other, and both are told. */
static void crossed_rank(const void *arg, int rank)
{
	const int pair[] = {0, 1}, all[] = {0, 1, 2, 3};
	coll_comm *world = create(rank), *child = NULL;
	coll_status st;

	if (rank < 2) {
		st = coll_comm_create_group(world, pair, 2, (uint64_t)rank, &child);
		MUST(st == COLL_ERR_PEER_LATE && coll_last_error(world)->rank == !rank, "%d: %s", st,
		     coll_last_error(world)->message);
		atomic_fetch_add(&shared->told, 1);
	}
	while (atomic_load(&shared->told) < 2)
		usleep(1000);
	expect_use(world, all, RANKS, rank, 10);
	leave(&world);
}

TEST(groups, tags_in_different_orders_end_by_name)
{
	arrival = "1200";
	processes_run(RANKS, crossed_rank, NULL);
	arrival = "60000";
}

/* A member aborts the parent instead of coming: the others, who wait in the child, get its reason. */
static void aborted_rank(const void *arg, int rank)
{
	const int all[] = {0, 1, 2, 3};
	coll_comm *world = create(rank), *child = NULL;
	coll_status st;

	if (rank == 3) {
		while (atomic_load(&shared->turn) < RANKS - 1)
			usleep(100);
		usleep(20000); /* before and after they wait: both are right */
		coll_comm_abort(world, "no group today");
	} else {
		atomic_fetch_add(&shared->turn, 1);
		st = coll_comm_create_group(world, all, RANKS, 0, &child);
		MUST(st == COLL_ERR_ABORTED && !child && coll_last_error(world)->rank == 3 &&
		             strstr(coll_last_error(world)->message, "no group today"),
		     "%d: %s", st, coll_last_error(world)->message);
	}
	leave(&world);
}

TEST(groups, an_abort_of_the_parent_ends_the_creation)
{
	for (int i = 0; i < times; i++)
		processes_run(RANKS, aborted_rank, NULL);
}

/* ---- What groups cost ---- */

struct cost {
	int descriptors, threads;
	long kept_bytes; /* resident memory that is this process's own or shared, and files in memory */
};

/* Pss of all mappings: shared pages count in equal parts, so the sum over the ranks is what the host pays. */
static long resident_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Pss: %ld kB", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib * 1024;
}

static struct cost cost_now(void)
{
	return (struct cost){holdings_descriptors(), holdings_threads(), resident_bytes()};
}

static void turn(void *world)
{
	coll_progress(world);
}

/* No more descriptors and threads than before. */
static void holds_no_more(coll_comm *world, const struct cost *before, struct cost *now, const char *when)
{
	const bool settled = holdings_settle(before->descriptors, before->threads, turn, world);

	*now = cost_now();
	MUST(settled, "%s: descriptors %d, %d before; threads %d, %d before", when, now->descriptors,
	     before->descriptors, now->threads, before->threads);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static coll_comm *member_of(coll_comm *world, int i)
{
	return group(world, lists[i % LISTS], lengths[i % LISTS], (uint64_t)(i / LISTS));
}

/* Every way in which a group makes something of its own: the memory that its ranks map, channels of plans, channels
 * of pairs. */
static void use_all_ways(coll_comm *comm, const int *ranks, int n, int rank, int turn)
{
	const int size = coll_comm_size(comm), me = coll_comm_rank(comm), root = turn % size;
	const int next = (me + 1) % size, prev = (me + size - 1) % size;
	int32_t x[2000], y[2000];

	expect_use(comm, ranks, n, rank, 5);
	for (int i = 0; i < 2000; i++)
		x[i] = me == root ? turn + i : -1;
	MUST(coll_broadcast(x, x, 2000, COLL_I32, root, comm, NULL) == COLL_OK, "%s", coll_last_error(comm)->message);
	MUST(x[1999] == turn + 1999, "broadcast %d: %d", turn, x[1999]);
	MUST(coll_send_recv(x, 2000, next, y, 2000, prev, COLL_I32, comm, NULL) == COLL_OK, "%s",
	     coll_last_error(comm)->message);
	MUST(y[1999] == turn + 1999, "send_recv %d: %d", turn, y[1999]);
}

static void use_many(coll_comm *const *made, int n, int rank, int turn)
{
	for (int i = 0; i < n; i++)
		if (made[i])
			use_all_ways(made[i], lists[i % LISTS], lengths[i % LISTS], rank, turn + i);
}

/* Two hundred times the eight lists: unused, each used, then all in a sweep. */
static void many_rank(const void *arg, int rank)
{
	const int all[] = {0, 1, 2, 3};
	coll_comm *world = create(rank), *made[MANY];
	struct cost before, after;
	uint64_t took[MANY], ns;
	int mine = 0;

	/* Whoever has to sleep gets a descriptor for it. */
	for (int r = 0; r < RANKS; r++) {
		usleep(r == rank ? 50000 : 0);
		coll_barrier(world, NULL);
	}
	use_all_ways(world, all, RANKS, rank, 1);
	/* Links, and whatever the first of each kind needs. */
	for (int i = 0; i < 2 * LISTS; i++)
		made[i] = member_of(world, i);
	use_many(made, 2 * LISTS, rank, 0);
	for (int i = 0; i < 2 * LISTS; i++)
		coll_comm_destroy(&made[i]);
	coll_barrier(world, NULL);
	before = cost_now();
	coll_barrier(world, NULL);
	for (int i = 0; i < MANY; i++) {
		ns = coll_clock_ns();
		made[i] = member_of(world, 2 * LISTS + i);
		if (made[i])
			took[mine++] = coll_clock_ns() - ns;
	}
	coll_barrier(world, NULL);
	holds_no_more(world, &before, &after, "unused");
	coll_barrier(world, NULL);
	qsort(took, (size_t)mine, sizeof(took[0]), by_value);
	atomic_store(&shared->kept_bytes[rank], (after.kept_bytes - before.kept_bytes) / mine);
	for (int round = 0; round < 2; round++)
		use_many(made, MANY, rank, round);
	coll_barrier(world, NULL);
	holds_no_more(world, &before, &after, "in use");
	for (int i = 0; i < MANY; i++)
		MUST(!made[i] || !made[i]->intra || made[i]->intra->verdict == INTRA_GOOD, "group %d goes by plans", i);
	for (int i = 0; i < MANY; i++)
		coll_comm_destroy(&made[i]);
	coll_barrier(world, NULL);
	holds_no_more(world, &before, &after, "destroyed");
	printf("     rank %d: %ld bytes a group, median %.3f ms, slowest %.3f ms\n", rank,
	       atomic_load(&shared->kept_bytes[rank]), (double)took[mine / 2] * 1e-6, (double)took[mine - 1] * 1e-6);
	leave(&world);
}

TEST(groups, two_hundred_groups_cost_little)
{
	processes_run(RANKS, many_rank, NULL);
	for (int r = 0; r < RANKS && BYTES_COUNT; r++)
		CHECK(shared->kept_bytes[r] <= GROUP_BYTES_MAX, "rank %d: %ld bytes a group", r,
		      (long)shared->kept_bytes[r]);
}

PROGRAM(groups, "shm|tcp|mixed [TEST [TIMES]]")
{
	if (argc > 3)
		times = atoi(argv[3]);
	shared = processes_begin(argv[1], sizeof(*shared));
	return 2;
}
