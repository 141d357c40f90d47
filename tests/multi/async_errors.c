/*
 * Asynchronous work that ends badly, or is used wrongly: aborts, errors of streams and events, of
 * operations whose communicator is lost, calls that have no place in a group, waits that
 * must not depend on who else is busy. Ranks are threads of this process.
 *
 * usage: async_errors TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"
#include "tests/seconds.h"

#include <time.h>

/* A persistent all_reduce of one int, in place. */
static coll_status prepare_one(coll_operation **op, int *x, coll_comm *comm)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;

	d.in = d.out = x;
	d.count = 1;
	d.type = COLL_I32;
	return coll_operation_prepare(op, &d, comm);
}

/* All ranks have come here. */
static void meet(atomic_int *count, int size)
{
	atomic_fetch_add(count, 1);
	while (atomic_load(count) < size)
		sched_yield();
}

/* ---- Groups ---- */

/* What is collective and returns a result at once cannot be noted; what is noted in a
 * group keeps what it needs. */
static void no_place(coll_comm *comm, int rank, void *arg)
{
	coll_comm *child = NULL, *own = comm;
	const int size = coll_comm_size(comm);
	int ranks[RANKS_MAX] = {0, 1, 2, 3, 4}, x = 1, y = 1, z = 1;
	coll_operation *op;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, prepare_one(&op, &x, comm));
	OK(comm, coll_group_begin());
	CHECK(coll_comm_split(comm, 0, 0, &child) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "group") != NULL);
	CHECK(coll_comm_duplicate(comm, &child) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_create_from_ranks(comm, ranks, size, &child) == COLL_ERR_ARGUMENT);
	CHECK(child == NULL);
	OK(comm, coll_operation_start(op, NULL));
	OK(comm, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, s));
	CHECK(coll_operation_start(op, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_wait(op, 0) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_test(op) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_wait(op, -1) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_destroy(&op) == COLL_ERR_ARGUMENT);
	CHECK(op != NULL);
	CHECK(coll_stream_destroy(&s) == COLL_ERR_ARGUMENT);
	CHECK(s != NULL);
	CHECK(coll_comm_destroy(&own) == COLL_ERR_ARGUMENT);
	CHECK(own == comm);
	OK(comm, coll_group_end());
	CHECK(x == size);
	OK(comm, coll_stream_wait(s, -1));
	CHECK(y == size);
	/* What is not noted may go. */
	OK(comm, coll_group_begin());
	OK(comm, coll_all_reduce(&z, &z, 1, COLL_I32, COLL_SUM, comm, NULL));
	OK(comm, coll_operation_destroy(&op));
	OK(comm, coll_stream_destroy(&s));
	OK(comm, coll_group_end());
	CHECK(z == size);
}

TEST(async_errors, no_place_in_a_group)
{
	run_ranks(1, no_place, NULL);
	run_ranks(3, no_place, NULL);
}

/* Which streams a rank uses is its own affair: what travels does not depend on it. */
TEST_OF_RANKS(async_errors, streams_divided_otherwise, 1, RANKS_MAX)
{
	enum { CALLS = 12 };
	const int size = coll_comm_size(comm);
	coll_stream *s[3] = {NULL};
	int x[CALLS], big[3000], late = rank;

	OK(comm, coll_stream_create(&s[1], comm));
	OK(comm, coll_stream_create(&s[2], comm));
	for (int round = 0; round < 12; round++) {
		/* Something before the group in one of the streams. */
		fill(big, 3000, rank, round);
		OK(comm, coll_all_reduce(big, big, 3000, COLL_I32, COLL_SUM, comm, s[1 + (round + rank) % 2]));
		OK(comm, coll_group_begin());
		for (int i = 0; i < CALLS; i++) {
			x[i] = rank + i + round;
			OK(comm,
			   coll_all_reduce(&x[i], &x[i], 1, COLL_I32, COLL_SUM, comm, s[(i * (rank + 1) + round) % 3]));
		}
		OK(comm, coll_group_end());
		/* Those without a stream are complete, the others in their streams' order. */
		for (int i = 0; i < CALLS; i++)
			if (!s[(i * (rank + 1) + round) % 3])
				CHECK(x[i] == size * (i + round) + triangle(size), "round %d call %d: %d", round, i,
				      x[i]);
		OK(comm, coll_all_reduce(&late, &late, 1, COLL_I32, COLL_MAX, comm, s[1]));
		OK(comm, coll_stream_wait(s[1], -1));
		OK(comm, coll_stream_wait(s[2], -1));
		for (int i = 0; i < CALLS; i++)
			CHECK(x[i] == size * (i + round) + triangle(size), "round %d call %d: %d", round, i, x[i]);
		CHECK(wrong_sums(big, 3000, size, round) == 0);
		CHECK(late == size - 1);
	}
	OK(comm, coll_stream_destroy(&s[1]));
	OK(comm, coll_stream_destroy(&s[2]));
}

/* ---- Errors of streams and events ---- */

/* The call at the first position fails after the one behind it: the event in between must
 * still tell. */
static void late_error(coll_comm *comm, int rank, void *arg)
{
	coll_comm *second = NULL;
	coll_stream *s;
	coll_event *before, *between, *end;
	int x = 1, y = 1;

	OK(comm, coll_comm_duplicate(comm, &second));
	meet(arg, 2);
	if (rank == 0) {
		OK(comm, coll_stream_create(&s, comm));
		OK(comm, coll_event_create(&before, comm));
		OK(comm, coll_event_create(&between, comm));
		OK(comm, coll_event_create(&end, comm));
		OK(comm, coll_event_record(before, s));
		OK(comm, coll_recv(&x, 1, COLL_I32, 1, comm, s));
		OK(comm, coll_event_record(between, s));
		OK(second, coll_recv(&y, 1, COLL_I32, 1, second, s));
		OK(comm, coll_event_record(end, s));
		OK(second, coll_comm_abort(second, "the one behind"));
		while (coll_last_error(second)->status != COLL_ERR_ABORTED)
			coll_progress(comm);
		CHECK(coll_event_query(before) == COLL_OK);
		CHECK(coll_event_query(between) == COLL_AGAIN);
		CHECK(coll_event_query(end) == COLL_AGAIN);
		CHECK(coll_stream_query(s) == COLL_AGAIN);
		OK(comm, coll_comm_abort(comm, "the one before"));
		CHECK(coll_event_wait(end, -1) == COLL_ERR_ABORTED);
		CHECK(coll_event_query(between) == COLL_ERR_ABORTED);
		CHECK(coll_event_query(before) == COLL_OK);
		CHECK(coll_stream_destroy(&s) == COLL_ERR_ABORTED);
		CHECK(coll_event_query(before) == COLL_OK);
		CHECK(coll_event_query(between) == COLL_ERR_ABORTED);
		coll_event_destroy(&before);
		coll_event_destroy(&between);
		coll_event_destroy(&end);
	}
	coll_comm_destroy(&second);
	CHECK(second == NULL);
}

TEST(async_errors, errors_keep_their_place)
{
	for (int i = 0; i < 5; i++) {
		atomic_int ready = 0;

		run_ranks_badly(2, late_error, &ready, NULL);
	}
}

/* An abort is heeded whatever else moves: another communicator's work is always done at
 * once here, and this rank asks nobody but for the error. */
static void busy(coll_comm *comm, int rank, void *arg)
{
	coll_comm *second = NULL;
	coll_stream *s, *t;
	coll_status st = COLL_OK;
	int x = 1, y = 1, z = 0;

	OK(comm, coll_comm_duplicate(comm, &second));
	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_stream_create(&t, comm));
	meet(arg, 2);
	if (rank == 0) {
		OK(second, coll_recv(&y, 1, COLL_I32, 1, second, t));
		OK(second, coll_comm_abort(second, "now"));
		for (int i = 0; i < 2000 && st == COLL_OK; i++) {
			OK(comm, coll_send_recv(&x, 1, 0, &z, 1, 0, COLL_I32, comm, s));
			st = coll_last_error(second)->status;
		}
		CHECK(st == COLL_ERR_ABORTED, "%d", (int)st);
		CHECK(coll_stream_wait(t, -1) == COLL_ERR_ABORTED);
	}
	OK(comm, coll_stream_destroy(&s));
	coll_stream_destroy(&t);
	coll_comm_destroy(&second);
	CHECK(second == NULL);
}

TEST(async_errors, aborts_are_heeded_among_others)
{
	atomic_int ready = 0;

	run_ranks_badly(2, busy, &ready, NULL);
}

/* Every wait ends: also that for a message which never comes, though collectives go by all
 * the time. */
TEST_OF_LOST_RANKS(async_errors, messages_have_their_deadline, 2, "COLL_ARRIVAL_TIMEOUT_MS=1200")
{
	const double until = now_s() + 20;
	coll_stream *s[2], *t;
	coll_status st = COLL_OK;
	int x[2] = {1, 1}, y = 0;

	OK(comm, coll_stream_create(&s[0], comm));
	OK(comm, coll_stream_create(&s[1], comm));
	OK(comm, coll_stream_create(&t, comm));
	if (rank == 0)
		OK(comm, coll_recv(&y, 1, COLL_I32, 1, comm, t));
	/* One of two is always on its way. */
	for (int i = 0; st == COLL_OK && now_s() < until; i++) {
		st = coll_all_reduce(&x[i % 2], &x[i % 2], 1, COLL_I32, COLL_MAX, comm, s[i % 2]);
		if (st == COLL_OK)
			st = coll_stream_wait(s[!(i % 2)], -1);
	}
	CHECK(st == COLL_ERR_PEER_LATE, "rank %d: %s: %s", rank, coll_status_string(st),
	      coll_last_error(comm)->message);
	if (rank == 0)
		CHECK(coll_stream_wait(t, -1) == st);
	coll_stream_destroy(&s[0]);
	coll_stream_destroy(&s[1]);
	coll_stream_destroy(&t);
}

/* ---- Persistent operations ---- */

/* The communicator is lost between start and wait, found by another call. */
static void lost_between(coll_comm *comm, int rank, void *arg)
{
	coll_operation *op;
	int x = 1, y = 1;

	OK(comm, prepare_one(&op, &x, comm));
	meet(arg, coll_comm_size(comm));
	if (rank == 0) {
		OK(comm, coll_operation_start(op, NULL));
		OK(comm, coll_comm_abort(comm, "in between"));
		CHECK(coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ABORTED);
		CHECK(coll_operation_wait(op, -1) == COLL_ERR_ABORTED);
		CHECK(coll_operation_wait(op, -1) == COLL_ERR_ABORTED);
		CHECK(coll_operation_start(op, NULL) == COLL_ERR_ABORTED);
	}
	coll_operation_destroy(&op);
}

TEST(async_errors, operation_of_a_lost_communicator)
{
	for (int n = 2; n <= 4; n++) {
		atomic_int ready = 0;

		run_ranks_badly(n, lost_between, &ready, NULL);
	}
}

/* The same, but the communicator is destroyed: the operation keeps its result. */
static void orphan(coll_comm *comm, int rank, void *arg)
{
	coll_comm *second = NULL;
	coll_operation *op;
	int x = 1;

	OK(comm, coll_comm_duplicate(comm, &second));
	OK(second, prepare_one(&op, &x, second));
	meet(arg, 2);
	if (rank == 0) {
		OK(second, coll_operation_start(op, NULL));
		OK(second, coll_comm_abort(second, "in between"));
	}
	coll_comm_destroy(&second);
	CHECK(second == NULL);
	CHECK(coll_operation_wait(op, -1) == (rank == 0 ? COLL_ERR_ABORTED : COLL_OK));
	CHECK(coll_operation_destroy(&op) == COLL_OK);
}

TEST(async_errors, operation_keeps_its_error)
{
	atomic_int ready = 0;

	run_ranks_badly(2, orphan, &ready, NULL);
}

/* coll_progress() alone notices that an operation will never end. */
TEST_OF_LOST_RANKS(async_errors, progress_alone_meets_deadlines, 2, "COLL_ARRIVAL_TIMEOUT_MS=1200")
{
	const double until = now_s() + 20;
	coll_operation *op;
	int x = 1;

	OK(comm, prepare_one(&op, &x, comm));
	if (rank == 0) {
		OK(comm, coll_operation_start(op, NULL));
		while (coll_progress(comm) == COLL_AGAIN && now_s() < until)
			sched_yield();
		CHECK(now_s() < until);
		CHECK(coll_operation_wait(op, 0) == COLL_ERR_PEER_LATE, "%s", coll_last_error(comm)->message);
	} else {
		while (coll_last_error(comm)->status == COLL_OK && now_s() < until) {
			coll_status st = coll_send_recv(&x, 1, rank, &(int){0}, 1, rank, COLL_I32, comm, NULL);

			if (st != COLL_OK)
				break;
			sched_yield();
		}
		CHECK(coll_last_error(comm)->status == COLL_ERR_PEER_LATE);
	}
	coll_operation_destroy(&op);
}

/* An operation begun inline, then a call on another communicator, in another order on
 * every other rank: who waits for one must advance the other. */
static void crossed(coll_comm *comm, int rank, void *arg)
{
	enum { N = 20000 };
	const int size = coll_comm_size(comm);
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_comm *second = NULL;
	coll_operation *op;
	coll_stream *s;
	int *x = malloc(N * sizeof(int)), *y = malloc(N * sizeof(int));

	OK(comm, coll_comm_duplicate(comm, &second));
	OK(comm, coll_stream_create(&s, comm));
	d.in = d.out = x;
	d.count = N;
	d.type = COLL_I32;
	OK(comm, coll_operation_prepare(&op, &d, comm));
	for (int round = 0; round < 6; round++) {
		coll_stream *const where = round % 2 ? s : NULL;

		fill(x, N, rank, round);
		fill(y, N, rank, round);
		OK(comm, coll_operation_start(op, NULL));
		if (rank % 2)
			OK(comm, coll_operation_wait(op, -1));
		OK(second, coll_all_reduce(y, y, N, COLL_I32, COLL_SUM, second, where));
		OK(second, coll_stream_wait(s, -1));
		OK(comm, coll_operation_wait(op, -1));
		CHECK(wrong_sums(x, N, size, round) == 0, "round %d", round);
		CHECK(wrong_sums(y, N, size, round) == 0, "round %d", round);
	}
	OK(comm, coll_operation_destroy(&op));
	OK(comm, coll_stream_destroy(&s));
	CHECK(coll_comm_destroy(&second) == COLL_OK);
	free(x);
	free(y);
}

TEST(async_errors, waits_advance_operations)
{
	further[0] = "COLL_ALGO=ring";
	further[1] = "COLL_ARRIVAL_TIMEOUT_MS=5000";
	for (int n = 2; n <= RANKS_MAX; n++)
		run_ranks(n, crossed, NULL);
	further[0] = further[1] = NULL;
}

/* An abort ends what is pending on every rank, on streams too; errors stick. */
static void aborts(coll_comm *comm, int rank, void *arg)
{
	coll_stream *s, *t;
	coll_event *e;
	atomic_int *waiting = arg;
	int x = 1, y = 1, z = 1;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_stream_create(&t, comm));
	OK(comm, coll_event_create(&e, comm));
	if (rank == 0) {
		while (atomic_load(waiting) < coll_comm_size(comm) - 1)
			sched_yield();
		OK(comm, coll_comm_abort(comm, "enough"));
	} else {
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
		OK(comm, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, s));
		OK(comm, coll_recv(&z, 1, COLL_I32, 0, comm, t));
		OK(comm, coll_event_record(e, s));
		atomic_fetch_add(waiting, 1);
		CHECK(coll_stream_wait(s, -1) == COLL_ERR_ABORTED);
		CHECK(coll_stream_query(s) == COLL_ERR_ABORTED);
		CHECK(coll_event_wait(e, -1) == COLL_ERR_ABORTED);
		CHECK(coll_stream_wait(t, -1) == COLL_ERR_ABORTED);
	}
	CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s) == COLL_ERR_ABORTED);
	CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ABORTED);
	CHECK(coll_last_error(comm)->status == COLL_ERR_ABORTED);
	CHECK(strstr(coll_last_error(comm)->message, "enough") != NULL, "%s", coll_last_error(comm)->message);
	/* Who aborts stays until all have heard: what becomes of others when it leaves at once is
	 * abort.c's to test. */
	atomic_fetch_add(waiting, 1);
	while (rank == 0 && atomic_load(waiting) < 2 * coll_comm_size(comm) - 1)
		sched_yield();
	CHECK(coll_stream_destroy(&s) == (rank ? COLL_ERR_ABORTED : COLL_OK));
	coll_stream_destroy(&t);
	CHECK(coll_event_destroy(&e) == COLL_OK);
}

TEST(async_errors, abort_with_pending)
{
	for (int n = 2; n <= RANKS_MAX; n++)
		for (int i = 0; i < 5; i++) {
			atomic_int waiting = 0;

			run_ranks(n, aborts, &waiting);
		}
}

/* Calls that differ, in streams: told at the end, or at the call when others were earlier. */
TEST_OF_RANKS(async_errors, differing_calls_in_streams, 2, RANKS_MAX)
{
	coll_stream *s[2];
	int x[2] = {0}, y = 0;
	coll_status st;

	OK(comm, coll_stream_create(&s[0], comm));
	OK(comm, coll_stream_create(&s[1], comm));
	st = coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, s[0]);
	CHECK(st == COLL_OK || st == COLL_ERR_MISMATCH, "rank %d: %d", rank, (int)st);
	st = coll_all_reduce(x, x, rank == 0 ? 1 : 2, COLL_I32, COLL_SUM, comm, s[1]);
	if (st == COLL_OK)
		st = coll_stream_wait(s[1], -1);
	CHECK(st == COLL_ERR_MISMATCH, "rank %d: %d", rank, (int)st);
	CHECK(strstr(coll_last_error(comm)->message, "calls differ") != NULL, "%s", coll_last_error(comm)->message);
	coll_stream_destroy(&s[0]);
	coll_stream_destroy(&s[1]);
}

TEST(async_errors, arguments)
{
	coll_comm *a[1], *b[1];
	coll_stream *s, *t;
	coll_event *e;
	int x = 1;

	if (!create(a, 1) || !create(b, 1))
		return;
	OK(a[0], coll_stream_create(&s, a[0]));
	OK(b[0], coll_stream_create(&t, b[0]));
	OK(b[0], coll_event_create(&e, b[0]));
	CHECK(coll_stream_create(NULL, a[0]) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_create(&s, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, b[0], s) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(b[0])->message, "another job") != NULL);
	CHECK(coll_event_record(e, s) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_wait_event(s, e) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_wait(NULL, 0) == COLL_ERR_ARGUMENT);
	CHECK(coll_event_wait(NULL, 0) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_destroy(NULL) == COLL_OK);
	CHECK(coll_event_destroy(NULL) == COLL_OK);
	CHECK(coll_operation_destroy(NULL) == COLL_OK);
	CHECK(coll_progress(NULL) == COLL_ERR_ARGUMENT);
	/* An argument error of a call that is put in a stream is told at once. */
	CHECK(coll_all_reduce(NULL, &x, 1, COLL_I32, COLL_SUM, a[0], s) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_wait(s, -1) == COLL_OK);
	CHECK(coll_stream_destroy(&s) == COLL_OK);
	CHECK(coll_stream_destroy(&t) == COLL_OK);
	CHECK(coll_event_destroy(&e) == COLL_OK);
	CHECK(coll_comm_destroy(&a[0]) == COLL_OK);
	CHECK(coll_comm_destroy(&b[0]) == COLL_OK);
}

ASYNC_PROGRAM(async_errors)
