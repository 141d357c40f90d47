/*
 * What is run intranode (src/intra) on shm, far on: after more turns than half of the
 * numbers that turns have, and when the numbers begin again; nan_sums of NaN; and memory left
 * for coll_mem_alloc() by many communicators. Turns are skipped by writing the words as they
 * would be then. Ranks are threads.
 */
#include <sched.h>

#include "core/comm.h"
#include "intra/region.h"
#include "thread_ranks.h"

enum { RANKS = 3, LARGE = 4096, ONE_PIECE = 1024, MANY = 300 };

static pthread_barrier_t all_here;

static coll_status sum(coll_comm *comm, size_t count)
{
	static float data[RANKS][LARGE];
	float *x = data[coll_comm_rank(comm)];
	const float n = (float)coll_comm_size(comm);
	coll_status st;

	for (size_t i = 0; i < count; i++)
		x[i] = (float)(i % 64);
	st = coll_all_reduce(x, x, count, COLL_F32, COLL_SUM, comm, NULL);
	for (size_t i = 0; i < count && st == COLL_OK; i++)
		st = x[i] == n * (float)(i % 64) ? COLL_OK : COLL_ERR_INTERNAL;
	return st;
}

/* From each root in turn, so that nobody is heard of by all for a while. */
static coll_status rooted(coll_comm *comm, int rounds, size_t count)
{
	static int data[RANKS][LARGE];
	int *x = data[coll_comm_rank(comm)];
	coll_status st = COLL_OK;

	for (int i = 0; i < rounds && st == COLL_OK; i++) {
		for (size_t k = 0; k < count; k++)
			x[k] = coll_comm_rank(comm) == 0 ? i + (int)k : -1;
		st = coll_broadcast(x, x, count, COLL_I32, 0, comm, NULL);
		for (size_t k = 0; k < count && st == COLL_OK; k++)
			st = x[k] == i + (int)k ? COLL_OK : COLL_ERR_INTERNAL;
	}
	return st;
}

/* As if the turns up to this one had been all-reduces of one line. */
static void skip_to(struct coll_intra *n, uint32_t epoch)
{
	pthread_barrier_wait(&all_here);
	n->epoch = n->all = epoch;
	for (uint32_t t = epoch - COLL_DEPTH + 1; t != epoch + 1; t++) {
		struct intra_line *line = &n->mine->entries[t % COLL_DEPTH].lines[0];

		atomic_store(&line->word, coll_intra_word(t, (uint32_t)atomic_load(&line->word)));
	}
	pthread_barrier_wait(&all_here);
}

static bool shared(const coll_comm *comm)
{
	return comm->intra && comm->intra->verdict == INTRA_GOOD;
}

static void far_on(coll_comm **comm, int rank, void *arg)
{
	const uint32_t turns = *(const uint32_t *)arg;
	coll_status st = COLL_OK;

	(*comm)->arrival_timeout_ms = 5000;
	for (int i = 0; i < 4 && st == COLL_OK; i++)
		st = sum(*comm, LARGE);
	if (st == COLL_OK)
		st = rooted(*comm, 40, 2);
	for (int i = 0; i < 4 && st == COLL_OK; i++)
		st = sum(*comm, 2);
	CHECK(st == COLL_OK && shared(*comm), "%s", coll_last_error(*comm)->message);
	skip_to((*comm)->intra, (*comm)->intra->epoch + turns);
	st = rooted(*comm, 2000, 3);
	if (st == COLL_OK)
		st = rooted(*comm, 200, LARGE);
	for (int i = 0; i < 4 && st == COLL_OK; i++)
		st = sum(*comm, LARGE);
	CHECK(st == COLL_OK, "rank %d: %s %s", rank, coll_status_string(st), coll_last_error(*comm)->message);
}

/* Rank 1 comes late to the first call in cells, which is turn 0. */
static void numbers_begin_again(coll_comm **comm, int rank, void *arg)
{
	coll_status st = COLL_OK;

	for (int i = 0; i < 20 && st == COLL_OK; i++)
		st = sum(*comm, 2);
	CHECK(st == COLL_OK && shared(*comm), "%s", coll_last_error(*comm)->message);
	skip_to((*comm)->intra, UINT32_MAX);
	/* Rank 0 has written its piece, and looks at ours meanwhile. Longer vectors try zero copy first. */
	if (rank == 1) {
		while (atomic_load(&(*comm)->intra->peers[0].region->flags[0].pieces[0].word) == 0)
			sched_yield();
		for (int i = 0; i < 1000; i++)
			sched_yield();
	}
	st = sum(*comm, ONE_PIECE);
	CHECK(st == COLL_OK, "rank %d: %s %s", rank, coll_status_string(st), coll_last_error(*comm)->message);
}

static uint32_t nan_sums[RANKS]; /* of all their bits */

/* Often: sometimes the other is late, and the way is another. */
static void sum_of_nans(coll_comm **comm, int rank, void *arg)
{
	const uint32_t mine[2] = {rank ? 0x7fc00001 : 0xffc00002, rank ? 0xffc00003 : 0x7fc00004};
	uint32_t sum[2];

	for (int i = 0; i < 3000; i++) {
		CHECK(coll_all_reduce(mine, sum, 2, COLL_F32, COLL_SUM, *comm, NULL) == COLL_OK, "rank %d", rank);
		nan_sums[rank] = nan_sums[rank] * 31 + sum[0] * 7 + sum[1];
	}
}

static void many(coll_comm **comm, int rank, void *arg)
{
	coll_comm *children[MANY] = {NULL};
	int n = 0, intranode = 0;
	void *memory = NULL;

	for (; n < MANY; n++)
		if (coll_comm_duplicate(*comm, &children[n]) != COLL_OK || coll_barrier(children[n], NULL) != COLL_OK)
			break;
		else
			intranode += shared(children[n]);
	CHECK(n == MANY && intranode > 0, "%d, %d by hand", n, intranode);
	CHECK(coll_mem_alloc(*comm, &memory, 1 << 20) == COLL_OK && (*comm)->allocations->opened, "plain memory");
	coll_mem_free(*comm, memory);
	while (n-- > 0)
		coll_comm_destroy(&children[n]);
}

static void run_ranks(int n, rank_fn fn, const void *arg)
{
	coll_comm *comms[RANKS] = {NULL};

	if (!create(comms, n))
		return;
	pthread_barrier_init(&all_here, NULL, (unsigned)n);
	each_rank(comms, n, fn, (void *)(uintptr_t)arg);
	pthread_barrier_destroy(&all_here);
	each_rank(comms, n, destroys, NULL);
}

TEST(intra_far, after_half_of_all_turns)
{
	run_ranks(RANKS, far_on, &(uint32_t){2200000000});
}

TEST(intra_far, after_all_but_some_turns)
{
	run_ranks(RANKS, far_on, &(uint32_t){UINT32_MAX - 100});
}

TEST(intra_far, turn_0_comes_again)
{
	run_ranks(RANKS, numbers_begin_again, NULL);
}

TEST(intra_far, all_have_the_same_nan)
{
	run_ranks(2, sum_of_nans, NULL);
	CHECK(nan_sums[0] == nan_sums[1], "%08x, %08x", nan_sums[0], nan_sums[1]);
}

TEST(intra_far, many_leave_memory)
{
	run_ranks(2, many, NULL);
}

PROGRAM(intra_far, "")
{
	threads_over("shm");
	return argc;
}
