/*
 * The folder as a whole over a fake control plane: verdicts that several of its files make together.
 */
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_context.h"
#include "tests/fakes/fake_control.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_engine.h"
#include "tests/fakes/fake_record.h"
#include "tests/plain.h"
#include "watch/diagnose.h"
#include "watch/mismatch.h"
#include "watch/pair_counts.h"

enum { PEER = 1, LOOK_MS = 50, LONG_MS = 20000, KIND = COLL_KIND_ALL_REDUCE };

static struct coll_comm *comm;
static struct coll_run run;
static struct coll_record record;
static struct coll_wait wait;
static struct coll_wait_timer timer;

/* Rank 0 of n is in its call number 1, of 8 elements, and waits for rank 1. */
static void setup(int n)
{
	fake_clock_reset();
	fake_context_reset();
	fake_control_reset();
	fake_control.echo = true;
	fake_record_reset();
	comm = fake_comm_open(0, n);
	comm->ctx->control = fake_control.plane;
	run = (struct coll_run){.polls = -1, .where = {.peer = PEER}};
	record = fake_record_of(comm->id, KIND, 1, 8);
	coll_record_publish(&comm->call_run[0], &record);
	coll_record_publish(&comm->record, &record);
	comm->call_runs = 1;
	comm->handed_in = comm->sequence = 1;
	wait = (struct coll_wait){.runs = {&run}, .nruns = 1, .record = &record};
	timer = (struct coll_wait_timer){.blocking = true, .alone = true};
}

static struct coll_blocked waits(int peer, enum coll_need need, uint64_t number, uint64_t issued)
{
	return (struct coll_blocked){.call = fake_record_of(FAKE_COMM_ID, COLL_KIND_BARRIER, number, 0),
	                             .issued = issued,
	                             .number = number,
	                             .peer = peer,
	                             .need = need,
	                             .unmoved_ms = 2000,
	                             .blocked = 1,
	                             .alone = 1};
}

/* Rank r answers every question from now on. */
static struct coll_answer *says(int r, const struct coll_record *doing)
{
	struct coll_answer *a = fake_control_answers(r, doing);

	a->blocked.peer = -1;
	return a;
}

/* Looks every 50 ms, at which all that answer do so anew. */
static int verdict_ms(void)
{
	for (int ms = 0; ms <= LONG_MS; ms += LOOK_MS) {
		for (int r = 1; r < comm->size; r++)
			if (fake_control.state[r].answered_ns)
				fake_control.state[r].answered_ns = fake_control.state[r].life.last_answer_ns =
				        fake_clock.now_ns;
		if (coll_comm_inspect(comm, &wait, &timer, fake_clock.now_ns) != COLL_OK)
			return ms;
		fake_clock_add_ms(LOOK_MS);
	}
	return -1;
}

TEST(watch, a_call_that_differs_is_found_by_the_first_answer)
{
	const struct coll_record theirs = fake_record_of(FAKE_COMM_ID, KIND, 1, 16);

	setup(2);
	says(PEER, &theirs)->call = theirs;
	CHECK(verdict_ms() == 250);
	CHECK(comm->failed == COLL_ERR_MISMATCH && fake_core.culprit == PEER);
	CHECK(strstr(fake_core.cause, "rank 0 calls kind 0 count 8 number 1, rank 1 calls kind 0 count 16 number 1"),
	      "%s", fake_core.cause);
}

/* Rank 0 in a collective, rank 1 in a receive from rank 0: nothing has a number in common. */
TEST(watch, two_ranks_in_different_kinds_of_calls_are_a_circle)
{
	const struct coll_record theirs = fake_record_of(FAKE_COMM_ID, COLL_KIND_SEND_RECV, 0, 0);

	setup(2);
	says(PEER, &theirs)->blocked = waits(0, COLL_NEEDS_MESSAGE, 1, 0);
	CHECK(verdict_ms() == 250);
	CHECK(comm->failed == COLL_ERR_MISMATCH && strstr(fake_core.cause, "each waits for the other"), "%s",
	      fake_core.cause);
}

TEST(watch, a_circle_of_three_takes_a_second_without_movement)
{
	const struct coll_record theirs = fake_record_of(FAKE_COMM_ID, COLL_KIND_SEND_RECV, 0, 0);
	int ms;

	setup(3);
	says(1, &theirs)->blocked = waits(2, COLL_NEEDS_MESSAGE, 1, 0);
	says(2, &theirs)->blocked = waits(0, COLL_NEEDS_MESSAGE, 1, 0);
	ms = verdict_ms();
	CHECK(ms >= 1000 && ms <= 1000 + LOOK_MS, "%d ms", ms);
	CHECK(strstr(fake_core.cause, "in a cycle"), "%s", fake_core.cause);
}

TEST(watch, the_wait_shows_itself_to_others_until_it_moves)
{
	struct coll_mismatch_msg q = {.record = {.comm = FAKE_COMM_ID}, .about = COLL_ABOUT_NOTHING, .third = PEER};
	struct coll_answer a;

	setup(2);
	coll_comm_inspect(comm, &wait, &timer, fake_clock.now_ns);
	fake_clock_add_ms(250);
	coll_comm_inspect(comm, &wait, &timer, fake_clock.now_ns);
	REQUIRE(coll_mismatch_answer(comm->ctx, PEER, &q, &a));
	CHECK(a.blocked.peer == PEER && a.blocked.blocked && a.blocked.need == COLL_NEEDS_CALL);
	CHECK(a.record.active && a.record.waits_for == PEER);
	coll_wait_timer_moved(comm, &timer);
	REQUIRE(coll_mismatch_answer(comm->ctx, PEER, &q, &a));
	CHECK(a.blocked.peer == -1);
}

TEST(watch, a_warning_names_the_end_of_the_chain)
{
	struct coll_record theirs = fake_record_of(FAKE_COMM_ID, KIND, 1, 8);
	const struct coll_record none = fake_record_of(FAKE_COMM_ID, KIND, 0, 0);

	setup(3);
	comm->ctx->settings.warn_ms = 1000;
	theirs.waits_for = 2;
	says(1, &theirs)->call = theirs;
	says(2, &none);
	verdict_ms();
	CHECK(strstr(fake_core.logged, "waits for rank 2, which is alive, last seen after kind 0 number 0"), "%s",
	      fake_core.logged);
	CHECK(comm->failed == COLL_ERR_PEER_LATE);
}

/* All make the same all_to_allv, but for a length of a pair. */
TEST(watch, block_lengths_are_compared_pair_by_pair)
{
	static const size_t to[2] = {1, 8}, from[2] = {1, 8};
	const struct coll_call call = {
	        .kind = COLL_KIND_ALL_TO_ALL, .in_counts = to, .out_counts = from, .pairwise = true};
	struct coll_answer *a;

	setup(2);
	coll_pair_counts_note(&comm->pair_counts, &call, 1, 0, 2);
	a = says(PEER, &record);
	a->call = record;
	a->pair_counts = 1;
	a->to = 8;
	a->from = 9;
	CHECK(verdict_ms() == 250);
	CHECK(strstr(fake_core.cause, "sends 8 elements to rank 1") && strstr(fake_core.cause, "expects 9 from rank 0"),
	      "%s", fake_core.cause);
	coll_pair_counts_free(&comm->pair_counts);
}

TEST(watch, a_frame_of_another_call_is_explained_by_its_sender)
{
	const struct coll_record theirs = fake_record_of(FAKE_COMM_ID, KIND, 1, 16);

	setup(2);
	CHECK(coll_comm_inquire(comm, &wait, &timer, &run, COLL_ERR_MISMATCH) == COLL_OK);
	fake_clock_add_ms(1);
	says(PEER, &theirs)->call = theirs;
	fake_control.state[PEER].answer.about = COLL_ABOUT_CALLS;
	fake_control.state[PEER].answer.sequence = 1;
	CHECK(coll_comm_inquire(comm, &wait, &timer, &run, COLL_ERR_MISMATCH) == COLL_ERR_MISMATCH);
	CHECK(strstr(fake_core.cause, "rank 1 calls kind 0 count 16 number 1"), "%s", fake_core.cause);
}

/* The same fault as above, and a death that was told: who died comes first. */
TEST(watch, a_death_comes_before_a_frame_of_another_call)
{
	setup(2);
	fake_control.facts[fake_control.nfacts++] =
	        (struct coll_note){.kind = COLL_GOSSIP_DEATH, .process = PEER, .origin = 0, .text = "killed"};
	comm->ctx->alarm++;
	for (int i = 0; i < 20 && !comm->failed; i++) {
		coll_comm_inquire(comm, &wait, &timer, &run, COLL_ERR_MISMATCH);
		fake_clock_add_ms(10);
	}
	CHECK(comm->failed == COLL_ERR_PEER_DEAD && fake_core.culprit == PEER, "%s", fake_core.cause);
	CHECK(fake_control.asked[PEER] == 0);
}
