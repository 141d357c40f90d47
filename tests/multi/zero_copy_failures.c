/*
 * Long messages in buffers that all ranks map, in calls that fail: a rank has its buffers to itself afterwards,
 * whatever the others are at. Ranks are threads of this process.
 *
 * usage: direct_failures shm on|off [PART-OF-A-TEST'S-NAME]
 */
#include "zero_copy_buffers.h"

/* Rank 1 is in a unit that does not end, as one that was stopped: it keeps what it has
 * mapped, and writes there after rank 0 has its buffer back. */
struct stuck {
	pthread_barrier_t both;
	coll_comm *comm;
};

static void *abort_soon(void *arg)
{
	struct stuck *s = arg;

	usleep(100000); /* by then the owner is in its call */
	coll_comm_abort(s->comm, "asked to");
	return NULL;
}

static void owner(coll_comm *comm, struct stuck *s)
{
	enum { N = 65536 };
	const size_t shift = 512;
	struct buffer b;
	size_t wrong = 0;
	pthread_t t;

	take(comm, &b, N * sizeof(int), shift, false);
	OK(comm, coll_all_reduce(b.at, b.at, N, COLL_I32, COLL_SUM, comm, NULL));
	memset(b.at, 1, b.bytes);
	s->comm = comm;
	pthread_barrier_wait(&s->both); /* rank 1 is stuck */
	pthread_create(&t, NULL, abort_soon, s);
	CHECK(coll_all_reduce(b.at, b.at, N, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ABORTED);
	pthread_join(t, NULL);
	CHECK(stats(comm).parted == (b.bytes - PAGE) / PAGE * PAGE, "%llu", (unsigned long long)stats(comm).parted);
	CHECK(b.at[0] == 1 && b.at[b.bytes - 1] == 1, "what was there is there");
	memset(b.at, 2, b.bytes);
	pthread_barrier_wait(&s->both); /* now it writes */
	pthread_barrier_wait(&s->both);
	for (size_t i = 0; i < b.bytes; i++)
		wrong += b.at[i] != 2;
	CHECK(wrong == 0, "%zu bytes were written after the call had returned", wrong);
	drop(comm, &b);
}

static void writer(coll_comm *comm, struct stuck *s)
{
	enum { N = 65536 };
	struct intra_reach *theirs;
	struct coll_intra *n;
	struct buffer b;
	void *p = NULL, *hold = NULL;
	coll_status st = COLL_OK;

	take(comm, &b, N * sizeof(int), 512, false);
	OK(comm, coll_all_reduce(b.at, b.at, N, COLL_I32, COLL_SUM, comm, NULL));
	n = comm->intra;
	theirs = &n->direct.reach[0][COLL_REACH_OUT];
	st = n->peers[0].transport->shared->reach(n->peers[0].link, &theirs->piece, N * sizeof(int), &p, &hold);
	CHECK(st == COLL_OK, "%s", coll_status_string(st));
	atomic_store(&n->mine->busy, 1);
	pthread_barrier_wait(&s->both);
	pthread_barrier_wait(&s->both);
	/* Whole pages: the rest is never written by a peer. */
	if (p)
		memset((char *)p + PAGE - 512, 3, (N * sizeof(int) - PAGE) / PAGE * PAGE);
	pthread_barrier_wait(&s->both);
	atomic_store(&n->mine->busy, 0);
	if (hold)
		n->peers[0].transport->shared->leave(n->peers[0].link, hold);
	/* And it finds that its peer has failed. */
	CHECK(coll_all_reduce(b.at, b.at, N, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ABORTED);
	drop(comm, &b);
}

static void stuck_pair(coll_comm *comm, int rank, void *arg)
{
	if (rank == 0)
		owner(comm, arg);
	else
		writer(comm, arg);
}

TEST(zero_copy_failures, a_writer_that_never_ends_is_left_behind)
{
	struct stuck s;

	pthread_barrier_init(&s.both, NULL, 2);
	run_ranks_badly(2, stuck_pair, &s, NULL);
	pthread_barrier_destroy(&s.both);
}

/* Aborted at any moment: every rank's call ends, and nothing is written to its buffer afterwards. */
struct aborted {
	coll_comm *comm;
	useconds_t after_us;
};

static void *abort_later(void *arg)
{
	struct aborted *a = arg;

	usleep(a->after_us);
	coll_comm_abort(a->comm, "asked to");
	return NULL;
}

static void until_aborted(coll_comm *comm, int rank, void *arg)
{
	enum { N = 1 << 20 };
	struct aborted a = {.comm = comm, .after_us = *(useconds_t *)arg};
	struct buffer in, out;
	coll_status st = COLL_OK;
	size_t wrong = 0;
	pthread_t t;

	take(comm, &in, N * sizeof(int), 64, false);
	take(comm, &out, N * sizeof(int), 64, false);
	if (rank == 0)
		pthread_create(&t, NULL, abort_later, &a);
	for (int i = 0; st == COLL_OK; i++)
		st = i % 3 == 2 ? coll_broadcast(in.at, in.at, N, COLL_I32, i % 2, comm, NULL)
		                : coll_all_reduce(in.at, i % 2 ? in.at : out.at, N, COLL_I32, COLL_SUM, comm, NULL);
	CHECK(st == COLL_ERR_ABORTED, "rank %d of %d: %s", rank, coll_comm_size(comm), coll_last_error(comm)->message);
	memset(in.at, 9, in.bytes);
	memset(out.at, 9, out.bytes);
	if (rank == 0)
		pthread_join(t, NULL);
	for (int i = 0; i < 50; i++)
		sched_yield();
	for (size_t i = 0; i < in.bytes; i++)
		wrong += in.at[i] != 9 || out.at[i] != 9;
	CHECK(wrong == 0, "rank %d: %zu bytes", rank, wrong);
	drop(comm, &in);
	drop(comm, &out);
}

TEST(zero_copy_failures, aborted_at_any_moment)
{
	unsigned seed = 20261122;

	printf("     seed %u\n", seed);
	for (int i = 0; i < 24; i++) {
		useconds_t after_us;

		seed = seed * 1103515245u + 12345u;
		after_us = 200 + (seed >> 8) % 20000;
		run_ranks_badly(2 + i % 3, until_aborted, &after_us, NULL);
	}
}

/* One rank makes another call: all are told, none is written to. */
static void another_call(coll_comm *comm, int rank, void *arg)
{
	enum { N = 100000 };
	struct buffer b;
	size_t wrong = 0;

	take(comm, &b, N * sizeof(int), 0, false);
	OK(comm, coll_all_reduce(b.at, b.at, N, COLL_I32, COLL_SUM, comm, NULL));
	memset(b.at, 7, b.bytes);
	CHECK(coll_all_reduce(b.at, b.at, rank == 1 ? N - 1 : N, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_MISMATCH);
	for (size_t i = 0; i < b.bytes; i++)
		wrong += b.at[i] != 7;
	CHECK(wrong == 0, "%zu bytes", wrong);
	drop(comm, &b);
}

TEST(zero_copy_failures, calls_that_differ_touch_nothing)
{
	for (int n = 2; n <= RANKS_MAX; n++)
		run_ranks_badly(n, another_call, NULL, NULL);
}

/* ---- Blocks that the kernel reads ---- */

/* Rank 1 reads rank 0's block last. When it has, rank 0's call has failed and its buffer is its own again, or rank 0
 * is dead: what was read is not taken for the block, though all have told by then that they have read theirs. */
static _Atomic(struct coll_intra *) owner_of_block; /* ranks are threads; they meet in memory mapped twice */
static bool owner_fails;

static coll_status reads_too_late(void *link, uint64_t address, void *to, size_t len_bytes)
{
	if (len_bytes == 0)
		return COLL_OK;
	memset(to, 7, len_bytes);
	if (!owner_fails)
		return COLL_ERR_PEER_DEAD;
	atomic_store(&atomic_load(&owner_of_block)->mine->revoked, 1);
	return COLL_OK;
}

static void read_too_late(coll_comm *comm, int rank, void *arg)
{
	enum { N = 20000 };
	const coll_status expected = owner_fails ? COLL_ERR_ABORTED : COLL_ERR_PEER_DEAD;
	const size_t size = (size_t)coll_comm_size(comm);
	struct coll_transport table;
	struct coll_transport_shared shared;
	struct buffer in, out;
	coll_status st;

	if (size > 2 && !comm->facts.oversubscribed)
		return;
	take(comm, &in, size * N * sizeof(int), 0, true);
	take(comm, &out, size * N * sizeof(int), 0, true);
	OK(comm, coll_all_to_all(in.at, out.at, N, COLL_I32, comm, NULL));
	CHECK(stats(comm).cma_read == (size - 1) * N * sizeof(int));
	if (rank == 0)
		atomic_store(&owner_of_block, comm->intra);
	/* Rank 1 may have failed in the call behind it before others have left it. */
	st = coll_barrier(comm, NULL);
	CHECK(st == COLL_OK || rank != 1, "rank %d: %s", rank, coll_last_error(comm)->message);
	if (rank == 1) {
		table = *comm->intra->peers[0].transport;
		shared = *table.shared;
		shared.pull = reads_too_late;
		table.shared = &shared;
		comm->intra->peers[0].transport = &table;
	}
	st = coll_all_to_all(in.at, out.at, N, COLL_I32, comm, NULL);
	CHECK(rank == 1 ? st == expected : st != COLL_OK, "rank %d of %zu: %s", rank, size, coll_status_string(st));
	if (rank == 1)
		comm->intra->peers[0].transport = &comm->intra_transport->table;
	drop(comm, &in);
	drop(comm, &out);
}

TEST(zero_copy_failures, a_block_is_not_taken_from_an_owner_that_has_failed)
{
	if (!kernel_reads())
		SKIP("processes may not read memory here");
	for (int n = 2; n <= 3; n++)
		for (int i = 0; i < 2; i++) {
			owner_fails = i == 0;
			run_ranks_badly(n, read_too_late, NULL, "COLL_SHM_COPY=cma");
		}
}

ASYNC_PROGRAM(zero_copy_failures)
