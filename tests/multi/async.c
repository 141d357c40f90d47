/*
 * Asynchronous work: streams and events, and how they end, with ranks as threads of this
 * process (loop, shm or tcp between them), with and without progress thread. Groups and
 * persistent operations are in async_operations.c, what goes wrong on purpose in
 * async_errors.c; what takes a process to die in async_death.c.
 *
 * usage: async TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"
#include "inflight/drive.h"

#include <poll.h>

#include "inflight/async.h"

/* ---- Streams ---- */

/* Calls on one stream run in order: each continues with the result of the one before. */
static void chain(coll_comm *comm, int rank, void *arg)
{
	const size_t count = *(size_t *)arg;
	const int size = coll_comm_size(comm);
	int *x = malloc(count * sizeof(*x)), factor = 1;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	for (size_t i = 0; i < count; i++)
		x[i] = 1;
	for (int k = 0; k < 10; k++) {
		OK(comm, coll_all_reduce(x, x, count, COLL_I32, COLL_SUM, comm, s));
		factor *= size;
	}
	OK(comm, coll_stream_wait(s, -1));
	CHECK(coll_stream_query(s) == COLL_OK);
	for (size_t i = 0; i < count; i++)
		CHECK(x[i] == factor, "rank %d: [%zu] = %d, not %d", rank, i, x[i], factor);
	OK(comm, coll_stream_destroy(&s));
	CHECK(s == NULL);
	free(x);
}

TEST(async, one_stream_in_order)
{
	static size_t counts[] = {1, 700, 100000};

	for (int i = 0; i < 3; i++)
		for (int n = 1; n <= RANKS_MAX; n++)
			run_ranks(n, chain, &counts[i]);
}

/* Every kind of call, in one stream, with arrays that are gone when the call returns. */
TEST_OF_RANKS(async, every_kind, 1, RANKS_MAX)
{
	enum { N = 37 };
	const int size = coll_comm_size(comm), next = (rank + 1) % size, prev = (rank + size - 1) % size;
	int in[RANKS_MAX * N], gathered[RANKS_MAX * N], sum[N], from[N], part[N], moved[RANKS_MAX * N], got[N] = {0};
	int scattered[N], ragged[RANKS_MAX * N], scanned[N], before[N] = {0}, reduced[N];
	size_t counts[RANKS_MAX], span = 0;
	coll_stream *s;

	fill(in, sizeof(in) / sizeof(in[0]), rank, 0);
	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_all_reduce(in, sum, N, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_reduce(in, reduced, N, COLL_I32, COLL_SUM, size - 1, comm, s));
	OK(comm, coll_broadcast(in, from, N, COLL_I32, size - 1, comm, s));
	OK(comm, coll_all_gather(in, gathered, N, COLL_I32, comm, s));
	OK(comm, coll_reduce_scatter(in, part, N, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_all_to_all(in, moved, N, COLL_I32, comm, s));
	OK(comm, coll_scatter(in, scattered, N, COLL_I32, 0, comm, s));
	OK(comm, coll_scan(in, scanned, N, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_exclusive_scan(in, before, N, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_barrier(comm, s));
	OK(comm, coll_send_recv(in, N, next, got, N, prev, COLL_I32, comm, s));
	for (int r = 0; r < size; r++) {
		counts[r] = (size_t)r + 1;
		span += counts[r];
	}
	OK(comm, coll_all_gatherv(in, ragged, counts, NULL, COLL_I32, comm, s));
	memset(counts, 0xff, sizeof(counts));
	OK(comm, coll_stream_wait(s, -1));
	CHECK(wrong_sums(sum, N, size, 0) == 0);
	CHECK(rank != size - 1 || wrong_sums(reduced, N, size, 0) == 0);
	CHECK(wrong_sums(part, N, size, rank * N) == 0);
	for (int i = 0; i < N; i++) {
		CHECK(from[i] == size - 1 + i);
		CHECK(got[i] == prev + i);
		CHECK(scattered[i] == rank * N + i);
		CHECK(scanned[i] == (rank + 1) * i + triangle(rank + 1));
		CHECK(before[i] == rank * i + triangle(rank));
		for (int r = 0; r < size; r++) {
			CHECK(gathered[r * N + i] == r + i);
			CHECK(moved[r * N + i] == r + rank * N + i);
		}
	}
	for (int r = 0, at = 0; r < size; r++)
		for (int i = 0; i <= r; i++, at++)
			CHECK(ragged[at] == r + i, "block %d [%d] = %d", r, i, ragged[at]);
	CHECK(span == (size_t)triangle(size + 1));
	OK(comm, coll_stream_destroy(&s));
}

/* Many streams of one communicator: operations overlap, all results are right. */
TEST_OF_RANKS(async, many_streams, 2, RANKS_MAX)
{
	enum { STREAMS = 6, ROUNDS = 20 };
	static const size_t counts[STREAMS] = {1, 5000, 17, 70000, 300, 20000};
	const int size = coll_comm_size(comm);
	coll_stream *s[STREAMS];
	int *x[STREAMS];

	for (int i = 0; i < STREAMS; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		x[i] = malloc(counts[i] * sizeof(int));
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < STREAMS; i++) {
			fill(x[i], counts[i], rank, round + i);
			OK(comm, coll_all_reduce(x[i], x[i], counts[i], COLL_I32, COLL_SUM, comm, s[i]));
		}
		for (int i = STREAMS - 1; i >= 0; i--) {
			OK(comm, coll_stream_wait(s[i], -1));
			CHECK(wrong_sums(x[i], counts[i], size, round + i) == 0, "round %d stream %d", round, i);
		}
	}
	for (int i = 0; i < STREAMS; i++) {
		OK(comm, coll_stream_destroy(&s[i]));
		free(x[i]);
	}
}

/* Two communicators, two streams, another starting order on every other rank. */
TEST_OF_RANKS(async, any_starting_order, 2, RANKS_MAX)
{
	enum { N = 30000, ROUNDS = 20 };
	const int size = coll_comm_size(comm);
	coll_comm *two[2] = {comm, NULL};
	coll_stream *s[2];
	int *x[2];

	OK(comm, coll_comm_duplicate(comm, &two[1]));
	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		x[i] = malloc(N * sizeof(int));
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int k = 0; k < 2; k++) {
			const int i = (k + rank) % 2;

			fill(x[i], N, rank, round + i);
			OK(two[i], coll_all_reduce(x[i], x[i], N, COLL_I32, COLL_SUM, two[i], s[i]));
		}
		for (int i = 0; i < 2; i++) {
			OK(comm, coll_stream_wait(s[i], -1));
			CHECK(wrong_sums(x[i], N, size, round + i) == 0, "round %d", round);
		}
	}
	/* Blocking on one while the other is pending, in another order on every other rank. */
	for (int round = 0; round < ROUNDS; round++) {
		const int i = rank % 2;

		fill(x[i], N, rank, round);
		OK(two[i], coll_all_reduce(x[i], x[i], N, COLL_I32, COLL_SUM, two[i], s[i]));
		fill(x[!i], N, rank, round);
		OK(two[!i], coll_all_reduce(x[!i], x[!i], N, COLL_I32, COLL_SUM, two[!i], NULL));
		CHECK(wrong_sums(x[!i], N, size, round) == 0, "round %d", round);
		OK(comm, coll_stream_wait(s[i], -1));
		CHECK(wrong_sums(x[i], N, size, round) == 0, "round %d", round);
	}
	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_destroy(&s[i]));
		free(x[i]);
	}
	OK(comm, coll_comm_destroy(&two[1]));
}

/* A time limit that is reached, then not; a stream that depends on late ranks. */
static void limits(coll_comm *comm, int rank, void *arg)
{
	atomic_int *go = arg;
	coll_stream *s;
	int x = rank;

	OK(comm, coll_stream_create(&s, comm));
	if (rank == 0) {
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
		CHECK(coll_stream_query(s) == COLL_AGAIN);
		CHECK(coll_stream_wait(s, 0) == COLL_AGAIN);
		CHECK(coll_stream_wait(s, 20) == COLL_AGAIN);
		CHECK(coll_progress(comm) == COLL_AGAIN);
		atomic_store(go, 1);
	} else {
		while (!atomic_load(go))
			sched_yield();
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
	}
	while (coll_stream_wait(s, 10) == COLL_AGAIN)
		;
	OK(comm, coll_stream_query(s));
	CHECK(x == triangle(coll_comm_size(comm)));
	OK(comm, coll_stream_destroy(&s));
}

TEST(async, time_limits)
{
	for (int n = 2; n <= 3; n++) {
		atomic_int go = 0;

		run_ranks(n, limits, &go);
	}
}

/* coll_progress() alone brings it to its end. */
static void progresses(coll_comm *comm, int rank, void *arg)
{
	int *x = malloc(50000 * sizeof(int));
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	CHECK(coll_progress(comm) == COLL_OK);
	fill(x, 50000, rank, 3);
	OK(comm, coll_all_reduce(x, x, 50000, COLL_I32, COLL_SUM, comm, s));
	while (coll_progress(comm) == COLL_AGAIN)
		sched_yield();
	OK(comm, coll_stream_query(s));
	CHECK(wrong_sums(x, 50000, coll_comm_size(comm), 3) == 0);
	OK(comm, coll_stream_destroy(&s));
	free(x);
}

TEST(async, progress_by_the_caller)
{
	run_ranks(2, progresses, NULL);
	run_ranks(3, progresses, NULL);
}

/* Blocking calls among pending ones of the same communicator: in the order of the calls. */
TEST_OF_RANKS(async, blocking_among_pending, 1, RANKS_MAX)
{
	const int size = coll_comm_size(comm), next = (rank + 1) % size, prev = (rank + size - 1) % size;
	coll_stream *s;
	int x[300], y[2000], out = -1, in;

	OK(comm, coll_stream_create(&s, comm));
	for (int round = 0; round < 50; round++) {
		fill(x, 300, rank, round);
		fill(y, 2000, rank, round);
		OK(comm, coll_all_reduce(x, x, 300, COLL_I32, COLL_SUM, comm, s));
		OK(comm, coll_all_reduce(y, y, 2000, COLL_I32, COLL_SUM, comm, NULL));
		CHECK(wrong_sums(y, 2000, size, round) == 0, "round %d", round);
		in = rank + round;
		OK(comm, coll_send_recv(&in, 1, next, &out, 1, prev, COLL_I32, comm, NULL));
		CHECK(out == prev + round, "round %d: %d", round, out);
		OK(comm, coll_stream_wait(s, -1));
		CHECK(wrong_sums(x, 300, size, round) == 0, "round %d", round);
	}
	OK(comm, coll_stream_destroy(&s));
}

/* A message that comes late holds up no collective, and the other way round. */
static void apart(coll_comm *comm, int rank, void *arg)
{
	coll_stream *s, *t;
	int got = -1, x = 1, big[20000];

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_stream_create(&t, comm));
	if (rank == 0) {
		OK(comm, coll_recv(&got, 1, COLL_I32, 1, comm, s));
		OK(comm, coll_barrier(comm, NULL)); /* before rank 1 sends */
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, t));
		OK(comm, coll_recv(big, 20000, COLL_I32, 1, comm, NULL)); /* before rank 1 enters */
		CHECK(big[19999] == 19999);
	} else if (rank == 1) {
		OK(comm, coll_barrier(comm, NULL));
		OK(comm, coll_send(&rank, 1, COLL_I32, 0, comm, NULL));
		for (int i = 0; i < 20000; i++)
			big[i] = i;
		OK(comm, coll_send(big, 20000, COLL_I32, 0, comm, NULL));
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, t));
	} else {
		OK(comm, coll_barrier(comm, NULL));
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, t));
	}
	OK(comm, coll_stream_wait(s, -1));
	OK(comm, coll_stream_wait(t, -1));
	CHECK(rank != 0 || got == 1);
	CHECK(x == coll_comm_size(comm));
	OK(comm, coll_stream_destroy(&s));
	OK(comm, coll_stream_destroy(&t));
}

TEST(async, pairs_apart_from_collectives)
{
	run_ranks(2, apart, NULL);
	run_ranks(3, apart, NULL);
}

/* ---- Events ---- */

/* A stream behind an event of another one: the second call reads what the first wrote. */
TEST_OF_RANKS(async, events_order_streams, 1, RANKS_MAX)
{
	enum { N = 5000 };
	const int size = coll_comm_size(comm);
	coll_stream *s[2];
	coll_event *e[2];
	int *x = malloc(N * sizeof(int));

	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		OK(comm, coll_event_create(&e[i], comm));
		CHECK(coll_event_query(e[i]) == COLL_OK); /* never recorded */
		CHECK(coll_event_wait(e[i], -1) == COLL_OK);
	}
	for (int i = 0; i < N; i++)
		x[i] = 1;
	for (int k = 0; k < 6; k++) {
		OK(comm, coll_all_reduce(x, x, N, COLL_I32, COLL_SUM, comm, s[k % 2]));
		OK(comm, coll_event_record(e[k % 2], s[k % 2]));
		OK(comm, coll_stream_wait_event(s[!(k % 2)], e[k % 2]));
	}
	OK(comm, coll_event_wait(e[1], -1));
	CHECK(coll_event_query(e[1]) == COLL_OK);
	CHECK(x[0] == size * size * size * size * size * size, "%d", x[0]);
	CHECK(x[N - 1] == x[0]);
	OK(comm, coll_stream_destroy(&s[0]));
	CHECK(coll_event_wait(e[0], 0) == COLL_OK); /* its stream is gone */
	OK(comm, coll_event_destroy(&e[0]));
	OK(comm, coll_stream_destroy(&s[1]));
	OK(comm, coll_event_destroy(&e[1]));
	free(x);
}

/* An event is the moment it was recorded: what is put in later does not delay it. */
TEST_OF_RANKS(async, events_are_moments, 2, 2)
{
	coll_stream *s, *t;
	coll_event *e;
	int x = 1, y = 1;
	double before, first = 0, now = -1;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_stream_create(&t, comm));
	OK(comm, coll_event_create(&e, comm));
	CHECK(coll_event_time(e, &now) == COLL_ERR_ARGUMENT && now == -1); /* never recorded */
	OK(comm, coll_event_record(e, s));
	OK(comm, coll_event_time(e, &before)); /* nothing to reach */
	OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_event_record(e, s));
	if (rank == 0) {
		OK(comm, coll_recv(&y, 1, COLL_I32, 1, comm, s));
		OK(comm, coll_event_wait(e, -1));
		CHECK(x == 2);
		CHECK(coll_stream_query(s) == COLL_AGAIN);
		OK(comm, coll_event_time(e, &first));
		CHECK(first >= before);
		/* Waits for the stream as recorded first. */
		OK(comm, coll_stream_wait_event(t, e));
		OK(comm, coll_event_record(e, s));
		OK(comm, coll_stream_wait(t, -1));
		CHECK(coll_event_query(e) == COLL_AGAIN);
		CHECK(coll_event_wait(e, 5) == COLL_AGAIN);
		CHECK(coll_event_time(e, &now) == COLL_AGAIN && now == -1);
		OK(comm, coll_send(&x, 1, COLL_I32, 1, comm, NULL));
		OK(comm, coll_event_wait(e, -1));
		CHECK(y == 7);
		OK(comm, coll_event_time(e, &now));
		OK(comm, coll_event_time(e, &before));
		CHECK(now > first && now == before); /* whoever asks, and when */
	} else {
		OK(comm, coll_recv(&y, 1, COLL_I32, 0, comm, NULL));
		y = 7;
		OK(comm, coll_send(&y, 1, COLL_I32, 0, comm, NULL));
	}
	OK(comm, coll_stream_destroy(&s));
	OK(comm, coll_stream_destroy(&t));
	OK(comm, coll_event_destroy(&e));
}

/* ---- Ends ---- */

/* Destroying a communicator completes what is pending; streams, events and operations may
 * outlive it. */
TEST_OF_RANKS(async, destroy_with_pending, 1, RANKS_MAX)
{
	enum { N = 200000 };
	int *x = malloc(N * sizeof(int)), y = 1;
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *op;
	const int size = coll_comm_size(comm);
	coll_comm *own = NULL;
	coll_stream *s;
	coll_event *e;

	OK(comm, coll_comm_duplicate(comm, &own));
	OK(own, coll_stream_create(&s, own));
	OK(own, coll_event_create(&e, own));
	d.in = d.out = &y;
	d.count = 1;
	d.type = COLL_I32;
	OK(own, coll_operation_prepare(&op, &d, own));
	fill(x, N, rank, 5);
	OK(own, coll_all_reduce(x, x, N, COLL_I32, COLL_SUM, own, s));
	OK(own, coll_event_record(e, s));
	CHECK(coll_comm_destroy(&own) == COLL_OK);
	CHECK(coll_event_query(e) == COLL_OK);
	CHECK(coll_stream_query(s) == COLL_OK);
	CHECK(wrong_sums(x, N, size, 5) == 0);
	CHECK(coll_operation_start(op, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_destroy(&op) == COLL_OK);
	/* The stream serves the parent too. */
	OK(comm, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_stream_wait(s, -1));
	CHECK(y == size);
	CHECK(coll_stream_destroy(&s) == COLL_OK);
	CHECK(coll_event_destroy(&e) == COLL_OK);
	free(x);
}

/* A stream and an event that outlive the last communicator of their job. */
static void outlives(coll_comm *comm, int rank, void *arg)
{
	static int x[RANKS_MAX]; /* outlives this function, whose caller destroys the communicator */
	coll_stream **s = arg;
	coll_event *e;

	x[rank] = 1;
	OK(comm, coll_stream_create(&s[rank], comm));
	OK(comm, coll_event_create(&e, comm));
	OK(comm, coll_all_reduce(&x[rank], &x[rank], 1, COLL_I32, COLL_SUM, comm, s[rank]));
	OK(comm, coll_event_record(e, s[rank]));
	OK(comm, coll_event_destroy(&e));
}

TEST(async, streams_outlive_communicators)
{
	coll_stream *s[3] = {NULL};

	run_ranks(3, outlives, s);
	for (int r = 0; r < 3; r++) {
		CHECK(coll_stream_wait(s[r], 1000) == COLL_OK);
		CHECK(coll_stream_destroy(&s[r]) == COLL_OK);
	}
}

/* ---- The progress thread ---- */

static unsigned looks(coll_comm *comm)
{
	unsigned passes;

	coll_async_lock(comm->ctx);
	passes = comm->ctx->async->passes;
	coll_async_unlock(comm->ctx);
	return passes;
}

/* While a message does not come: what looks now and then takes the core from whoever computes. Sleeps of 50 ms
 * are three or four looks in this time, of 5 ms some 25. */
TEST_OF_RANKS(async, few_looks_at_what_does_not_come, 2, 2)
{
	enum { SETTLED_MS = 20, COUNTED_MS = 60, LOOKS_MAX = 12 };
	coll_stream *s;
	unsigned before;
	int x = 1;

	OK(comm, coll_stream_create(&s, comm));
	if (rank == 0) {
		OK(comm, coll_recv(&x, 1, COLL_I32, 1, comm, s));
		poll(NULL, 0, SETTLED_MS);
		before = looks(comm);
		poll(NULL, 0, COUNTED_MS);
		CHECK(looks(comm) - before <= LOOKS_MAX, "%u looks", looks(comm) - before);
		OK(comm, coll_send(&x, 1, COLL_I32, 1, comm, NULL));
		OK(comm, coll_stream_wait(s, -1));
	} else {
		OK(comm, coll_recv(&x, 1, COLL_I32, 0, comm, NULL));
		OK(comm, coll_send(&x, 1, COLL_I32, 0, comm, s));
		OK(comm, coll_stream_wait(s, -1));
	}
	OK(comm, coll_stream_destroy(&s));
}

ASYNC_PROGRAM(async)
