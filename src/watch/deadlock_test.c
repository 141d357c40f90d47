/*
 * Circles of waiting, judged from what ranks answer: who waits for whom, for what, and for how long.
 */
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_control.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_record.h"
#include "tests/plain.h"
#include "watch/deadlock.h"
#include "watch/watchdog.h"

enum { RANKS = 10 };

static struct coll_comm *comm;
static struct coll_wait_timer timer;
static struct coll_blocked mine;

/* Rank 0 of n, in a wait since 1 s. */
static void setup(int n)
{
	fake_clock_reset();
	fake_control_reset();
	fake_control.echo = true;
	comm = fake_comm_open(0, n);
	comm->ctx->control = fake_control.plane;
	timer = (struct coll_wait_timer){.since_ns = fake_clock.now_ns, .blocking = true};
	fake_clock_add_ms(2000);
}

static struct coll_blocked waits(int peer, enum coll_need need, uint64_t number, uint64_t issued)
{
	return (struct coll_blocked){.call = fake_record_of(FAKE_COMM_ID, COLL_KIND_ALL_REDUCE, number, 0),
	                             .issued = issued,
	                             .number = number,
	                             .peer = peer,
	                             .need = need,
	                             .unmoved_ms = 2000,
	                             .blocked = 1,
	                             .alone = 1};
}

/* Rank r, which `before` waits for, says that it waits like this. */
static struct coll_answer *says(int r, int before, struct coll_blocked s)
{
	struct coll_answer *a = fake_control_answers(r, &s.call);

	a->blocked = s;
	a->wait = timer.since_ns;
	a->third = before;
	return a;
}

static bool closes(struct coll_deadlock *circle)
{
	*circle = (struct coll_deadlock){.waiting = -1, .missing = -1};
	return coll_deadlock_closes(comm, &timer, &mine, mine.peer, &fake_control.state[mine.peer], circle);
}

/* Rank 0 receives the first message of rank 1, which is in its first collective and waits for rank 0. */
static void two(void)
{
	setup(2);
	mine = waits(1, COLL_NEEDS_MESSAGE, 1, 0);
	says(1, 0, waits(0, COLL_NEEDS_CALL, 1, 1));
}

TEST(deadlock, what_is_shown_is_seen_until_it_is_hidden)
{
	struct coll_blocked seen;

	setup(2);
	CHECK(!coll_deadlock_look(comm, &seen));
	mine = waits(1, COLL_NEEDS_MESSAGE, 4, 0);
	coll_deadlock_show(comm, &timer, &mine);
	CHECK(timer.shown);
	REQUIRE(coll_deadlock_look(comm, &seen));
	CHECK(seen.peer == 1 && seen.number == 4 && seen.need == COLL_NEEDS_MESSAGE);
	coll_deadlock_hide(comm, &timer);
	CHECK(!timer.shown);
	CHECK(!coll_deadlock_look(comm, &seen));
}

TEST(deadlock, two_that_wait_for_calls_not_made_are_a_circle)
{
	struct coll_deadlock circle;

	two();
	REQUIRE(closes(&circle));
	CHECK(circle.waiting == 0 && circle.missing == 1);
	CHECK(strstr(circle.text, "each waits for the other"), "%s", circle.text);
	CHECK(strstr(circle.text, "rank 0 calls kind 0 number 1, rank 1 calls kind 0 number 1"), "%s", circle.text);
}

TEST(deadlock, a_message_that_was_sent_is_no_edge)
{
	struct coll_deadlock circle;

	two();
	fake_control.state[1].answer.sent = 1;
	CHECK(!closes(&circle));
}

TEST(deadlock, two_in_the_same_collective_are_no_circle)
{
	struct coll_deadlock circle;

	setup(2);
	mine = waits(1, COLL_NEEDS_CALL, 3, 3);
	says(1, 0, waits(0, COLL_NEEDS_CALL, 3, 3));
	CHECK(!closes(&circle));
}

TEST(deadlock, an_answer_to_another_wait_counts_for_nothing)
{
	struct coll_deadlock circle;

	two();
	fake_control.state[1].answer.wait--;
	CHECK(!closes(&circle));
}

TEST(deadlock, a_peer_that_is_not_blocked_breaks_the_circle)
{
	struct coll_deadlock circle;

	two();
	fake_control.state[1].answer.blocked.blocked = 0;
	CHECK(!closes(&circle));
}

/* Room may come from what else the other does: only if nothing else is pending, and nothing has moved for long. */
TEST(deadlock, whoever_waits_for_room_must_be_settled)
{
	struct coll_deadlock circle;

	two();
	fake_control.state[1].answer.blocked.need = COLL_NEEDS_ROOM;
	CHECK(closes(&circle));
	fake_control.state[1].answer.blocked.unmoved_ms = 999;
	CHECK(!closes(&circle), "rank 1 has moved a moment ago");
	fake_control.state[1].answer.blocked.unmoved_ms = 1000;
	mine.alone = 0;
	CHECK(!closes(&circle), "something else of rank 0 may give room");
}

/* 0 waits for a message of 1, who waits for one of 2, who is in a collective that rank 0 has not made. */
static void three(void)
{
	setup(3);
	mine = waits(1, COLL_NEEDS_MESSAGE, 1, 0);
	says(1, 0, waits(2, COLL_NEEDS_MESSAGE, 1, 0));
	says(2, 1, waits(0, COLL_NEEDS_CALL, 1, 1));
}

TEST(deadlock, three_are_a_circle)
{
	struct coll_deadlock circle;

	three();
	REQUIRE(closes(&circle));
	CHECK(fake_control.asked[2] == 1 && fake_control.asked[1] == 0, "the caller asks rank 1");
	CHECK(fake_control.question.third == 1 && fake_control.question.about == COLL_ABOUT_NOTHING);
	CHECK(strstr(circle.text, "in a cycle"), "%s", circle.text);
}

/* Rank 0 is one collective ahead of rank 1, which waits in the one before for rank 2: no difference. Rank 2 waits for a
 * message of rank 0, which has not sent any. */
TEST(deadlock, who_is_only_ahead_is_not_named)
{
	struct coll_deadlock circle;

	setup(3);
	mine = waits(1, COLL_NEEDS_CALL, 5, 5);
	says(1, 0, waits(2, COLL_NEEDS_CALL, 4, 4));
	says(2, 1, waits(0, COLL_NEEDS_MESSAGE, 1, 3));
	REQUIRE(closes(&circle));
	CHECK(circle.waiting == 1 && circle.missing == 2, "%d and %d: %s", circle.waiting, circle.missing, circle.text);
}

TEST(deadlock, a_circle_of_three_needs_fresh_answers)
{
	struct coll_deadlock circle;

	three();
	fake_clock_add_ms(400);
	CHECK(closes(&circle));
	fake_clock_add_ms(1);
	CHECK(!closes(&circle), "the answers are older than 400 ms");
	three();
	fake_control.state[2].answer.blocked.shown_ns = 201 * 1000000u;
	CHECK(!closes(&circle), "what rank 2 shows is older than 200 ms");
}

TEST(deadlock, a_circle_that_leaves_this_rank_out_is_others_business)
{
	struct coll_deadlock circle;

	three();
	fake_control.state[2].answer.blocked.peer = 1;
	CHECK(!closes(&circle));
}

TEST(deadlock, a_rank_that_has_not_answered_leaves_it_open)
{
	struct coll_deadlock circle;

	three();
	fake_control.state[2].answered_ns = 0;
	CHECK(!closes(&circle));
}

/* Ranks 0 .. n-1, each waits for a message of the next. */
static bool ring_closes(int n)
{
	struct coll_deadlock circle;

	setup(n);
	mine = waits(1, COLL_NEEDS_MESSAGE, 1, 0);
	for (int r = 1; r < n; r++)
		says(r, r - 1, waits((r + 1) % n, COLL_NEEDS_MESSAGE, 1, 0));
	return closes(&circle);
}

TEST(deadlock, eight_are_followed_and_no_more)
{
	CHECK(ring_closes(8));
	CHECK(!ring_closes(9));
}
