/*
 * Requests in flight: what starts before what, what overlaps, and how all of them end with their communicator.
 */
#include "call/world_test.h"

/* Numbers of the collectives that have started, in that order, are 1 to n. */
static bool started_in_order(int n)
{
	bool fine = fake_engine.nstarted == n;

	for (int i = 0; i < n && fine; i++)
		fine = fake_engine.number[i] == (uint64_t)i + 1;
	return fine;
}

/* A test between world_open() and world_close(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, world_open(), world_close())

WORLD_TEST(inflight, collectives_overlap_and_follow_each_other)
{
	struct coll_request *r[3];

	for (int i = 0; i < 3; i++)
		REQUIRE((r[i] = world_hand_in(8, NULL)));
	CHECK(started_in_order(3));
	CHECK(!fake_engine_run_of(1)->after);
	CHECK(fake_engine_run_of(2)->after == fake_engine_run_of(1));
	CHECK(fake_engine_run_of(3)->after == fake_engine_run_of(2));
	CHECK(comm->attention & COLL_ATTENTION_PENDING);
	for (uint64_t n = 1; n <= 3; n++)
		world_end(n);
	for (int i = 0; i < 3; i++)
		CHECK(world_take_back(r[i]) == COLL_OK);
}

WORLD_TEST(inflight, the_fifth_waits_for_one_to_end)
{
	struct coll_request *r[6];

	for (int i = 0; i < 6; i++)
		REQUIRE((r[i] = world_hand_in(8, NULL)));
	CHECK(started_in_order(COLL_IN_FLIGHT_MAX));
	world_end(1);
	CHECK(started_in_order(COLL_IN_FLIGHT_MAX + 1));
	CHECK(fake_engine_run_of(5) == fake_engine_run_of(1), "in the run that came free");
	world_end(2);
	CHECK(started_in_order(6));
	CHECK(comm->inflight.begun == 6);
	for (uint64_t n = 3; n <= 6; n++)
		world_end(n);
	for (int i = 0; i < 6; i++)
		CHECK(world_take_back(r[i]) == COLL_OK);
	CHECK(fake_engine.created == COLL_IN_FLIGHT_MAX);
}

WORLD_TEST(inflight, a_call_like_one_before_allocates_nothing)
{
	struct coll_request *first, *second;

	REQUIRE((first = world_hand_in(8, NULL)));
	world_end(1);
	CHECK(world_take_back(first) == COLL_OK);
	REQUIRE((second = world_hand_in(8, NULL)));
	CHECK(second == first && fake_engine.created == 1);
	world_end(2);
	CHECK(world_take_back(second) == COLL_OK);
}

WORLD_TEST(inflight, messages_of_a_pair_go_one_by_one_and_others_beside_them)
{
	struct coll_request *to_one[2], *to_two, *from_one;

	REQUIRE((to_one[0] = world_message(1, -1, NULL)));
	REQUIRE((to_one[1] = world_message(1, -1, NULL)));
	REQUIRE((to_two = world_message(2, -1, NULL)));
	REQUIRE((from_one = world_message(-1, 1, NULL)));
	CHECK(to_one[0]->state == COLL_REQUEST_RUNNING && to_one[1]->state == COLL_REQUEST_QUEUED);
	CHECK(to_two->state == COLL_REQUEST_RUNNING && from_one->state == COLL_REQUEST_RUNNING);
	CHECK(coll_pair_of(to_one[1])->sequence[0] == 2 && coll_pair_of(to_two)->sequence[0] == 1 &&
	      coll_pair_of(from_one)->sequence[1] == 1);
	coll_pair_of(to_one[0])->run[0]->polls = 0;
	coll_drive_try(comm->ctx);
	CHECK(to_one[0]->done && to_one[1]->state == COLL_REQUEST_RUNNING);
	coll_pair_of(to_one[1])->run[0]->polls = coll_pair_of(to_two)->run[0]->polls =
	        coll_pair_of(from_one)->run[1]->polls = 0;
	coll_drive_try(comm->ctx);
	CHECK(world_take_back(to_one[0]) == COLL_OK && world_take_back(to_one[1]) == COLL_OK);
	CHECK(world_take_back(to_two) == COLL_OK && world_take_back(from_one) == COLL_OK);
}

WORLD_TEST(inflight, both_halves_of_a_message_must_end)
{
	struct coll_request *r;

	REQUIRE((r = world_message(1, 2, NULL)));
	CHECK(r->wait.nruns == 2);
	coll_pair_of(r)->run[0]->polls = 0;
	coll_drive_try(comm->ctx);
	CHECK(world_take_back(r) == COLL_AGAIN);
	coll_pair_of(r)->run[1]->polls = 0;
	coll_drive_try(comm->ctx);
	CHECK(world_take_back(r) == COLL_OK);
}

WORLD_TEST(inflight, a_message_to_oneself_is_a_copy)
{
	float from[2] = {1, 2}, to[2] = {0, 0};
	const struct coll_pair pair = {
	        .send = from, .send_count = 2, .dest = 0, .recv = to, .recv_count = 2, .source = 0, .type = COLL_F32};
	struct coll_request *r;

	REQUIRE(coll_exchange_make(comm, &pair, &r) == COLL_OK);
	CHECK(coll_request_dispatch(r, NULL) == COLL_OK);
	CHECK(to[0] == 1 && to[1] == 2 && fake_engine.nstarted == 0);
}

WORLD_TEST(inflight, a_wait_has_a_limit_and_can_be_repeated)
{
	struct coll_request *r;
	uint64_t begun;

	REQUIRE((r = world_hand_in(8, NULL)));
	begun = fake_clock.now_ns;
	CHECK(coll_request_await(r, 30) == COLL_AGAIN);
	CHECK(fake_clock.now_ns >= begun + 30 * 1000000 && fake_clock.now_ns < begun + 40 * 1000000);
	CHECK(comm->ctx->async->drivers == 0);
	world_end(1);
	CHECK(world_take_back(r) == COLL_OK);
}

static void end_first(void *arg)
{
	fake_engine_run_of(1)->polls = 0;
}

WORLD_TEST(inflight, whoever_waits_drives)
{
	const struct coll_call call = world_call(8);
	struct coll_request *r;

	fake_context.on_idle = end_first;
	REQUIRE(world_make(&call, &r) == COLL_OK);
	CHECK(coll_request_dispatch(r, NULL) == COLL_OK);
	CHECK(fake_context.wakes > 0, "others may wait for it too");
}

/* The caller may change them as soon as the call returns. */
WORLD_TEST(inflight, counts_and_a_barriers_bytes_are_the_requests_own)
{
	size_t counts[FAKE_RANKS] = {1, 2, 3, 4};
	struct coll_call call = {.kind = COLL_KIND_ALL_GATHER, .count = 4, .type = COLL_F32, .ragged = true};
	const struct coll_call barrier = {.kind = COLL_KIND_BARRIER, .count = 1, .type = COLL_U8};
	const struct coll_collective_request *c;
	struct coll_request *r;

	call.out_counts = counts;
	REQUIRE(world_make(&call, &r) == COLL_OK);
	counts[2] = 99;
	CHECK(coll_collective_of(r)->job.out.counts != counts && coll_collective_of(r)->job.out.counts[2] == 3);
	coll_request_recycle(r);
	REQUIRE(world_make(&barrier, &r) == COLL_OK);
	c = coll_collective_of(r);
	CHECK(c->job.in.base == &c->token[0] && c->job.out.base == &c->token[1]);
	coll_request_recycle(r);
}

WORLD_TEST(inflight, the_record_is_of_the_oldest_collective_that_runs)
{
	struct coll_request *message, *r[2];
	struct coll_record now;

	REQUIRE((message = world_message(1, -1, NULL)));
	REQUIRE((r[0] = world_hand_in(8, NULL)));
	REQUIRE((r[1] = world_hand_in(16, NULL)));
	coll_record_read(&comm->record, &now);
	CHECK(now.active && now.sequence == 1 && now.count == 8);
	world_end(1);
	coll_record_read(&comm->record, &now);
	CHECK(now.active && now.sequence == 2 && now.count == 16);
	world_end(2);
	coll_record_read(&comm->record, &now);
	CHECK(now.active && now.kind == COLL_KIND_SEND_RECV);
	coll_pair_of(message)->run[0]->polls = 0;
	coll_drive_try(comm->ctx);
	coll_record_read(&comm->record, &now);
	CHECK(!now.active && now.kind == COLL_KIND_SEND_RECV, "what ended last");
	CHECK(world_take_back(message) == COLL_OK);
	CHECK(world_take_back(r[0]) == COLL_OK && world_take_back(r[1]) == COLL_OK);
}

/* ---- Errors ---- */

WORLD_TEST(inflight, an_error_ends_all_requests_of_the_communicator)
{
	struct coll_request *r[6], *message;

	for (int i = 0; i < 6; i++)
		REQUIRE((r[i] = world_hand_in(8, NULL)));
	REQUIRE((message = world_message(1, -1, NULL)));
	fake_engine_run_of(2)->end = COLL_ERR_SYSTEM;
	fake_watch.inquire = COLL_ERR_PEER_DEAD;
	world_end(2);
	CHECK(fake_watch.faulty == fake_engine_run_of(2));
	for (uint64_t n = 1; n <= 4; n++)
		CHECK(fake_engine_run_of(n)->cancelled == 1 &&
		              fake_engine_run_of(n)->cancelled_with == COLL_ERR_PEER_DEAD,
		      "run %d", (int)n);
	CHECK(!world_started(5), "nothing starts any more");
	for (int i = 0; i < 6; i++)
		CHECK(world_take_back(r[i]) == COLL_ERR_PEER_DEAD, "request %d", i);
	CHECK(world_take_back(message) == COLL_ERR_PEER_DEAD);
	CHECK(!comm->ctx->async->ready);
}

WORLD_TEST(inflight, while_a_fault_is_inquired_into_nothing_else_is_polled)
{
	struct coll_request *r[2];
	int polled;

	REQUIRE((r[0] = world_hand_in(8, NULL)));
	REQUIRE((r[1] = world_hand_in(8, NULL)));
	fake_engine_run_of(1)->end = COLL_ERR_SYSTEM;
	fake_watch.unknown = 2;
	fake_watch.inquire = COLL_ERR_SYSTEM;
	world_end(1);
	polled = fake_engine_run_of(2)->polled;
	CHECK(fake_watch.inquired == 1 && comm->failed == COLL_OK);
	coll_drive_try(comm->ctx);
	CHECK(fake_engine_run_of(2)->polled == polled);
	coll_drive_try(comm->ctx);
	CHECK(comm->failed == COLL_ERR_SYSTEM);
	CHECK(world_take_back(r[0]) == COLL_ERR_SYSTEM && world_take_back(r[1]) == COLL_ERR_SYSTEM);
}

WORLD_TEST(inflight, an_alarm_ends_all)
{
	struct coll_request *r;

	REQUIRE((r = world_hand_in(8, NULL)));
	fake_watch.heed = COLL_ERR_ABORTED;
	coll_drive_try(comm->ctx);
	CHECK(world_take_back(r) == COLL_ERR_ABORTED);
}

WORLD_TEST(inflight, a_deadline_ends_all)
{
	struct coll_request *r[2];

	REQUIRE((r[0] = world_hand_in(8, NULL)));
	REQUIRE((r[1] = world_hand_in(8, NULL)));
	fake_watch.inspect = COLL_ERR_PEER_LATE;
	for (int i = 0; i < 16; i++)
		coll_drive_try(comm->ctx);
	CHECK(fake_watch.inspected == 1, "of the oldest, and not at each look");
	CHECK(world_take_back(r[0]) == COLL_ERR_PEER_LATE && world_take_back(r[1]) == COLL_ERR_PEER_LATE);
}

WORLD_TEST(inflight, what_cannot_start_ends_all)
{
	struct coll_request *r[2];

	REQUIRE((r[0] = world_hand_in(8, NULL)));
	fake_engine.refuse = COLL_ERR_MEMORY;
	REQUIRE((r[1] = world_hand_in(8, NULL)));
	CHECK(comm->failed == COLL_ERR_MEMORY && strstr(fake_core.cause, "cannot start the plan"));
	CHECK(world_take_back(r[0]) == COLL_ERR_MEMORY && world_take_back(r[1]) == COLL_ERR_MEMORY);
}

WORLD_TEST(inflight, a_failed_communicator_takes_nothing)
{
	const struct coll_call call = world_call(8);
	struct coll_request *r;

	comm->failed = COLL_ERR_ABORTED;
	REQUIRE(world_make(&call, &r) == COLL_OK);
	CHECK(coll_request_dispatch(r, NULL) == COLL_ERR_ABORTED);
	CHECK(comm->sequence == 0 && fake_engine.nstarted == 0);
}

WORLD_TEST(inflight, a_call_that_is_refused_leaves_nothing)
{
	const struct coll_call call = world_call(8);
	const struct coll_pair pair = {.dest = 1, .source = -1, .send_count = 1, .type = COLL_F32};
	struct coll_request *r = NULL;

	fake_select.refuse = COLL_ERR_UNSUPPORTED;
	CHECK(world_make(&call, &r) == COLL_ERR_UNSUPPORTED && !r);
	fake_select.refuse_pair = COLL_ERR_MEMORY;
	CHECK(coll_exchange_make(comm, &pair, &r) == COLL_ERR_MEMORY && !r);
	CHECK(comm->failed == COLL_OK);
}

/* ---- The communicator as a whole ---- */

WORLD_TEST(drive, a_lost_communicator_ends_what_is_pending)
{
	struct coll_request *r;

	REQUIRE((r = world_hand_in(8, NULL)));
	CHECK(coll_comm_status(comm) == COLL_OK);
	CHECK(coll_comm_lose(comm, COLL_ERR_SYSTEM, 2, "lost") == COLL_ERR_SYSTEM);
	CHECK(fake_core.culprit == 2 && coll_comm_status(comm) == COLL_ERR_SYSTEM);
	CHECK(world_take_back(r) == COLL_ERR_SYSTEM);
}

WORLD_TEST(drive, a_call_attends_to_an_alarm_only)
{
	struct coll_request *r;

	CHECK(coll_comm_usable(comm, "barrier", false) == COLL_OK && fake_watch.attended == 0);
	REQUIRE((r = world_hand_in(8, NULL)));
	CHECK(coll_comm_usable(comm, "barrier", false) == COLL_OK && fake_watch.attended == 0);
	atomic_fetch_or(&comm->attention, COLL_ATTENTION_ALARM);
	fake_watch.attend = COLL_ERR_ABORTED;
	CHECK(coll_comm_usable(comm, "barrier", false) == COLL_ERR_ABORTED && fake_watch.attended == 1);
	CHECK(world_take_back(r) == COLL_ERR_ABORTED, "what was pending ends with it");
}

WORLD_TEST(drive, a_drained_communicator_has_nothing_pending)
{
	REQUIRE(world_hand_in(8, NULL));
	comm->inflight.last->held = false;
	fake_context.on_idle = end_first;
	coll_comm_drain(comm);
	CHECK(comm->inflight.pending == 0);
}

/* Many messages are inspected a few at a time, all of them in turn. */
WORLD_TEST(drive, all_messages_have_their_turn)
{
	enum { N = 10, MOST = 4 };
	struct coll_request *r[N];
	int before = 0;

	for (int i = 0; i < N; i++)
		REQUIRE((r[i] = world_message(1 + i, -1, NULL)));
	for (int i = 0; i < 400; i++) {
		coll_drive_try(comm->ctx);
		CHECK(fake_watch.inspected - before <= MOST, "%d at once", fake_watch.inspected - before);
		before = fake_watch.inspected;
		fake_clock_add_ms(100);
	}
	for (int i = 0; i < N; i++)
		CHECK(r[i]->timer.begun_ns > 0, "message %d", i);
	coll_comm_lose(comm, COLL_ERR_SYSTEM, -1, "");
	for (int i = 0; i < N; i++)
		CHECK(world_take_back(r[i]) == COLL_ERR_SYSTEM);
}
