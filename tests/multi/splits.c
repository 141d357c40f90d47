/*
 * Communicators from communicators, ranks as threads of this process: every partition of
 * a seeded set, nested and interleaved; lists of ranks; what is refused, and that it is
 * refused everywhere; ends in any order; aborts that stay where they belong.
 *
 * usage: splits TRANSPORT [PART-OF-A-TEST'S-NAME [PARTITIONS [SEED]]]
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "coll/coll.h"
#include "core/comm.h"
#include "plain.h"

enum { RANKS_MAX = 16, PARTITIONS = 200 };

static char transports[64];
static int partitions = PARTITIONS;
static uint64_t seed = 20261121;

/* ---- Ranks as threads ---- */

struct rank {
	pthread_t thread;
	coll_comm **world;
	int rank, size;
	void (*fn)(struct rank *me);
	void *arg;
};

static void *rank_main(void *p)
{
	struct rank *me = p;

	me->fn(me);
	return NULL;
}

/* n ranks in a world of their own, which each of them destroys. */
static void run(int n, void (*fn)(struct rank *me), void *arg)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *worlds[RANKS_MAX];
	struct rank ranks[RANKS_MAX];

	cfg.settings = settings;
	REQUIRE(coll_comm_create_all(worlds, n, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int r = 0; r < n; r++) {
		ranks[r] = (struct rank){.world = &worlds[r], .rank = r, .size = n, .fn = fn, .arg = arg};
		pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
}

/* A test whose body each rank runs. */
#define TEST_OF_RANKS(name, n)                  \
	static void name##_of(struct rank *me); \
	TEST(splits, name)                      \
	{                                       \
		run(n, name##_of, NULL);        \
	}                                       \
	static void name##_of(struct rank *me)

#define OK(comm, call) CHECK((call) == COLL_OK, "%s", coll_last_error(comm)->message)

/* ---- Partitions ---- */

/* What everybody wants, known to all because it follows from the seed. */
struct partition {
	int size;
	int colour[RANKS_MAX], key[RANKS_MAX];
};

static struct partition draw(int size, uint64_t number)
{
	struct coll_rng rng = {seed * 1000003 + number};
	struct partition p = {.size = size};
	const uint32_t colours = 1 + coll_rng_below(&rng, (uint32_t)size);
	const uint32_t style = coll_rng_below(&rng, 5);

	for (int r = 0; r < size; r++) {
		p.colour[r] = (int)coll_rng_below(&rng, colours);
		p.key[r] = (int)coll_rng_below(&rng, 7) - 3;
		if (style == 0) /* keys reversed */
			p.key[r] = -r;
		else if (style == 1) /* equal: parent's order */
			p.key[r] = 5;
		else if (style == 2 && coll_rng_below(&rng, 3) == 0)
			p.colour[r] = COLL_NO_COLOUR;
		else if (style == 3 && coll_rng_below(&rng, 8) == 0) /* far apart */
			p.colour[r] = 1 << 30, p.key[r] = coll_rng_below(&rng, 2) ? INT32_MAX : INT32_MIN;
		else if (style == 4 && number % 2) /* singletons */
			p.colour[r] = r * 1000;
	}
	return p;
}

/* The ranks of a colour in the order asked for, slowly but surely. */
static int members_of(const struct partition *p, int colour, int *members)
{
	int n = 0;

	for (int r = 0; r < p->size; r++) {
		int at = n;

		if (p->colour[r] != colour)
			continue;
		while (at > 0 && p->key[members[at - 1]] > p->key[r]) {
			members[at] = members[at - 1];
			at--;
		}
		members[at] = r;
		n++;
	}
	return n;
}

/* Ids met so far: equal ones must be of the same group. */
struct ids {
	pthread_mutex_t lock;
	struct {
		uint64_t id, group;
	} seen[65536];
	int n;
};
static struct ids ids = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* group: a name of the group that only its members compute. */
static void check_id(uint64_t id, uint64_t group)
{
	bool known = false;

	pthread_mutex_lock(&ids.lock);
	for (int i = 0; i < ids.n; i++) {
		CHECK((ids.seen[i].id == id) == (ids.seen[i].group == group), "id %016llx", (unsigned long long)id);
		known = known || ids.seen[i].id == id;
	}
	if (!known && ids.n < 65536) {
		ids.seen[ids.n].id = id;
		ids.seen[ids.n++].group = group;
	}
	pthread_mutex_unlock(&ids.lock);
}

static void forget_ids(void)
{
	ids.n = 0;
}

/* Who is in the child, in which order, and that its sums are right. world: the job's rank
 * of each member. */
static void check_child(coll_comm *child, const int *world, int n, int own, size_t count)
{
	int32_t mine = own, all[RANKS_MAX], x[96], sum = 0;
	coll_status st;

	REQUIRE(child != NULL);
	CHECK(coll_comm_size(child) == n, "%d, not %d", coll_comm_size(child), n);
	CHECK(world[coll_comm_rank(child)] == own);
	st = coll_all_gather(&mine, all, 1, COLL_I32, child, NULL);
	REQUIRE(st == COLL_OK, "%s", coll_last_error(child)->message);
	for (int i = 0; i < n; i++) {
		CHECK(all[i] == world[i], "rank %d is %d, not %d", i, all[i], world[i]);
		sum += world[i] + 1;
	}
	for (size_t i = 0; i < count; i++)
		x[i] = own + 1;
	st = coll_all_reduce(x, x, count, COLL_I32, COLL_SUM, child, NULL);
	CHECK(st == COLL_OK, "%s", coll_last_error(child)->message);
	for (size_t i = 0; i < count; i++)
		CHECK(x[i] == sum, "element %zu of a sum over %d ranks is %d, not %d", i, n, x[i], sum);
}

/* The children of one partition of comm, whose rank r is world[r]; NULL without a colour. */
static coll_comm *split_checked(coll_comm *comm, uint64_t number, const int *world, int *child_world)
{
	const struct partition p = draw(coll_comm_size(comm), number);
	const int me = coll_comm_rank(comm), colour = p.colour[me];
	int members[RANKS_MAX], n = members_of(&p, colour, members);
	coll_comm *child = (coll_comm *)&p; /* must be overwritten */

	OK(comm, coll_comm_split(comm, colour, p.key[me], &child));
	for (int i = 0; i < n; i++)
		child_world[i] = world[members[i]];
	if (colour == COLL_NO_COLOUR) {
		CHECK(child == NULL);
		return NULL;
	}
	check_id(child->id, coll_hash_combine(coll_hash_combine(comm->id, number), (uint64_t)colour));
	check_child(child, child_world, n, world[me], 1 + number % 90);
	return child;
}

static void partition_rank(struct rank *me)
{
	int world[RANKS_MAX], mine[RANKS_MAX], nested[RANKS_MAX];

	for (int r = 0; r < me->size; r++)
		world[r] = r;
	for (int i = 0; i < partitions; i++) {
		coll_comm *child = split_checked(*me->world, (uint64_t)i, world, mine);
		coll_comm *grandchild = NULL;

		if (child && i % 4 == 0)
			grandchild = split_checked(child, (uint64_t)(i + 100000), mine, nested);
		if (i % 8 == 0)
			coll_comm_destroy(&child);
		if (grandchild) /* with and without its parent */
			check_child(grandchild, nested, coll_comm_size(grandchild), me->rank, 3);
		coll_comm_destroy(&grandchild);
		coll_comm_destroy(&child);
	}
	coll_comm_destroy(me->world);
}

TEST(splits, sixteen_ranks_in_every_partition)
{
	forget_ids();
	run(16, partition_rank, NULL);
}

TEST(splits, five_ranks_in_every_partition)
{
	forget_ids();
	run(5, partition_rank, NULL);
}

/* ---- Several at once ---- */

enum { SEVERAL = 12 };

/* Calls go round children of which each was made in another way; they end in an order
 * that differs from rank to rank, the world's end among them. */
static void interleaved_rank(struct rank *me)
{
	const uint64_t begun = coll_clock_ns();
	int world[RANKS_MAX], of[SEVERAL][RANKS_MAX];
	coll_comm *child[SEVERAL + 1];

	for (int r = 0; r < me->size; r++)
		world[r] = r;
	for (int i = 0; i < SEVERAL; i++)
		child[i] = split_checked(*me->world, (uint64_t)(3000 + i), world, of[i]);
	for (int round = 0; round < 20; round++)
		for (int i = 0; i < SEVERAL; i++)
			if (child[i])
				check_child(child[i], of[i], coll_comm_size(child[i]), me->rank,
				            1 + (size_t)(round * 4));
	child[SEVERAL] = *me->world;
	*me->world = NULL;
	for (int i = 0; i <= SEVERAL; i++)
		coll_comm_destroy(&child[(me->rank * 5 + i * (me->rank % 2 ? 1 : SEVERAL)) % (SEVERAL + 1)]);
	CHECK(coll_clock_ns() - begun < 60 * (uint64_t)1000000000);
}

TEST(splits, interleaved_calls_and_ends)
{
	forget_ids();
	run(4, interleaved_rank, NULL);
}

struct owner {
	pthread_t thread;
	coll_comm *child;
	int world[RANKS_MAX], n, own;
};

static void *own_child(void *p)
{
	struct owner *o = p;

	for (int i = 0; i < 100; i++)
		check_child(o->child, o->world, o->n, o->own, 1 + (size_t)i % 90);
	coll_comm_destroy(&o->child);
	return NULL;
}

/* Threads of one rank, each with a child of its own, which they destroy. */
TEST_OF_RANKS(threads_own_children, 3)
{
	struct owner o[3];

	for (int i = 0; i < 3; i++) {
		o[i].n = me->size;
		o[i].own = me->rank;
		for (int r = 0; r < me->size; r++)
			o[i].world[r] = i == 1 ? me->size - 1 - r : r;
		if (i == 1)
			OK(*me->world, coll_comm_split(*me->world, 0, -me->rank, &o[i].child));
		else
			OK(*me->world, coll_comm_duplicate(*me->world, &o[i].child));
	}
	if (me->rank % 2)
		coll_comm_destroy(me->world);
	for (int i = 0; i < 3; i++)
		pthread_create(&o[i].thread, NULL, own_child, &o[i]);
	for (int i = 0; i < 3; i++)
		pthread_join(o[i].thread, NULL);
	coll_comm_destroy(me->world);
}

/* ---- Lists ---- */

static void expect_refusal(struct rank *me, const int *ranks, int n, const char *text)
{
	coll_comm *child = *me->world;
	coll_status st = coll_comm_create_from_ranks(*me->world, ranks, n, &child);

	CHECK(st == COLL_ERR_ARGUMENT, "%d", st);
	CHECK(child == *me->world, "an output was written");
	CHECK(strstr(coll_last_error(*me->world)->message, text), "%s", coll_last_error(*me->world)->message);
}

TEST_OF_RANKS(lists_of_ranks, 5)
{
	const int list[] = {4, 0, 2}, other[] = {3, 1}, twice[] = {1, 1}, far[] = {0, 9}, wrong[] = {2, 0};
	coll_comm *child = NULL;
	const bool in_list = me->rank % 2 == 0;

	/* One list that all pass. */
	OK(*me->world, coll_comm_create_from_ranks(*me->world, list, 3, &child));
	CHECK((child != NULL) == in_list);
	if (child)
		check_child(child, list, 3, me->rank, 5);
	coll_comm_destroy(&child);
	/* Two lists apart, and one rank whose own is empty. */
	OK(*me->world, coll_comm_create_from_ranks(*me->world, in_list ? list : other, in_list ? 3 : 2, &child));
	CHECK(child != NULL);
	check_child(child, in_list ? list : other, in_list ? 3 : 2, me->rank, 6);
	coll_comm_destroy(&child);
	child = *me->world;
	OK(*me->world, coll_comm_create_from_ranks(*me->world, list, in_list ? 3 : 0, &child));
	CHECK((child != NULL) == in_list);
	coll_comm_destroy(&child);
	OK(*me->world, coll_comm_create_from_ranks(*me->world, NULL, 0, &child));
	CHECK(child == NULL);
	/* What cannot be, at one rank only. */
	expect_refusal(me, me->rank == 3 ? twice : list, me->rank == 3 ? 2 : 3, "the list of rank 3 has a rank twice");
	expect_refusal(me, me->rank == 1 ? far : list, me->rank == 1 ? 2 : 3,
	               "the list of rank 1 has a rank that does not exist");
	expect_refusal(me, me->rank == 2 ? NULL : list, 3, "the list of rank 2 is NULL");
	expect_refusal(me, list, me->rank == 4 ? -2 : 3, "the list of rank 4 has an impossible length");
	expect_refusal(me, me->rank == 2 ? wrong : list, me->rank == 2 ? 2 : 3,
	               "lists differ: rank 0's names rank 2, which passed another one");
	expect_refusal(me, list, me->rank == 4 ? 0 : 3,
	               "lists differ: rank 0's names rank 4, which passed an empty one");
	/* All the same the parent goes on. */
	OK(*me->world, coll_comm_duplicate(*me->world, &child));
	coll_comm_destroy(&child);
	coll_comm_destroy(me->world);
}

TEST_OF_RANKS(refused_on_all_ranks, 3)
{
	coll_comm *child = NULL;

	CHECK(coll_comm_split(NULL, 0, 0, &child) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_split(*me->world, 0, 0, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_duplicate(*me->world, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_split(*me->world, me->rank == 1 ? -7 : 0, 0, &child) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(*me->world)->message, "rank 1 passed the colour -7"), "%s",
	      coll_last_error(*me->world)->message);
	CHECK(child == NULL);
	OK(*me->world, coll_barrier(*me->world, NULL));
	coll_comm_destroy(me->world);
}

/* ---- Failures stay where they belong ---- */

TEST_OF_RANKS(a_split_is_not_an_all_reduce, 2)
{
	coll_comm *child = NULL, *other = NULL;
	int32_t x = 1;
	coll_status st;

	OK(*me->world, coll_comm_duplicate(*me->world, &child));
	if (me->rank == 0)
		st = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child, NULL);
	else
		st = coll_comm_split(child, 0, 0, &other);
	CHECK(st == COLL_ERR_MISMATCH, "%s", coll_last_error(child)->message);
	CHECK(strstr(coll_last_error(child)->message, "all_reduce(") &&
	              strstr(coll_last_error(child)->message, "comm_split number 1"),
	      "%s", coll_last_error(child)->message);
	coll_comm_destroy(&child);
	x = 1;
	OK(*me->world, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, *me->world, NULL));
	CHECK(x == 2);
	coll_comm_destroy(me->world);
}

TEST_OF_RANKS(an_abort_is_the_child_s, 3)
{
	coll_comm *child[3] = {NULL};
	int world[RANKS_MAX], reversed[RANKS_MAX];
	int32_t x = 1;

	for (int r = 0; r < me->size; r++)
		world[r] = r, reversed[r] = me->size - 1 - r;
	for (int i = 0; i < 3; i++)
		OK(*me->world, coll_comm_split(*me->world, 0, i == 1 ? -me->rank : 0, &child[i]));
	if (me->rank == 2)
		coll_comm_abort(child[1], "enough");
	CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child[1], NULL) == COLL_ERR_ABORTED);
	CHECK(strstr(coll_last_error(child[1])->message, "rank 0 (rank 2 of the job) aborted the communicator: enough"),
	      "%s", coll_last_error(child[1])->message);
	check_child(child[0], world, me->size, me->rank, 2);
	check_child(*me->world, world, me->size, me->rank, 2);
	coll_comm_destroy(&child[1]);
	OK(*me->world, coll_comm_split(child[0], 0, -me->rank, &child[1]));
	check_child(child[1], reversed, me->size, me->rank, 2);
	for (int i = 0; i < 3; i++)
		coll_comm_destroy(&child[i]);
	coll_comm_destroy(me->world);
}

/* Who calls on a communicator that another rank has destroyed is told so, soon. */
static void gone_rank(struct rank *me)
{
	coll_comm *child = NULL;
	const uint64_t begun = coll_clock_ns();
	int32_t x = 1;
	coll_status st;

	OK(*me->world, coll_comm_duplicate(*me->world, &child));
	if (me->rank == 0) {
		st = *(int *)me->arg ? coll_recv(&x, 1, COLL_I32, 1, child, NULL)
		                     : coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child, NULL);
		CHECK(st == COLL_ERR_MISMATCH, "%s", coll_last_error(child)->message);
		CHECK(strstr(coll_last_error(child)->message, "rank 1 has left: it destroyed its communicator"), "%s",
		      coll_last_error(child)->message);
	}
	coll_comm_destroy(&child);
	/* Its own end is waited for, too; soon is: not when it would count as late. */
	CHECK(coll_clock_ns() - begun < (uint64_t)60 * 1000000000);
	OK(*me->world, coll_barrier(*me->world, NULL));
	coll_comm_destroy(me->world);
}

TEST(splits, calls_on_what_is_gone)
{
	for (int pair = 0; pair < 2; pair++)
		run(2, gone_rank, &pair);
}

PROGRAM(splits, "TRANSPORT [TEST [PARTITIONS [SEED]]]")
{
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", argv[1]);
	if (argc > 3)
		partitions = atoi(argv[3]);
	if (argc > 4)
		seed = strtoull(argv[4], NULL, 0);
	printf("seed %llu, %d partitions\n", (unsigned long long)seed, partitions);
	return 2;
}
