/*
 * Groups: calls that are handed in together, share a place in their streams, and travel as one when they are small.
 */
#include "call/group.h"
#include "call/world_test.h"

enum { SMALL = 4, LARGE = 2000 }; /* elements of four bytes: the limit is 4096 bytes */

static float in[16][SMALL], out[16][SMALL];

static void add(int i, size_t count, coll_op op, struct coll_stream *s)
{
	struct coll_call call = world_call(count);
	struct coll_request *r;

	call.op = op;
	call.in = in[i];
	call.out = out[i];
	if (world_make(&call, &r) == COLL_OK)
		coll_request_dispatch(r, s);
}

static void setup(void)
{
	world_open();
	for (int i = 0; i < 16; i++)
		for (int k = 0; k < SMALL; k++) {
			in[i][k] = (float)(100 * i + k);
			out[i][k] = -1;
		}
}

/* Runs end, one at each pause, from the first. */
static void end_next(void *arg)
{
	for (int i = 0; i < fake_engine.nstarted; i++)
		if (fake_engine.started[i]->polls < 0) {
			fake_engine.started[i]->polls = 0;
			return;
		}
}

static const char *packed;

/* What stands for several small calls adds one to each element: then it ends. */
static void add_one(void *arg)
{
	struct coll_run *r = fake_engine.started[0];
	float *p = (float *)(void *)r->job.in.base;

	if (r->polls == 0)
		return;
	packed = r->job.in.base;
	for (size_t i = 0; i < r->job.in.count; i++)
		p[i] += 1;
	r->polls = 0;
}

/* A test between setup() and world_close(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), world_close())

WORLD_TEST(group, small_calls_travel_as_one)
{
	fake_context.on_idle = add_one;
	coll_group_begin();
	for (int i = 0; i < 3; i++)
		add(i, SMALL, COLL_SUM, NULL);
	CHECK(fake_engine.nstarted == 0 && comm->sequence == 0, "noted, and no more");
	CHECK(coll_noted_has(comm, NULL));
	CHECK(coll_group_end() == COLL_OK);
	CHECK(!coll_noted_has(comm, NULL));
	REQUIRE(fake_engine.nstarted == 1);
	CHECK(fake_engine.started[0]->job.in.count == 3 * SMALL && comm->sequence == 1);
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < SMALL; k++)
			CHECK(out[i][k] == in[i][k] + 1, "call %d, element %d: %g", i, k, (double)out[i][k]);
}

static uint32_t signature_of(size_t first, size_t second)
{
	uint32_t signature;

	setup();
	fake_context.on_idle = end_next;
	coll_group_begin();
	add(0, first, COLL_SUM, NULL);
	add(1, second, COLL_SUM, NULL);
	coll_group_end();
	signature = fake_engine.started[0]->job.signature;
	world_close();
	return signature;
}

/* Ranks that divide the same number of elements otherwise must notice. */
TEST(group, the_signature_of_several_calls_has_their_lengths)
{
	CHECK(signature_of(1, 3) == signature_of(1, 3));
	CHECK(signature_of(1, 3) != signature_of(3, 1));
	CHECK(signature_of(1, 3) != signature_of(2, 2));
}

static int started_by(size_t first, coll_op first_op, size_t second, coll_op second_op)
{
	setup();
	fake_context.on_idle = end_next;
	coll_group_begin();
	add(0, first, first_op, NULL);
	add(1, second, second_op, NULL);
	CHECK(coll_group_end() == COLL_OK);
	return fake_engine.nstarted;
}

TEST(group, calls_that_are_long_or_of_another_operation_go_alone)
{
	CHECK(started_by(1, COLL_SUM, 1, COLL_SUM) == 1);
	world_close();
	CHECK(started_by(LARGE, COLL_SUM, LARGE, COLL_SUM) == 2);
	world_close();
	CHECK(started_by(1, COLL_SUM, 1, COLL_MAX) == 2);
	world_close();
}

WORLD_TEST(group, no_more_than_32_kib_travel_as_one)
{
	static float many[16][1024], results[16][1024];
	const uint64_t whole = 8 * 1024;

	fake_context.on_idle = end_next;
	coll_group_begin();
	for (int i = 0; i < 10; i++) {
		struct coll_call call = world_call(1024);
		struct coll_request *r;

		call.in = many[i];
		call.out = results[i];
		REQUIRE(world_make(&call, &r) == COLL_OK);
		coll_request_dispatch(r, NULL);
	}
	CHECK(coll_group_end() == COLL_OK);
	CHECK(fake_engine.nstarted == 2);
	CHECK(fake_engine_run_of(1)->job.in.count == whole && fake_engine_run_of(2)->job.in.count == 2 * 1024);
}

WORLD_TEST(group, only_the_outer_end_hands_in)
{
	fake_context.on_idle = end_next;
	coll_group_begin();
	coll_group_begin();
	add(0, SMALL, COLL_SUM, NULL);
	CHECK(coll_group_end() == COLL_OK && fake_engine.nstarted == 0);
	CHECK(coll_group_end() == COLL_OK && fake_engine.nstarted == 1);
	CHECK(coll_group_end() == COLL_ERR_ARGUMENT);
}

WORLD_TEST(group, an_error_is_the_groups)
{
	coll_group_begin();
	add(0, LARGE, COLL_SUM, NULL);
	add(1, LARGE, COLL_SUM, NULL);
	fake_watch.heed = COLL_ERR_PEER_DEAD;
	CHECK(coll_group_end() == COLL_ERR_PEER_DEAD);
}

WORLD_TEST(group, a_group_that_cannot_be_handed_in_gives_all_back)
{
	coll_group_begin();
	add(0, SMALL, COLL_SUM, NULL);
	add(1, SMALL, COLL_SUM, NULL);
	add(2, LARGE, COLL_SUM, NULL);
	fake_select.refuse = COLL_ERR_MEMORY;
	CHECK(coll_group_end() == COLL_ERR_MEMORY);
	CHECK(fake_engine.nstarted == 0 && comm->sequence == 0);
}

/* ---- Streams ---- */

WORLD_TEST(group, calls_on_one_stream_share_a_position)
{
	struct coll_stream *s;

	coll_stream_create(&s, comm);
	coll_group_begin();
	add(0, LARGE, COLL_SUM, s);
	add(1, LARGE, COLL_SUM, s);
	CHECK(coll_stream_destroy(&s) == COLL_ERR_ARGUMENT && s, "the group has noted calls for it");
	CHECK(coll_group_end() == COLL_OK);
	CHECK(world_started(1) && world_started(2) && s->last == 1);
	world_hand_in(8, s);
	world_end(1);
	CHECK(!world_started(3), "behind both");
	world_end(2);
	CHECK(world_started(3));
	world_end(3);
	CHECK(coll_stream_destroy(&s) == COLL_OK);
}

WORLD_TEST(group, small_calls_of_two_streams_wait_for_both)
{
	struct coll_stream *a, *b;

	coll_stream_create(&a, comm);
	coll_stream_create(&b, comm);
	world_hand_in(8, a);
	coll_group_begin();
	add(0, SMALL, COLL_SUM, a);
	add(1, SMALL, COLL_SUM, b);
	CHECK(coll_group_end() == COLL_OK);
	CHECK(!world_started(2), "a is not there yet");
	CHECK(coll_stream_query(b) == COLL_AGAIN);
	world_end(1);
	REQUIRE(world_started(2));
	CHECK(fake_engine_run_of(2)->job.in.count == 2 * SMALL);
	world_end(2);
	CHECK(coll_stream_query(a) == COLL_OK && coll_stream_query(b) == COLL_OK);
	CHECK(out[1][2] == in[1][2]);
	coll_stream_destroy(&a);
	coll_stream_destroy(&b);
}

WORLD_TEST(group, the_end_waits_for_calls_without_a_stream_only)
{
	struct coll_stream *s;

	coll_stream_create(&s, comm);
	fake_context.on_idle = end_next;
	coll_group_begin();
	add(0, LARGE, COLL_SUM, NULL);
	add(1, LARGE, COLL_SUM, s);
	CHECK(coll_group_end() == COLL_OK);
	CHECK(coll_stream_query(s) == COLL_AGAIN);
	world_end(2);
	coll_stream_destroy(&s);
}
