/*
 * Questions and answers about calls that differ: two ranks with a history each, one asks, the other answers, and the
 * first judges.
 */
#include <limits.h>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_record.h"
#include "tests/plain.h"
#include "watch/mismatch.h"

enum { ASKER, OTHER, KIND = COLL_KIND_ALL_REDUCE };

/* Counts of the calls of a rank, 1 and on; 0 ends them. */
typedef const int history[40];

static struct coll_mismatch_msg question;
static struct coll_answer answer;
static char text[400];

/* The communicator of a rank that has made these calls and is in the last. */
static struct coll_comm *after(int rank, history counts)
{
	struct coll_comm *comm = fake_comm_open(rank, 2);
	struct coll_record r = {.sequence = 0};

	fake_record_reset();
	for (int i = 0; counts[i]; i++) {
		r = fake_record_of(comm->id, KIND, (uint64_t)i + 1, (uint64_t)counts[i]);
		if (i == 0 || counts[i] != counts[i - 1])
			coll_record_publish(&comm->call_run[comm->call_runs++ % COLL_CALL_RUNS], &r);
		comm->handed_in = comm->sequence = r.sequence;
	}
	coll_record_publish(&comm->record, &r);
	return comm;
}

static void ask(history counts)
{
	struct coll_comm *comm = after(ASKER, counts);
	struct coll_record mine;

	coll_record_read(&comm->record, &mine);
	coll_mismatch_question(comm, &mine, NULL, UINT64_MAX, &question);
}

static bool answer_of(history counts)
{
	return coll_mismatch_answer(after(OTHER, counts)->ctx, ASKER, &question, &answer);
}

static bool differ(history asker, history other)
{
	text[0] = 0;
	ask(asker);
	return answer_of(other) &&
	       coll_mismatch_differs(after(ASKER, asker), OTHER, &question, &answer, text, sizeof(text));
}

static bool agree(history asker, history other)
{
	ask(asker);
	return answer_of(other) && coll_mismatch_agrees(after(ASKER, asker), OTHER, &question, &answer);
}

TEST(mismatch, equal_calls_agree)
{
	history a = {8, 8, 16}, ahead = {8, 8, 16, 4, 4};

	CHECK(agree(a, a));
	CHECK(!differ(a, a));
	CHECK(agree(a, ahead), "the other is two calls ahead");
	CHECK(!differ(a, ahead));
}

TEST(mismatch, the_first_call_that_differs_is_named)
{
	history a = {8, 8, 8, 16}, b = {8, 8, 4, 16};

	REQUIRE(differ(a, b));
	CHECK(strcmp(text,
	             "[COLL-3101] calls differ: rank 0 calls kind 0 count 8 number 3, rank 1 calls kind 0 count 4 "
	             "number 3") == 0,
	      "%s", text);
	CHECK(!agree(a, b));
}

/* In whichever of the two the run of equal calls begins. */
TEST(mismatch, a_difference_within_a_run_of_equal_calls_is_found)
{
	history even = {8, 8, 8, 8}, odd = {8, 16, 16, 16};

	REQUIRE(differ(even, odd));
	CHECK(strstr(text, "count 8 number 2, rank 1 calls kind 0 count 16 number 2"), "%s", text);
	REQUIRE(differ(odd, even));
	CHECK(strstr(text, "count 16 number 2, rank 1 calls kind 0 count 8 number 2"), "%s", text);
}

TEST(mismatch, a_rank_behind_neither_agrees_nor_differs)
{
	history a = {8, 16, 4}, behind = {8, 16};

	CHECK(!differ(a, behind));
	CHECK(!agree(a, behind));
	CHECK(answer.record.sequence == 2 && answer.call.sequence == 0);
}

TEST(mismatch, a_rank_without_calls_answers)
{
	history a = {8}, none = {0};

	CHECK(!differ(a, none));
	CHECK(answer.record.comm == FAKE_COMM_ID && answer.record.sequence == 0);
}

TEST(mismatch, an_answer_to_another_question_counts_for_nothing)
{
	history a = {8, 8}, b = {8, 16};

	CHECK(differ(a, b));
	answer.sequence--;
	CHECK(!coll_mismatch_differs(after(ASKER, a), OTHER, &question, &answer, text, sizeof(text)));
}

TEST(mismatch, a_call_that_ended_is_no_more_active)
{
	history a = {8, 16}, ahead = {8, 16, 4};

	ask(a);
	REQUIRE(answer_of(ahead));
	CHECK(answer.call.sequence == 2 && !answer.call.active);
	REQUIRE(answer_of(a));
	CHECK(answer.call.sequence == 2 && answer.call.active);
}

TEST(mismatch, what_is_overwritten_does_not_count_as_different)
{
	int many[40] = {0}, other[40] = {0};

	for (int i = 0; i < 39; i++)
		many[i] = other[i] = i % 2 + 1;
	other[2] = 99;
	CHECK(!differ(many, other), "%s", text);
}

TEST(mismatch, questions_that_make_no_sense_are_not_answered)
{
	history a = {8};

	ask(a);
	question.about = COLL_ABOUT_END;
	CHECK(!answer_of(a));
	ask(a);
	question.call_runs = COLL_MISMATCH_CALL_RUNS + 1;
	CHECK(!answer_of(a));
	ask(a);
	question.record.comm = 1;
	CHECK(!answer_of(a), "there is no such communicator");
}

TEST(mismatch, a_communicator_that_is_gone_is_known)
{
	history a = {8};
	struct coll_comm *comm;

	ask(a);
	comm = after(OTHER, a);
	comm->ctx->comms = NULL;
	comm->ctx->gone[0] = comm->id;
	comm->ctx->ngone = 1;
	CHECK(coll_mismatch_answer(comm->ctx, ASKER, &question, &answer));
	CHECK(answer.record.flags & COLL_RECORD_GONE);
}

/* ---- Messages ---- */

static void message(struct coll_comm *comm, int half, int peer, uint64_t number, uint64_t count)
{
	fake_record_add(&comm->recorder, &(struct coll_op_record){.sequence = number,
	                                                          .count = count,
	                                                          .kind = COLL_KIND_SEND_RECV,
	                                                          .op = (uint8_t)half,
	                                                          .root = peer,
	                                                          .type = COLL_F32});
}

/* Rank 0 receives message 2 of 10 elements, of which rank 1 has sent so many. */
static bool messages_differ(uint64_t sent)
{
	history none = {0};
	struct coll_entry entry = {.version = 4}; /* number 1 on the ring */
	struct coll_record mine = fake_record_of(FAKE_COMM_ID, COLL_KIND_SEND_RECV, 0, 10);
	struct coll_comm *comm = after(ASKER, none);

	message(comm, 1, OTHER, 1, 7);
	message(comm, 1, OTHER, 2, 10);
	coll_mismatch_question(comm, &mine, &entry, UINT64_MAX, &question);
	comm = after(OTHER, none);
	message(comm, 0, ASKER, 1, 7);
	message(comm, 0, ASKER, 2, sent);
	if (!coll_mismatch_answer(comm->ctx, ASKER, &question, &answer))
		return false;
	comm = after(ASKER, none);
	message(comm, 1, OTHER, 1, 7);
	message(comm, 1, OTHER, 2, 10);
	return coll_mismatch_differs(comm, OTHER, &question, &answer, text, sizeof(text));
}

TEST(mismatch, the_two_ends_of_a_message_are_compared)
{
	char wanted[128];

	CHECK(!messages_differ(10));
	CHECK(question.about == COLL_ABOUT_SENT && question.sequence == 2, "what it receives the other has sent");
	REQUIRE(messages_differ(9));
	snprintf(wanted, sizeof(wanted),
	         "rank 0 calls kind %d count 10 number 2, rank 1 calls kind %d count 9 number 2", COLL_KIND_SEND_RECV,
	         COLL_KIND_SEND_RECV);
	CHECK(strstr(text, wanted), "%s", text);
}

TEST(mismatch, a_message_that_is_not_recorded_is_no_question)
{
	history none = {0};
	struct coll_record mine = fake_record_of(FAKE_COMM_ID, COLL_KIND_SEND_RECV, 0, 10);

	coll_mismatch_question(after(ASKER, none), &mine, NULL, UINT64_MAX, &question);
	CHECK(question.sequence == 0, "no message has number 0");
}

/* ---- What else an answer says ---- */

/* The fake pair counts are equal on both ranks, so what one sends (2) the other does not expect (3). */
TEST(mismatch, block_lengths_that_differ_are_named)
{
	history a = {8};
	struct coll_comm *comm;

	ask(a);
	comm = after(OTHER, a);
	comm->pair_counts.ready = true;
	REQUIRE(coll_mismatch_answer(comm->ctx, ASKER, &question, &answer));
	CHECK(answer.to == 2 && answer.from == 3 && answer.pair_counts == 1);
	comm = after(ASKER, a);
	comm->pair_counts.ready = true;
	REQUIRE(coll_mismatch_differs(comm, OTHER, &question, &answer, text, sizeof(text)));
	CHECK(strstr(text,
	             "sends 2 elements to rank 1, rank 1 calls kind 0 count 8 number 1 and expects 3 from rank 0"),
	      "%s", text);
	answer.to = 3;
	answer.from = 2;
	CHECK(!coll_mismatch_differs(comm, OTHER, &question, &answer, text, sizeof(text)));
	CHECK(coll_mismatch_agrees(comm, OTHER, &question, &answer));
	answer.pair_counts = 0;
	CHECK(!coll_mismatch_agrees(comm, OTHER, &question, &answer), "the lengths were not compared");
}

static void show(struct coll_comm *comm, int peer)
{
	const struct coll_blocked s = {.call = fake_record_of(comm->id, KIND, 6, 0),
	                               .peer = peer,
	                               .blocked = 1,
	                               .shown_ns = fake_clock.now_ns};

	coll_words_publish(&comm->blocked.version, comm->blocked.word, &s, COLL_BLOCKED_WORDS);
}

TEST(mismatch, what_a_rank_waits_for_is_told_with_its_age)
{
	history a = {8};
	struct coll_comm *comm;

	fake_clock_reset();
	ask(a);
	question.third = ASKER;
	comm = after(OTHER, a);
	comm->pair_sequence[0][ASKER] = 4;
	comm->pair_sequence[1][ASKER] = 5;
	show(comm, ASKER);
	fake_clock_add_ms(30);
	REQUIRE(coll_mismatch_answer(comm->ctx, ASKER, &question, &answer));
	CHECK(answer.blocked.peer == ASKER && answer.blocked.shown_ns == 30 * 1000000u);
	CHECK(answer.sent == 4 && answer.received == 5);
	CHECK(!answer.abroad.active);
}

TEST(mismatch, a_wait_for_the_asker_on_another_communicator_is_told)
{
	history a = {8};
	struct coll_comm *comm;

	fake_clock_reset();
	ask(a);
	comm = after(OTHER, a);
	show(fake_comm_second(), ASKER);
	REQUIRE(coll_mismatch_answer(comm->ctx, ASKER, &question, &answer));
	CHECK(answer.abroad.active && answer.abroad.comm == FAKE_COMM_ID + 1 && answer.abroad.sequence == 6);
	CHECK(answer.blocked.peer == -1, "on this one it waits for nobody");
}
