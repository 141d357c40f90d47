/*
 * Chains of waiting, as text: followed from answer to answer, to an end, a circle or a rank that has not answered.
 */
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_control.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_record.h"
#include "tests/plain.h"
#include "watch/wait_chain.h"

enum { RANKS = 12, KIND = COLL_KIND_ALL_REDUCE };

static struct coll_comm *comm;
static char text[COLL_CHAIN_TEXT];

static void setup(void)
{
	fake_clock_reset();
	fake_control_reset();
	comm = fake_comm_open(0, RANKS);
	comm->ctx->control = fake_control.plane;
}

/* Rank r has answered: it is in its call `number` and waits for `peer`; -1: for nobody. */
static void says(int r, uint64_t number, int peer)
{
	struct coll_record record = fake_record_of(FAKE_COMM_ID, KIND, number, 0);

	record.waits_for = peer;
	fake_control_answers(r, &record);
}

/* What rank 0 says of rank 1 while it is in its call number 5. */
static bool describe(bool impatient)
{
	const struct coll_record mine = fake_record_of(FAKE_COMM_ID, KIND, 5, 0);

	return coll_wait_chain_describe(comm, &mine, 1, impatient, text);
}

/* A test behind setup(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), (void)0)

WORLD_TEST(wait_chain, a_rank_behind_was_last_seen_after_a_call)
{
	says(1, 4, -1);
	CHECK(describe(false));
	CHECK(strcmp(text, "alive, last seen after kind 0 number 4") == 0, "%s", text);
	CHECK(fake_control.asked[1] == 0, "the caller asks it");
}

WORLD_TEST(wait_chain, a_rank_behind_that_waits_is_in_its_call)
{
	says(1, 4, 0);
	CHECK(describe(false));
	CHECK(strcmp(text, "alive, in kind 0 number 4, waits for this rank") == 0, "%s", text);
}

WORLD_TEST(wait_chain, each_link_is_asked_and_named)
{
	says(1, 5, 2);
	says(2, 5, 3);
	says(3, 2, -1);
	CHECK(describe(false));
	CHECK(strcmp(text, "alive, in kind 0 number 5, waits for rank 2, which is alive, in kind 0 number 5, waits for "
	                   "rank 3, which is alive, last seen after kind 0 number 2") == 0,
	      "%s", text);
	CHECK(fake_control.asked[2] == 1 && fake_control.asked[3] == 1);
	CHECK(fake_control.question.about == COLL_ABOUT_NOTHING && fake_control.question.third == -1);
}

WORLD_TEST(wait_chain, who_has_not_answered_is_waited_for_unless_impatient)
{
	says(1, 5, 2);
	CHECK(!describe(false));
	CHECK(describe(true));
	CHECK(strcmp(text, "alive, in kind 0 number 5, waits for rank 2, which has not answered") == 0, "%s", text);
}

WORLD_TEST(wait_chain, an_answer_of_two_seconds_ago_is_none)
{
	says(2, 5, -1);
	fake_clock_add_ms(2000);
	says(1, 5, 2);
	CHECK(!describe(false));
}

WORLD_TEST(wait_chain, a_circle_of_others_is_called_one)
{
	says(1, 5, 2);
	says(2, 5, 1);
	CHECK(describe(false));
	CHECK(strstr(text, "waits for rank 1: a cycle"), "%s", text);
}

WORLD_TEST(wait_chain, a_record_of_another_communicator_waits_for_nobody_here)
{
	says(1, 5, 2);
	fake_control.state[1].answer.record.comm++;
	CHECK(describe(false));
	CHECK(strcmp(text, "alive, last seen after kind 0 number 5") == 0, "%s", text);
}

WORLD_TEST(wait_chain, a_long_chain_ends_within_its_text)
{
	for (int r = 1; r < RANKS - 1; r++)
		says(r, 5, r + 1);
	CHECK(describe(false));
	CHECK(strlen(text) < COLL_CHAIN_TEXT);
	CHECK(fake_control.asked[8] == 1 && fake_control.asked[9] == 0, "eight links");
}

/* The rank at the end, as rank 0 sees it that waits for rank 1. */
static int end_of_chain(bool impatient, struct coll_record *record)
{
	const struct coll_record mine = fake_record_of(FAKE_COMM_ID, KIND, 5, 0);

	return coll_wait_chain_end(comm, &mine, 1, impatient, record);
}

WORLD_TEST(wait_chain, the_end_is_the_rank_that_waits_for_nobody)
{
	struct coll_record record;

	says(1, 5, 2);
	says(2, 5, 3);
	says(3, 2, -1);
	CHECK(end_of_chain(false, &record) == 3);
	CHECK(record.sequence == 2);
	says(3, 5, 0);
	CHECK(end_of_chain(false, &record) == 3, "it waits for this rank");
}

WORLD_TEST(wait_chain, an_end_that_has_not_answered_is_waited_for_unless_impatient)
{
	struct coll_record record;

	says(1, 5, 2);
	CHECK(end_of_chain(false, &record) == -1);
	CHECK(fake_control.asked[2] == 1);
	CHECK(end_of_chain(true, &record) == 1);
}

WORLD_TEST(wait_chain, a_circle_has_no_end)
{
	struct coll_record record;

	says(1, 5, 2);
	says(2, 5, 3);
	says(3, 5, 2);
	CHECK(end_of_chain(false, &record) == 1);
}
