/*
 * Communicators come and go by the thousand, and nothing stays behind: forked ranks make
 * and destroy children of every kind, some used, a few alive at a time; descriptors,
 * threads, mappings and allocated bytes after a tenth of the rounds (200 at least) and after
 * all of them are the same.
 *
 * usage: churn TRANSPORT [ROUNDS [SEED]]
 */
#include <malloc.h>

#include "base/hash.h"
#include "core/comm.h"
#include "holdings.h"
#include "processes.h"

enum { RANKS_MAX = 3, ALIVE = 5 };

/* Sanitizers keep freed memory and books of their own. */
#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#if SANITIZED
enum { BYTES_COUNT = 0 };
#else
enum { BYTES_COUNT = 1 };
#endif

/* The allocator's own accounts may move a little: far less than a chunk a round. */
enum { SLACK_BYTES = 512 };

static int rounds = 1000;
static uint64_t seed = 4711;

/* ---- What a process holds ---- */

struct holdings {
	int descriptors, threads, mappings;
	size_t bytes;
};

static struct holdings look(void)
{
	struct mallinfo2 m;
	/* With a sanitizer only mappings of shared memory. */
	struct holdings h = {.descriptors = holdings_descriptors(),
	                     .threads = holdings_threads(),
	                     .mappings = holdings_mappings(BYTES_COUNT ? "" : "memfd:")};

	m = mallinfo2();
	h.bytes = BYTES_COUNT ? m.uordblks + m.hblkhd : 0;
	return h;
}

static bool no_more(const struct holdings *a, const struct holdings *than)
{
	return a->descriptors <= than->descriptors && a->threads <= than->threads && a->mappings <= than->mappings &&
	       a->bytes <= than->bytes + SLACK_BYTES;
}

/* What is on its way out when the ranks have stopped: given time to go, at most two
 * seconds, until there is no more than before (NULL: until nothing parts). */
static struct holdings settle(coll_comm *world, const struct holdings *before)
{
	struct holdings h;

	for (int i = 0; i < 100; i++) {
		for (int k = 0; k < 20 || atomic_load(&world->ctx->nclosing) > 0; k++) {
			coll_context_progress(world->ctx);
			usleep(1000);
		}
		h = look();
		if (before && no_more(&h, before))
			break;
		if (!before && i > 5)
			break;
	}
	coll_barrier(world, NULL);
	return h;
}

/* ---- Rounds ---- */

static void use(coll_comm *comm, int rank, size_t count)
{
	static float x[40000];

	for (size_t i = 0; i < count; i++)
		x[i] = 1;
	MUST(coll_all_reduce(x, x, count, COLL_F32, COLL_SUM, comm, NULL) == COLL_OK, "rank %d: %s", rank,
	     coll_last_error(comm)->message);
	MUST(x[0] == (float)coll_comm_size(comm) && x[count - 1] == x[0], "rank %d: a wrong sum", rank);
}

/* One child more, another one less: all ranks draw alike. */
static void one_round(coll_comm *world, coll_comm **alive, struct coll_rng *rng, int rank)
{
	const uint32_t kind = coll_rng_below(rng, 4), how = coll_rng_below(rng, 8), at = coll_rng_below(rng, ALIVE);
	const int list[] = {1, 0}, key = (int)coll_rng_below(rng, 2);
	coll_comm *parent = world, *child = NULL;
	coll_status st;

	coll_comm_destroy(&alive[at]);
	if (alive[(at + 1) % ALIVE] && coll_comm_size(alive[(at + 1) % ALIVE]) == coll_comm_size(world))
		parent = alive[(at + 1) % ALIVE];
	if (kind == 0)
		st = coll_comm_split(parent, key ? 0 : rank % 2, -rank, &child);
	else if (kind == 1 && how % 2)
		st = coll_comm_rank(parent) < 2 ? coll_comm_create_group(parent, list, 2, 0, &child) : COLL_OK;
	else if (kind == 1)
		st = coll_comm_create_from_ranks(parent, list, 2, &child);
	else
		st = coll_comm_duplicate(parent, &child);
	MUST(st == COLL_OK, "rank %d: no child: %s", rank, coll_last_error(parent)->message);
	if (child && how < 3)
		use(child, rank, 2);
	else if (child && how == 3)
		use(child, rank, 40000);
	else if (child && how == 4)
		MUST(coll_barrier(child, NULL) == COLL_OK, "rank %d: %s", rank, coll_last_error(child)->message);
	alive[at] = child;
}

/* More alive and in use at once than ever will be: tables grow to the most that was
 * needed, and keep that. */
static void reach_the_top(coll_comm *world, int rank)
{
	coll_comm *child[3 * ALIVE] = {NULL};

	for (int i = 0; i < 3 * ALIVE; i++)
		if (coll_comm_duplicate(world, &child[i]) != COLL_OK)
			MUST(false, "rank %d: no duplicate", rank);
		else
			use(child[i], rank, 2), use(child[i], rank, 40000);
	for (int i = 0; i < 3 * ALIVE; i++)
		coll_comm_destroy(&child[i]);
	/* A link gets memory to reduce from when it first does, which not every plan has every link do. */
	for (int a = 0; a < coll_comm_size(world); a++)
		for (int b = 0; b < a; b++) {
			const int list[] = {a, b};

			if (coll_comm_create_from_ranks(world, list, 2, &child[0]) != COLL_OK)
				MUST(false, "rank %d: no pair", rank);
			else if (child[0])
				use(child[0], rank, 40000);
			coll_comm_destroy(&child[0]);
		}
}

static void run_rounds(coll_comm *world, int n, struct coll_rng *rng, int rank)
{
	coll_comm *alive[ALIVE] = {NULL};

	for (int i = 0; i < n && atomic_load(&processes->failures) == 0; i++)
		one_round(world, alive, rng, rank);
	/* Not in the same order everywhere. */
	for (int i = 0; i < ALIVE; i++)
		coll_comm_destroy(&alive[rank % 2 ? ALIVE - 1 - i : i]);
}

static void run_rank(const void *arg, int rank)
{
	const int size = *(const int *)arg;
	const int warm_up = rounds / 10 > 200 ? rounds / 10 : 200;
	coll_comm *world = processes_world(rank, size, 0, NULL);
	struct coll_rng rng = {seed};
	struct holdings before, after;

	/* Whoever has to sleep gets a descriptor for it. */
	for (int r = 0; r < size; r++) {
		usleep(r == rank ? 50000 : 0);
		coll_barrier(world, NULL);
	}
	reach_the_top(world, rank);
	run_rounds(world, warm_up, &rng, rank);
	before = settle(world, NULL);
	run_rounds(world, rounds - warm_up, &rng, rank);
	after = settle(world, &before);
	MUST(no_more(&after, &before), "rank %d: something stayed behind", rank);
	printf("     rank %d of %d: descriptors %d, %d; threads %d, %d; mappings %d, %d; bytes %zu, %zu\n", rank, size,
	       before.descriptors, after.descriptors, before.threads, after.threads, before.mappings, after.mappings,
	       before.bytes, after.bytes);
	fflush(stdout);
	coll_comm_destroy(&world);
	exit(0);
}

TEST(churn, two_ranks)
{
	processes_run(2, run_rank, &(int){2});
}

TEST(churn, three_ranks)
{
	processes_run(3, run_rank, &(int){3});
}

PROGRAM(churn, "TRANSPORT [ROUNDS [SEED]]")
{
	/* The allocator's caches of freed chunks count as allocated: off, from the start. */
	if (!getenv("GLIBC_TUNABLES")) {
		setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0", 1);
		execv("/proc/self/exe", argv - 1); /* with the name of this program */
	}
	if (argc > 2)
		rounds = atoi(argv[2]);
	if (argc > 3)
		seed = strtoull(argv[3], NULL, 0);
	processes_begin(argv[1], sizeof(*processes));
	printf("seed %llu, %d rounds\n", (unsigned long long)seed, rounds);
	return argc;
}
