/*
 * Calls that are put together before they begin: groups, and persistent operations. Ranks
 * are threads of this process.
 *
 * usage: async_operations TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"

/* ---- Groups ---- */

/* Everybody sends to everybody, sends first: without a group that would wait for ever. */
TEST_OF_RANKS(async_operations, group_exchange, 2, RANKS_MAX)
{
	enum { N = 50000 };
	const int size = coll_comm_size(comm);
	int *out = malloc(N * sizeof(int)), *in = malloc((size_t)size * N * sizeof(int));
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	for (int round = 0; round < 4; round++) {
		coll_stream *const where = round % 2 ? s : NULL;

		fill(out, N, rank, round);
		memset(in, 0, (size_t)size * N * sizeof(int));
		OK(comm, coll_group_begin());
		for (int p = 0; p < size; p++)
			if (p != rank)
				OK(comm, coll_send(out, N, COLL_I32, p, comm, where));
		OK(comm, coll_group_begin()); /* nested */
		for (int p = 0; p < size; p++)
			if (p != rank)
				OK(comm, coll_recv(in + (size_t)p * N, N, COLL_I32, p, comm, where));
		OK(comm, coll_group_end());
		CHECK(in[(size_t)((rank + 1) % size) * N + N - 1] == 0); /* nothing has begun */
		OK(comm, coll_group_end());
		OK(comm, coll_stream_wait(s, -1));
		for (int p = 0; p < size; p++)
			for (int i = 0; i < N && p != rank; i++)
				if (in[(size_t)p * N + i] != p + i + round) {
					CHECK(false, "from %d [%d] = %d", p, i, in[(size_t)p * N + i]);
					break;
				}
	}
	CHECK(coll_group_end() == COLL_ERR_ARGUMENT);
	OK(comm, coll_stream_destroy(&s));
	free(out);
	free(in);
}

/* Small calls become one: as many sequence numbers as calls that travel. */
TEST_OF_RANKS(async_operations, small_calls_in_one, 1, RANKS_MAX)
{
	enum { CALLS = 40 };
	const int size = coll_comm_size(comm);
	int small[CALLS][20], large[5000];
	float f[CALLS];
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	for (int round = 0; round < 6; round++) {
		coll_stream *const where = round % 2 ? s : NULL;

		OK(comm, coll_group_begin());
		for (int i = 0; i < CALLS; i++) {
			fill(small[i], (size_t)i % 20, rank, i + round);
			OK(comm, coll_all_reduce(small[i], small[i], (size_t)i % 20, COLL_I32, COLL_SUM, comm, where));
			f[i] = (float)(rank + i);
			OK(comm, coll_all_reduce(&f[i], &f[i], 1, COLL_F32, COLL_MAX, comm, where));
			if (i == 7) {
				fill(large, 5000, rank, round);
				OK(comm, coll_all_reduce(large, large, 5000, COLL_I32, COLL_SUM, comm, where));
			}
		}
		OK(comm, coll_group_end());
		OK(comm, coll_stream_wait(s, -1));
		for (int i = 0; i < CALLS; i++) {
			CHECK(wrong_sums(small[i], (size_t)i % 20, size, i + round) == 0, "round %d call %d", round, i);
			CHECK(f[i] == (float)(size - 1 + i));
		}
		CHECK(wrong_sums(large, 5000, size, round) == 0);
	}
	OK(comm, coll_stream_destroy(&s));
}

/* Groups that differ: an error on every rank, and no hang. A late rank may hear of it before
 * its calls are made. */
TEST_OF_RANKS(async_operations, groups_that_differ, 2, RANKS_MAX)
{
	int a = 1, b = 2;
	coll_status st, end;

	OK(comm, coll_group_begin());
	st = coll_all_reduce(&a, &a, 1, COLL_I32, COLL_SUM, comm, NULL);
	if (st == COLL_OK)
		st = coll_all_reduce(&b, &b, 1, COLL_I32, rank == 0 ? COLL_SUM : COLL_MAX, comm, NULL);
	end = coll_group_end();
	st = st ? st : end;
	CHECK(st == COLL_ERR_MISMATCH, "rank %d: %d %s", rank, (int)st, coll_last_error(comm)->message);
}

static void nothing_more(coll_comm *comm, int rank, void *arg)
{
}

/* One thread makes the calls of all ranks. */
TEST(async_operations, one_thread_for_all)
{
	enum { N = 20000 };
	coll_comm *comms[RANKS_MAX];
	struct rank ranks[RANKS_MAX];
	int *x[RANKS_MAX], token[RANKS_MAX][2];

	if (!create(comms, RANKS_MAX))
		return;
	for (int r = 0; r < RANKS_MAX; r++)
		x[r] = malloc(N * sizeof(int));
	for (int round = 0; round < 10; round++) {
		OK(comms[0], coll_group_begin());
		for (int r = 0; r < RANKS_MAX; r++) {
			fill(x[r], N, r, round);
			token[r][0] = r + round;
			OK(comms[r], coll_all_reduce(x[r], x[r], N, COLL_I32, COLL_SUM, comms[r], NULL));
			OK(comms[r], coll_send(&token[r][0], 1, COLL_I32, (r + 1) % RANKS_MAX, comms[r], NULL));
			OK(comms[r],
			   coll_recv(&token[r][1], 1, COLL_I32, (r + RANKS_MAX - 1) % RANKS_MAX, comms[r], NULL));
		}
		OK(comms[0], coll_group_end());
		for (int r = 0; r < RANKS_MAX; r++) {
			CHECK(wrong_sums(x[r], N, RANKS_MAX, round) == 0, "rank %d round %d", r, round);
			CHECK(token[r][1] == (r + RANKS_MAX - 1) % RANKS_MAX + round);
		}
	}
	for (int r = 0; r < RANKS_MAX; r++)
		free(x[r]);
	/* The end takes all of them at once. */
	for (int r = 0; r < RANKS_MAX; r++) {
		ranks[r] = (struct rank){.comm = comms[r], .rank = r, .fn = nothing_more};
		pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
	}
	for (int r = 0; r < RANKS_MAX; r++)
		pthread_join(ranks[r].thread, NULL);
}

/* ---- Persistent operations ---- */

enum { OPS = 3 };
static const size_t counts[OPS] = {2, 3000, 100000};

/* One rank's: three all-reduces, a barrier, a ragged all-gather. */
struct prepared {
	coll_comm *comm;
	int rank, size;
	coll_operation *op[OPS], *barrier, *ragged;
	coll_stream *s;
	int *x[OPS], *y[OPS], all[RANKS_MAX * RANKS_MAX], mine[RANKS_MAX];
};

static void prepare_all(struct prepared *p)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	size_t lens[RANKS_MAX];

	for (int i = 0; i < OPS; i++) {
		p->x[i] = malloc(counts[i] * sizeof(int));
		p->y[i] = malloc(counts[i] * sizeof(int));
		d.in = p->x[i];
		d.out = p->y[i];
		d.count = counts[i];
		d.type = COLL_I32;
		OK(p->comm, coll_operation_prepare(&p->op[i], &d, p->comm));
		CHECK(coll_operation_wait(p->op[i], -1) == COLL_OK); /* not started */
	}
	d = (coll_operation_desc)COLL_OPERATION_DESC_INIT;
	d.kind = COLL_BARRIER;
	OK(p->comm, coll_operation_prepare(&p->barrier, &d, p->comm));
	d.kind = COLL_ALL_GATHER;
	d.ragged = 1;
	d.in = p->mine;
	d.out = p->all;
	d.type = COLL_I32;
	d.out_counts = lens;
	for (int r = 0; r < p->size; r++)
		lens[r] = (size_t)r + 1;
	OK(p->comm, coll_operation_prepare(&p->ragged, &d, p->comm));
	memset(lens, 0xff, sizeof(lens));
}

/* Inline. */
static void one_at_a_time(struct prepared *p)
{
	for (int i = 0; i < OPS; i++) {
		OK(p->comm, coll_operation_start(p->op[i], NULL));
		OK(p->comm, coll_operation_wait(p->op[i], -1));
	}
}

static void several_in_order(struct prepared *p, coll_stream *where, bool another_call_between)
{
	int z = p->rank;

	OK(p->comm, coll_operation_start(p->op[0], where));
	CHECK(coll_operation_start(p->op[0], where) == COLL_ERR_ARGUMENT);
	if (another_call_between)
		OK(p->comm, coll_all_reduce(&z, &z, 1, COLL_I32, COLL_SUM, p->comm, NULL));
	CHECK(!another_call_between || z == triangle(p->size));
	OK(p->comm, coll_operation_start(p->op[1], where));
	OK(p->comm, coll_operation_start(p->op[2], where));
	OK(p->comm, coll_operation_start(p->barrier, NULL));
	while ((another_call_between ? coll_operation_wait(p->barrier, 1) : coll_operation_test(p->barrier)) ==
	       COLL_AGAIN)
		;
	for (int i = OPS - 1; i >= 0; i--)
		OK(p->comm, coll_operation_wait(p->op[i], -1));
}

static void one_round(struct prepared *p, int round)
{
	for (int i = 0; i < OPS; i++)
		fill(p->x[i], counts[i], p->rank, round + i);
	fill(p->mine, (size_t)p->rank + 1, p->rank, round);
	if (round % 4 == 0)
		one_at_a_time(p);
	else
		several_in_order(p, round % 4 == 3 ? p->s : NULL, round % 4 == 1);
	OK(p->comm, coll_operation_start(p->ragged, NULL));
	while (coll_progress(p->comm) == COLL_AGAIN)
		sched_yield();
	OK(p->comm, coll_operation_wait(p->ragged, -1));
	for (int i = 0; i < OPS; i++)
		CHECK(wrong_sums(p->y[i], counts[i], p->size, round + i) == 0, "round %d op %d", round, i);
	for (int r = 0, at = 0; r < p->size; r++)
		for (int i = 0; i <= r; i++, at++)
			CHECK(p->all[at] == r + i + round, "round %d block %d: %d", round, r, p->all[at]);
}

/* In a group, and destroyed while it runs. */
static void in_a_group(struct prepared *p)
{
	fill(p->x[0], counts[0], p->rank, 1);
	fill(p->x[1], counts[1], p->rank, 1);
	OK(p->comm, coll_group_begin());
	OK(p->comm, coll_operation_start(p->op[0], NULL));
	OK(p->comm, coll_operation_start(p->op[1], p->s));
	OK(p->comm, coll_group_end());
	CHECK(wrong_sums(p->y[0], counts[0], p->size, 1) == 0);
	OK(p->comm, coll_operation_destroy(&p->op[1]));
	CHECK(p->op[1] == NULL);
	CHECK(wrong_sums(p->y[1], counts[1], p->size, 1) == 0);
	OK(p->comm, coll_operation_start(p->barrier, NULL));
	OK(p->comm, coll_operation_destroy(&p->barrier));
}

TEST_OF_RANKS(async_operations, persistent_operations, 1, RANKS_MAX)
{
	struct prepared p = {.comm = comm, .rank = rank, .size = coll_comm_size(comm)};

	OK(comm, coll_stream_create(&p.s, comm));
	prepare_all(&p);
	for (int round = 0; round < 40; round++)
		one_round(&p, round);
	in_a_group(&p);
	OK(comm, coll_stream_destroy(&p.s));
	OK(comm, coll_operation_destroy(&p.op[0]));
	OK(comm, coll_operation_destroy(&p.ragged));
	OK(comm, coll_operation_destroy(&p.op[2]));
	for (int i = 0; i < OPS; i++) {
		free(p.x[i]);
		free(p.y[i]);
	}
}

/* What is prepared is compared. */
static void prepares(coll_comm *comm, int rank, void *arg)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *op = NULL;
	int x[8];
	coll_status st;

	d.in = d.out = x;
	d.count = rank == 0 ? 7 : 8;
	d.type = COLL_I32;
	st = coll_operation_prepare(&op, &d, comm);
	CHECK(st == COLL_ERR_MISMATCH, "%s", coll_status_string(st));
	CHECK(strstr(coll_last_error(comm)->message, "preparation of all_reduce(count=7") != NULL, "%s",
	      coll_last_error(comm)->message);
	CHECK(op == NULL);
}

TEST(async_operations, prepared_alike)
{
	run_ranks(2, prepares, NULL);
	run_ranks(3, prepares, NULL);
}

ASYNC_PROGRAM(async_operations)
