/*
 * That asynchronous operations really overlap, read off the flight recorder: what coll-trace
 * draws. Each test arranges that an operation cannot end before another one has run, so
 * serialised operations would also wait for each other until a short deadline. Ranks are
 * threads of this process; some tests have several threads to a rank.
 *
 * usage: async_overlap TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"
#include "engine/run.h"
#include "inflight/drive.h"

#include "inflight/async.h"

static atomic_int loaned;

/* Of the calls of a kind on a communicator, 0: the newest. */
static bool newest(const coll_comm *comm, enum coll_kind kind, unsigned which, struct coll_op_record *op)
{
	struct coll_op_record all[64];
	const size_t n = coll_recorder_copy(&comm->recorder, comm->id, all, 64);

	for (size_t i = n; i-- > 0;)
		if (all[i].kind == kind && which-- == 0) {
			*op = all[i];
			return true;
		}
	return false;
}

/* ---- Two communicators ---- */

/* Rank r has two operations on two streams. In even rounds, even ranks start the one of the
 * first communicator before, odd ranks after they have waited for the second's: so it is on
 * its way at even ranks from before to after the whole of the other. In odd rounds it is
 * the odd ranks. */
static void two(coll_comm *comm, int rank, void *arg)
{
	enum { ROUNDS = 6, N = 20000 };
	const int size = coll_comm_size(comm);
	coll_comm *second = NULL;
	coll_stream *s[2];
	int *x[2];

	OK(comm, coll_comm_duplicate(comm, &second));
	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		x[i] = malloc(N * sizeof(int));
	}
	for (int round = 0; round < ROUNDS; round++) {
		const size_t count = round < 2 ? 2 : N;
		const bool early = (rank + round) % 2 == 0;
		struct coll_op_record outer, inner;

		fill(x[0], count, rank, round);
		fill(x[1], count, rank, round + 100);
		if (early)
			OK(comm, coll_all_reduce(x[0], x[0], count, COLL_I32, COLL_SUM, comm, s[0]));
		OK(second, coll_all_reduce(x[1], x[1], count, COLL_I32, COLL_SUM, second, s[1]));
		OK(second, coll_stream_wait(s[1], -1));
		CHECK(wrong_sums(x[1], count, size, round + 100) == 0, "round %d", round);
		if (early)
			CHECK(coll_stream_query(s[0]) == COLL_AGAIN, "round %d", round);
		/* All have done with the second before anybody goes on with the first. */
		OK(second, coll_barrier(second, NULL));
		if (!early)
			OK(comm, coll_all_reduce(x[0], x[0], count, COLL_I32, COLL_SUM, comm, s[0]));
		OK(comm, coll_stream_wait(s[0], -1));
		CHECK(wrong_sums(x[0], count, size, round) == 0, "round %d", round);
		if (!newest(comm, COLL_KIND_ALL_REDUCE, 0, &outer) ||
		    !newest(second, COLL_KIND_ALL_REDUCE, 0, &inner)) {
			CHECK(false, "round %d is not on record", round);
			break;
		}
		CHECK(outer.state == COLL_OP_ENDED && inner.state == COLL_OP_ENDED);
		CHECK(outer.stream != 0 && inner.stream != 0 && outer.stream != inner.stream);
		if (early)
			CHECK(outer.started < inner.started && inner.finished < outer.finished, "round %d", round);
		else
			CHECK(inner.finished < outer.started, "round %d", round);
	}
	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_destroy(&s[i]));
		free(x[i]);
	}
	OK(comm, coll_comm_destroy(&second));
}

TEST(async_overlap, streams_of_two_communicators)
{
	further[0] = "COLL_ARRIVAL_TIMEOUT_MS=5000";
	for (int n = 2; n <= RANKS_MAX; n++)
		run_ranks(n, two, NULL);
	further[0] = NULL;
}

/* Calls on one communicator of which each is over at once move what is on its way on another: nobody waits for
 * that, or asks for it. */
TEST_OF_RANKS(async_overlap, short_calls_of_another_communicator, 2, RANKS_MAX)
{
	enum { N = 50000, ROUNDS = 5000, CALLS = 100 };
	const int size = coll_comm_size(comm);
	struct coll_op_record op = {.state = COLL_OP_QUEUED};
	coll_comm *second = NULL;
	int *x = malloc(N * sizeof(int)), done = 0;
	coll_stream *s;

	OK(comm, coll_comm_duplicate(comm, &second));
	OK(comm, coll_stream_create(&s, comm));
	fill(x, N, rank, 0);
	OK(comm, coll_all_reduce(x, x, N, COLL_I32, COLL_SUM, comm, s));
	for (int round = 0; round < ROUNDS && !done; round++) {
		for (int i = 0; i < CALLS; i++)
			OK(second, coll_broadcast(&done, &done, 1, COLL_I32, i % size, second, NULL));
		done = newest(comm, COLL_KIND_ALL_REDUCE, 0, &op) && op.state == COLL_OP_ENDED;
		OK(second, coll_all_reduce(&done, &done, 1, COLL_I32, COLL_MIN, second, NULL));
	}
	CHECK(done, "%d ranks: state %d", size, op.state);
	OK(comm, coll_stream_wait(s, -1));
	CHECK(wrong_sums(x, N, size, 0) == 0, "%d ranks", size);
	OK(comm, coll_stream_destroy(&s));
	OK(comm, coll_comm_destroy(&second));
	free(x);
}

/* ---- One communicator ---- */

/* The last rank comes late: the operations of the others, on as many streams, are all on
 * their way by then, but for those above the limit. */
static void one(coll_comm *comm, int rank, void *arg)
{
	enum { OPS = COLL_IN_FLIGHT_MAX + 2, N = 3000 };
	atomic_int *seen = arg;
	const int size = coll_comm_size(comm);
	struct coll_op_record op[OPS];
	coll_stream *s[OPS];
	int *x[OPS];

	for (int i = 0; i < OPS; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		x[i] = malloc(N * sizeof(int));
		fill(x[i], N, rank, i);
	}
	if (rank == size - 1)
		while (atomic_load(seen) < size - 1)
			sched_yield();
	for (int i = 0; i < OPS; i++)
		OK(comm, coll_all_reduce(x[i], x[i], N, COLL_I32, COLL_SUM, comm, s[i]));
	if (rank < size - 1) {
		/* Handed in, and started at once as far as they may: nothing to wait for. */
		for (int i = 0; i < OPS; i++) {
			const enum coll_op_state state = i < COLL_IN_FLIGHT_MAX ? COLL_OP_RUNNING : COLL_OP_QUEUED;

			CHECK(newest(comm, COLL_KIND_ALL_REDUCE, (unsigned)(OPS - 1 - i), &op[i]) &&
			              op[i].state == state,
			      "operation %d: %d", i, (int)op[i].state);
		}
		atomic_fetch_add(seen, 1);
	}
	for (int i = OPS - 1; i >= 0; i--)
		OK(comm, coll_stream_wait(s[i], -1));
	for (int i = 0; i < OPS; i++) {
		CHECK(wrong_sums(x[i], N, size, i) == 0, "operation %d", i);
		CHECK(newest(comm, COLL_KIND_ALL_REDUCE, (unsigned)(OPS - 1 - i), &op[i]) &&
		      op[i].state == COLL_OP_ENDED);
	}
	/* In the order of the calls, and at most so many at once. */
	for (int i = 1; i < OPS; i++) {
		CHECK(op[i - 1].started <= op[i].started);
		CHECK(op[i - 1].finished <= op[i].finished);
		CHECK(i < COLL_IN_FLIGHT_MAX || op[i - COLL_IN_FLIGHT_MAX].finished <= op[i].started);
		CHECK(rank == size - 1 || i >= COLL_IN_FLIGHT_MAX || op[i].started < op[0].finished);
	}
	for (int i = 0; i < OPS; i++) {
		OK(comm, coll_stream_destroy(&s[i]));
		free(x[i]);
	}
}

TEST(async_overlap, operations_of_one_communicator)
{
	for (int n = 2; n <= RANKS_MAX; n++) {
		atomic_int seen = 0;

		run_ranks(n, one, &seen);
	}
}

/* Frames that the runs of a communicator have sent, all together. */
static uint64_t frames_sent(coll_comm *comm)
{
	uint64_t n = 0;

	coll_async_lock(comm->ctx);
	for (int i = 0; i < COLL_IN_FLIGHT_MAX; i++)
		if (comm->inflight.slots[i].run)
			n += coll_run_stats(comm->inflight.slots[i].run)->frames_sent;
	coll_async_unlock(comm->ctx);
	return n;
}

/* A lane that an operation has left is the next one's. What rank 0 lends to rank 1 is not over
 * before rank 1 has come; yet the operation behind it sends. Where nothing is loaned (tcp;
 * fewer cores than ranks), the first one is over at once, and there is nothing to see. */
static void behind(coll_comm *comm, int rank, void *arg)
{
	enum { N = 8000 };
	atomic_int *go = arg;
	struct coll_op_record first;
	coll_stream *s[2];
	int *x[2], *y[2];

	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		x[i] = malloc(N * sizeof(int));
		y[i] = calloc(N, sizeof(int));
		fill(x[i], N, rank, i);
	}
	/* Slots are granted by the receiver, when it first uses a channel. */
	OK(comm, coll_reduce(x[0], y[0], N, COLL_I32, COLL_SUM, 1, comm, NULL));
	OK(comm, coll_barrier(comm, NULL));
	while (rank == 1 && atomic_load(go) == 0)
		sched_yield();
	for (int i = 0; i < 2; i++)
		OK(comm, coll_reduce(x[i], y[i], N, COLL_I32, COLL_SUM, 1, comm, s[i]));
	if (rank == 0) {
		/* A progress thread may be at work on it just now. */
		for (int i = 0; i < 10000 && frames_sent(comm) < 2; i++) {
			coll_progress(comm);
			usleep(1000);
		}
		CHECK(frames_sent(comm) >= 2, "%llu", (unsigned long long)frames_sent(comm));
		if (newest(comm, COLL_KIND_REDUCE, 1, &first) && first.state == COLL_OP_RUNNING)
			atomic_fetch_add(&loaned, 1);
		atomic_store(go, 1);
	}
	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_wait(s[i], -1));
		CHECK(rank == 0 || wrong_sums(y[i], N, 2, i) == 0, "operation %d", i);
		OK(comm, coll_stream_destroy(&s[i]));
		free(x[i]);
		free(y[i]);
	}
}

TEST(async_overlap, operations_behind_what_is_loaned)
{
	atomic_int go = 0;

	atomic_store(&loaned, 0);
	further[0] = "COLL_INTRA=0"; /* a plan's frames are looked at */
	run_ranks(2, behind, &go);
	further[0] = NULL;
	if (atomic_load(&loaned) == 0)
		SKIP("nothing is loaned here");
}

/* The same where nothing is loaned: the algorithm has a lane that only sends and one that only
 * receives. What rank 0 receives cannot come before rank 1 has, so the first operation goes on;
 * yet the second one sends, on the lane that the first one has left. */
static void sending_lane(coll_comm *comm, int rank, void *arg)
{
	enum { N = 8 };
	atomic_int *go = arg;
	struct coll_op_record op[2];
	coll_stream *s[2];
	int x[2][2 * N], y[2][N];

	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		fill(x[i], 2 * N, rank, i);
	}
	/* Slots are granted by the receiver, when it first uses a channel. */
	OK(comm, coll_reduce_scatter(x[0], y[0], N, COLL_I32, COLL_SUM, comm, NULL));
	OK(comm, coll_barrier(comm, NULL));
	while (rank == 1 && atomic_load(go) == 0)
		sched_yield();
	for (int i = 0; i < 2; i++)
		OK(comm, coll_reduce_scatter(x[i], y[i], N, COLL_I32, COLL_SUM, comm, s[i]));
	if (rank == 0) {
		for (int i = 0; i < 10000 && frames_sent(comm) < 2; i++) {
			coll_progress(comm);
			usleep(1000);
		}
		CHECK(frames_sent(comm) == 2, "%llu", (unsigned long long)frames_sent(comm));
		for (unsigned i = 0; i < 2; i++)
			CHECK(newest(comm, COLL_KIND_REDUCE_SCATTER, i, &op[i]) && op[i].state == COLL_OP_RUNNING);
		atomic_store(go, 1);
	}
	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_wait(s[i], -1));
		CHECK(wrong_sums(y[i], N, 2, i + rank * N) == 0, "operation %d", i);
		OK(comm, coll_stream_destroy(&s[i]));
	}
}

TEST(async_overlap, lanes_that_only_send)
{
	atomic_int go = 0;

	further[0] = "COLL_ALGO=reduce_scatter:linear";
	run_ranks(2, sending_lane, &go);
	further[0] = NULL;
}

/* A rank that comes late holds up nobody who does not depend on it: what it is sent waits in
 * its slots. */
static void lanes(coll_comm *comm, int rank, void *arg)
{
	atomic_int *go = arg;
	coll_stream *s[2];
	int x[2] = {rank + 1, rank + 10}, y[2] = {0, 0};

	OK(comm, coll_stream_create(&s[0], comm));
	OK(comm, coll_stream_create(&s[1], comm));
	/* Slots are granted by the receiver, when it first uses a channel. */
	OK(comm, coll_broadcast(&x[0], &y[0], 1, COLL_I32, 0, comm, NULL));
	OK(comm, coll_barrier(comm, NULL));
	y[0] = 0;
	while (rank == 2 && atomic_load(go) == 0)
		sched_yield();
	OK(comm, coll_broadcast(&x[0], &y[0], 1, COLL_I32, 0, comm, s[0]));
	OK(comm, coll_broadcast(&x[1], &y[1], 1, COLL_I32, 0, comm, s[1]));
	if (rank == 1) {
		OK(comm, coll_stream_wait(s[1], -1));
		CHECK(y[0] == 1 && y[1] == 10);
		atomic_store(go, 1);
	}
	/* Rank 0 too has done with both. */
	OK(comm, coll_stream_wait(s[0], -1));
	OK(comm, coll_stream_wait(s[1], -1));
	CHECK(y[0] == 1 && y[1] == 10, "rank %d: %d %d", rank, y[0], y[1]);
	OK(comm, coll_stream_destroy(&s[0]));
	OK(comm, coll_stream_destroy(&s[1]));
}

TEST(async_overlap, late_ranks_hold_up_nobody)
{
	atomic_int go = 0;

	further[0] = "COLL_ARRIVAL_TIMEOUT_MS=5000";
	further[1] = "COLL_ALGO=direct";
	run_ranks(3, lanes, &go);
	further[0] = further[1] = NULL;
}

/* ---- Several threads ---- */

struct worker {
	pthread_t thread;
	coll_comm *comm;
	coll_event *from, *to; /* of another thread's stream; of this one's */
	coll_stream *stream;
	int rank, number;
};

/* Its own communicator, its own stream; blocking calls, streams, operations and groups. */
static void *work(void *arg)
{
	enum { ROUNDS = 30, N = 3000 };
	struct worker *w = arg;
	const int size = coll_comm_size(w->comm);
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *op;
	int *x = malloc(N * sizeof(int)), y = 0, z[3];

	d.in = d.out = &y;
	d.count = 1;
	d.type = COLL_I32;
	OK(w->comm, coll_operation_prepare(&op, &d, w->comm));
	for (int round = 0; round < ROUNDS; round++) {
		const size_t count = (size_t)(1 + (round * 977 + w->number * 131) % N);

		fill(x, count, w->rank, round);
		OK(w->comm, coll_all_reduce(x, x, count, COLL_I32, COLL_SUM, w->comm, w->stream));
		y = w->rank;
		if (round % 3 == 0)
			OK(w->comm, coll_operation_start(op, round % 2 ? w->stream : NULL));
		if (round % 3 == 1) {
			OK(w->comm, coll_stream_wait(w->stream, -1));
			OK(w->comm, coll_operation_start(op, NULL)); /* inline */
		}
		OK(w->comm, coll_group_begin());
		for (int i = 0; i < 3; i++) {
			z[i] = w->rank + i;
			OK(w->comm, coll_all_reduce(&z[i], &z[i], 1, COLL_I32, COLL_SUM, w->comm, NULL));
		}
		OK(w->comm, coll_group_end());
		OK(w->comm, coll_event_record(w->to, w->stream));
		OK(w->comm, coll_stream_wait_event(w->stream, w->from));
		OK(w->comm, coll_operation_wait(op, -1));
		OK(w->comm, coll_stream_wait(w->stream, -1));
		CHECK(wrong_sums(x, count, size, round) == 0, "thread %d round %d", w->number, round);
		CHECK(round % 3 == 2 || y == triangle(size), "thread %d round %d: %d", w->number, round, y);
		for (int i = 0; i < 3; i++)
			CHECK(z[i] == size * i + triangle(size));
	}
	OK(w->comm, coll_operation_destroy(&op));
	free(x);
	return NULL;
}

static void threads(coll_comm *comm, int rank, void *arg)
{
	enum { THREADS = 3 };
	struct worker w[THREADS];

	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.rank = rank, .number = i};
		OK(comm, coll_comm_duplicate(comm, &w[i].comm));
		OK(comm, coll_stream_create(&w[i].stream, comm));
		OK(comm, coll_event_create(&w[i].to, comm));
	}
	for (int i = 0; i < THREADS; i++)
		w[i].from = w[(i + 1) % THREADS].to;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&w[i].thread, NULL, work, &w[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	for (int i = 0; i < THREADS; i++) {
		OK(comm, coll_stream_destroy(&w[i].stream));
		OK(comm, coll_event_destroy(&w[i].to));
		OK(comm, coll_comm_destroy(&w[i].comm));
	}
}

TEST(async_overlap, threads_with_their_own_streams)
{
	run_ranks(1, threads, NULL);
	run_ranks(2, threads, NULL);
	run_ranks(3, threads, NULL);
}

/* A communicator that passes from thread to thread with an operation started inline. */
static void *waits(void *arg)
{
	coll_operation **op = arg;

	CHECK(coll_operation_wait(*op, -1) == COLL_OK);
	return NULL;
}

TEST_OF_RANKS(async_overlap, operations_passed_on, 1, 4)
{
	const int size = coll_comm_size(comm);
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_comm *second = NULL;
	coll_operation *op;
	pthread_t t;
	int x[500], y = 1;

	OK(comm, coll_comm_duplicate(comm, &second));
	d.in = d.out = x;
	d.count = 500;
	d.type = COLL_I32;
	OK(comm, coll_operation_prepare(&op, &d, comm));
	for (int round = 0; round < 20; round++) {
		fill(x, 500, rank, round);
		OK(comm, coll_operation_start(op, NULL));
		pthread_create(&t, NULL, waits, &op);
		/* This thread is busy with another communicator meanwhile, and sweeps. */
		y = 1;
		OK(second, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, second, NULL));
		CHECK(y == size);
		pthread_join(t, NULL);
		CHECK(wrong_sums(x, 500, size, round) == 0, "round %d", round);
	}
	OK(comm, coll_operation_destroy(&op));
	OK(comm, coll_comm_destroy(&second));
}

ASYNC_PROGRAM(async_overlap)
