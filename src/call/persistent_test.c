/*
 * Persistent operations: prepared once, started many times, inline as long as nothing else is there.
 */
#include "call/world_test.h"

enum { COUNT = 100 };

static struct coll_operation *op;

static void end_all(void *arg)
{
	for (int i = 0; i < fake_engine.nstarted; i++)
		fake_engine.started[i]->polls = 0;
}

static struct coll_operation *prepare(size_t count)
{
	const struct coll_call call = world_call(count);
	struct coll_operation *made = NULL;

	fake_context.on_idle = end_all;
	coll_operation_make(comm, &call, &made);
	fake_context.on_idle = NULL;
	return made;
}

/* An operation is there; its preparation was call number 1. */
static bool setup(void)
{
	world_open();
	comm->ctx->comms = comm;
	op = prepare(COUNT);
	return op && fake_engine.nstarted == 1;
}

static void finish(void)
{
	coll_operation_destroy(&op);
	world_close();
}

/* A test between REQUIRE(setup()) and finish(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, REQUIRE(setup()), finish())

WORLD_TEST(persistent, preparing_compares_what_is_prepared)
{
	const struct coll_call call = world_call(COUNT);
	uint32_t first;
	struct coll_operation *other;

	first = fake_engine.started[0]->job.signature;
	CHECK(first != fake_select_signature(&call), "it is not taken for the call");
	other = prepare(COUNT);
	CHECK(fake_engine_run_of(2)->job.signature == first);
	coll_operation_destroy(&other);
	other = prepare(COUNT + 1);
	CHECK(fake_engine_run_of(3)->job.signature != first);
	coll_operation_destroy(&other);
}

WORLD_TEST(persistent, the_record_of_the_preparation_names_the_call)
{
	struct coll_record now;

	coll_record_read(&comm->record, &now);
	CHECK(now.flags == COLL_RECORD_PREPARING && now.kind == COLL_KIND_ALL_REDUCE && now.count == COUNT);
}

TEST(persistent, ranks_that_differ_get_no_operation)
{
	const struct coll_call call = world_call(COUNT);

	world_open();
	op = NULL;
	fake_watch.heed = COLL_ERR_MISMATCH;
	CHECK(coll_operation_make(comm, &call, &op) == COLL_ERR_MISMATCH && !op);
	world_close();
}

WORLD_TEST(persistent, a_second_start_restarts_the_run)
{
	struct coll_record now;

	CHECK(coll_operation_start(op, NULL) == COLL_OK);
	REQUIRE(world_started(2));
	CHECK(comm->inflight.pending == 0 && !(comm->attention & COLL_ATTENTION_PENDING), "inline");
	CHECK(fake_engine_run_of(2)->polled == 1, "what can be sent is");
	fake_engine_run_of(2)->polls = 0;
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
	coll_record_read(&comm->record, &now);
	CHECK(now.sequence == 2 && !now.active && now.flags == 0);
	comm->call_runs = 0;
	CHECK(coll_operation_start(op, NULL) == COLL_OK);
	coll_record_read(&comm->record, &now);
	CHECK(now.sequence == 3 && now.active);
	CHECK(fake_engine_run_of(3)->starts == 1 && fake_engine_run_of(3)->restarts == 1 && comm->call_runs == 0);
	end_all(NULL);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
}

WORLD_TEST(persistent, it_is_started_once_at_a_time)
{
	coll_operation_start(op, NULL);
	CHECK(coll_operation_start(op, NULL) == COLL_ERR_ARGUMENT && fake_core.refusals == 1);
	end_all(NULL);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
	CHECK(coll_operation_wait(op, -1) == COLL_OK, "again the same");
}

WORLD_TEST(persistent, a_wait_with_a_limit_hands_it_over)
{
	coll_operation_start(op, NULL);
	CHECK(coll_operation_wait(op, 20) == COLL_AGAIN);
	CHECK(comm->inflight.pending == 1 && !comm->inflight.current);
	world_end(2);
	CHECK(coll_operation_wait(op, 20) == COLL_OK);
}

WORLD_TEST(persistent, a_test_looks_and_does_not_wait)
{
	CHECK(coll_operation_test(NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_test(op) == COLL_OK, "never started: the last result");
	coll_operation_start(op, NULL);
	CHECK(coll_operation_test(op) == COLL_AGAIN);
	CHECK(comm->inflight.pending == 1 && !comm->inflight.current, "it has deadlines now");
	CHECK(coll_operation_test(op) == COLL_AGAIN);
	world_end(2);
	CHECK(coll_operation_test(op) == COLL_OK);
	CHECK(coll_operation_test(op) == COLL_OK, "again the same");
}

WORLD_TEST(persistent, a_test_ends_what_has_ended_inline)
{
	coll_operation_start(op, NULL);
	world_end(2);
	CHECK(coll_operation_test(op) == COLL_OK);
	CHECK(comm->inflight.pending == 0 && !comm->inflight.current, "never a request");
	CHECK(coll_operation_start(op, NULL) == COLL_OK, "it may start again");
	end_all(NULL);
	CHECK(coll_operation_test(op) == COLL_OK);
}

WORLD_TEST(persistent, a_test_returns_the_error)
{
	coll_operation_start(op, NULL);
	CHECK(coll_operation_test(op) == COLL_AGAIN);
	coll_inflight_lost(comm);
	CHECK(coll_operation_test(op) != COLL_AGAIN);
}

WORLD_TEST(persistent, what_comes_along_is_behind_it)
{
	struct coll_request *r;

	coll_operation_start(op, NULL);
	REQUIRE((r = world_hand_in(8, NULL)));
	CHECK(comm->inflight.pending == 2);
	CHECK(fake_engine_run_of(3)->after == fake_engine_run_of(2));
	end_all(NULL);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
	CHECK(world_take_back(r) == COLL_OK);
}

WORLD_TEST(persistent, started_while_others_are_pending_it_is_a_request)
{
	struct coll_request *r;

	REQUIRE((r = world_hand_in(8, NULL)));
	coll_operation_start(op, NULL);
	CHECK(comm->inflight.pending == 2 && fake_engine_run_of(3)->after == fake_engine_run_of(2));
	end_all(NULL);
	CHECK(coll_operation_wait(op, 20) == COLL_OK);
	CHECK(world_take_back(r) == COLL_OK);
}

WORLD_TEST(persistent, in_a_stream_it_takes_its_turn)
{
	struct coll_stream *s;

	coll_stream_create(&s, comm);
	world_hand_in(8, s);
	coll_operation_start(op, s);
	CHECK(world_started(2) && !world_started(3));
	world_end(2);
	CHECK(world_started(3));
	world_end(3);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
	coll_stream_destroy(&s);
}

WORLD_TEST(persistent, in_a_group_it_is_waited_for_when_the_group_has_ended)
{
	fake_context.on_idle = end_all;
	coll_group_begin();
	CHECK(coll_operation_start(op, NULL) == COLL_OK && !world_started(2));
	CHECK(coll_operation_wait(op, -1) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_destroy(&op) == COLL_ERR_ARGUMENT && op);
	CHECK(coll_group_end() == COLL_OK && world_started(2));
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
}

WORLD_TEST(persistent, an_error_is_told_by_the_wait)
{
	coll_operation_start(op, NULL);
	fake_engine_run_of(2)->polls = 0;
	fake_engine_run_of(2)->end = COLL_ERR_PEER_DEAD;
	fake_watch.inquire = COLL_ERR_PEER_DEAD;
	CHECK(coll_operation_wait(op, -1) == COLL_ERR_PEER_DEAD);
	CHECK(coll_operation_start(op, NULL) == COLL_ERR_PEER_DEAD, "the communicator has failed");
}

WORLD_TEST(persistent, a_start_that_fails_fails_the_communicator)
{
	fake_engine.refuse = COLL_ERR_MEMORY;
	CHECK(coll_operation_start(op, NULL) == COLL_ERR_MEMORY);
	CHECK(comm->failed == COLL_ERR_MEMORY);
	CHECK(coll_operation_wait(op, -1) == COLL_ERR_MEMORY);
}

/* Others wait for what this rank has started, also while it waits for something else. */
WORLD_TEST(persistent, a_wait_for_something_else_sweeps_it)
{
	coll_operation_start(op, NULL);
	coll_inlined_sweep(comm->ctx);
	CHECK(!comm->inflight.current && comm->inflight.pending == 1);
	CHECK(!comm->ctx->async->inlined);
	end_all(NULL);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
}

WORLD_TEST(persistent, what_another_thread_started_is_not_swept)
{
	static const char other_thread;

	coll_operation_start(op, NULL);
	atomic_store(&comm->inflight.starter, (const void *)&other_thread);
	coll_inlined_sweep(comm->ctx);
	CHECK(comm->inflight.current && comm->inflight.pending == 0);
	CHECK(comm->ctx->async->inlined, "for the other's sweep");
	end_all(NULL);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
}

WORLD_TEST(persistent, progress_moves_it)
{
	CHECK(coll_progress(comm) == COLL_OK);
	coll_operation_start(op, NULL);
	CHECK(coll_progress(comm) == COLL_AGAIN, "deadlines are watched for requests");
	CHECK(comm->inflight.pending == 1);
	end_all(NULL);
	coll_progress(comm);
	CHECK(coll_progress(comm) == COLL_OK);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
}

WORLD_TEST(persistent, without_its_communicator_it_is_an_empty_shell)
{
	coll_operations_orphan(comm);
	CHECK(coll_operation_start(op, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_operation_wait(op, -1) == COLL_OK);
}
