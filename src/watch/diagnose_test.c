/*
 * Faults: a run has ended with an error, and its cause is looked for. Which of link end, note and answer is believed,
 * and from when on.
 */
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_control.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_engine.h"
#include "tests/fakes/fake_record.h"
#include "tests/fakes/fake_watch.h"
#include "tests/plain.h"
#include "watch/diagnose.h"

enum { PEER = 2, LOOK_MS = 50, LONG_MS = 10000 };

static struct coll_comm *comm;
static struct coll_run run;
static struct coll_record record;
static struct coll_wait wait;
static struct coll_wait_timer timer;
static coll_status fault;

static void setup(coll_status st)
{
	fake_clock_reset();
	fake_control_reset();
	fake_watch_reset();
	comm = fake_comm_open(0, 4);
	comm->ctx->control = fake_control.plane;
	fault = st;
	run = (struct coll_run){.end = st, .where = {.peer = PEER, .step = 6}};
	record = fake_record_of(comm->id, COLL_KIND_ALL_REDUCE, 9, 0);
	wait = (struct coll_wait){.runs = {&run}, .nruns = 1, .record = &record};
	timer = (struct coll_wait_timer){.since_ns = 0};
}

static coll_status look(void)
{
	return coll_comm_inquire(comm, &wait, &timer, &run, fault);
}

/* How long it takes until a verdict, looking every 50 ms; -1: there is none. */
static int verdict_ms(void)
{
	for (int ms = 0; ms <= LONG_MS; ms += LOOK_MS) {
		if (look() != COLL_OK)
			return ms;
		fake_clock_add_ms(LOOK_MS);
	}
	return -1;
}

/* ---- A link has ended ---- */

TEST(diagnose, a_broken_link_blames_nobody_before_the_cause_had_time_to_come)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	CHECK(verdict_ms() == 1200);
	CHECK(fake_watch.status == COLL_ERR_PEER_DEAD && fake_watch.culprit == PEER);
	CHECK(strstr(fake_watch.cause, "step 6 with rank 2"), "%s", fake_watch.cause);
	CHECK(comm->box.step == 6);
}

TEST(diagnose, a_note_comes_before_the_end_of_a_link)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	CHECK(look() == COLL_OK);
	fake_clock_add_ms(LOOK_MS);
	fake_watch.heed = COLL_ERR_ABORTED;
	CHECK(look() == COLL_ERR_ABORTED);
	CHECK(fake_watch.culprit == -1, "not the end of the link");
}

TEST(diagnose, a_death_settles_before_the_end_of_a_link_is_the_cause)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	comm->death_ns = 1;
	CHECK(verdict_ms() == -1);
	comm->death_ns = 0;
	CHECK(verdict_ms() == 1200);
}

TEST(diagnose, a_link_that_was_closed_is_a_rank_that_left)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_CLOSED;
	CHECK(verdict_ms() == 1200);
	CHECK(fake_watch.culprit == PEER);
	CHECK(strstr(fake_watch.cause, "[COLL-2102] rank 2 on host host2 left"), "%s", fake_watch.cause);
}

TEST(diagnose, a_goodbye_makes_a_broken_link_a_rank_that_left)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	fake_control.state[PEER].life.left = true;
	CHECK(verdict_ms() == 1200);
	CHECK(strstr(fake_watch.cause, "[COLL-2102]"), "%s", fake_watch.cause);
}

TEST(diagnose, a_host_out_of_reach_took_its_time_before)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_UNREACHED;
	CHECK(verdict_ms() == 500);
}

TEST(diagnose, the_rank_whose_link_is_broken_is_blamed_not_the_one_waited_for)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[3] = COLL_LINK_BROKEN;
	CHECK(verdict_ms() == 1200);
	CHECK(fake_watch.culprit == 3);
}

TEST(diagnose, whose_link_stands_is_suspected_once)
{
	setup(COLL_ERR_PEER_DEAD);
	look();
	look();
	CHECK(fake_control.ntold == 1);
	CHECK(fake_control.told[0].kind == COLL_GOSSIP_DEATH && fake_control.told[0].process == PEER);
}

TEST(diagnose, who_took_back_what_it_loaned_is_asked)
{
	setup(COLL_ERR_ABORTED);
	look();
	look();
	CHECK(fake_control.ntold == 0 && fake_control.asked[PEER] == 1);
}

TEST(diagnose, what_the_control_links_brought_is_read_before_blaming)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	fake_watch.lags = true;
	CHECK(verdict_ms() == 1200 + LOOK_MS, "one more look");
}

TEST(diagnose, an_end_waits_until_it_is_known_who_died)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	comm->closing = true;
	CHECK(verdict_ms() == -1);
	fake_watch.heed = COLL_ERR_PEER_DEAD;
	CHECK(look() == COLL_ERR_PEER_DEAD);
}

TEST(diagnose, without_a_control_plane_the_link_is_the_cause)
{
	setup(COLL_ERR_PEER_DEAD);
	comm->ctx->control = NULL;
	CHECK(verdict_ms() == 0);
}

/* A stopped process counts for a quarter of the time at most. */
TEST(diagnose, time_without_uptime_does_not_count)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	for (int i = 0; i < 4; i++) {
		CHECK(look() == COLL_OK, "look %d", i);
		fake_clock_add_ms(LONG_MS);
	}
	CHECK(look() == COLL_ERR_PEER_DEAD);
}

/* ---- A frame of another call ---- */

TEST(diagnose, the_sender_of_a_frame_of_another_call_is_asked_what_it_calls)
{
	setup(COLL_ERR_MISMATCH);
	run.where.frame.sequence = 12;
	CHECK(look() == COLL_OK);
	CHECK(look() == COLL_OK);
	CHECK(fake_control.asked[PEER] == 1, "once");
	fake_clock_add_ms(LOOK_MS);
	fake_control_answers(PEER, &record);
	fake_watch.differs = true;
	CHECK(look() == COLL_ERR_MISMATCH);
	CHECK(fake_watch.culprit == PEER && strcmp(fake_watch.cause, "calls differ") == 0, "%s", fake_watch.cause);
}

TEST(diagnose, an_answer_from_before_the_fault_is_not_the_answer)
{
	setup(COLL_ERR_MISMATCH);
	fake_control_answers(PEER, &record);
	fake_watch.differs = true;
	CHECK(look() == COLL_OK);
	fake_clock_add_ms(1);
	fake_control_answers(PEER, &record);
	fake_control.state[PEER].about_this = false;
	CHECK(look() == COLL_OK, "the answer is to another question");
}

TEST(diagnose, a_frame_of_another_call_from_a_rank_in_the_same_call_is_corrupt)
{
	setup(COLL_ERR_MISMATCH);
	look();
	fake_clock_add_ms(LOOK_MS);
	fake_control_answers(PEER, &record);
	fake_watch.agrees = true;
	CHECK(look() == COLL_ERR_CORRUPT);
	CHECK(strstr(fake_watch.cause, "[COLL-3202] a frame from rank 2 is corrupt"), "%s", fake_watch.cause);
}

TEST(diagnose, who_passes_on_a_frame_of_another_call_is_not_to_blame)
{
	setup(COLL_ERR_MISMATCH);
	look();
	fake_clock_add_ms(LOOK_MS);
	fake_control_answers(PEER, &record);
	fake_watch.agrees = true;
	fake_watch.behind = 1;
	CHECK(look() == COLL_ERR_MISMATCH);
	CHECK(fake_watch.culprit == 1 && strcmp(fake_watch.cause, "that of the rank behind it") == 0, "%s",
	      fake_watch.cause);
}

TEST(diagnose, a_sender_that_does_not_answer_is_named_after_a_while)
{
	setup(COLL_ERR_MISMATCH);
	run.where.frame.sequence = 12;
	CHECK(verdict_ms() == 1200);
	CHECK(fake_watch.status == COLL_ERR_MISMATCH);
	CHECK(strstr(fake_watch.cause, "rank 0 is in call number 9, rank 2 sent a frame of a different call number 12"),
	      "%s", fake_watch.cause);
}

TEST(diagnose, a_sender_that_destroyed_the_communicator_differs)
{
	setup(COLL_ERR_MISMATCH);
	look();
	fake_clock_add_ms(LOOK_MS);
	fake_control_answers(PEER, &record)->record.flags = COLL_RECORD_GONE;
	CHECK(look() == COLL_OK, "its note may be under way");
	fake_clock_add_ms(LOOK_MS + 1);
	CHECK(look() == COLL_ERR_MISMATCH);
	CHECK(strcmp(fake_watch.cause, "this rank and rank 2") == 0, "%s", fake_watch.cause);
}

TEST(diagnose, a_death_settles_before_a_mismatch_is_judged)
{
	setup(COLL_ERR_MISMATCH);
	comm->death_ns = 1;
	CHECK(verdict_ms() == -1);
	CHECK(fake_control.asked[PEER] == 0);
}

TEST(diagnose, other_errors_are_their_own_cause)
{
	setup(COLL_ERR_SYSTEM);
	coll_error_set(&comm->box, COLL_ERR_SYSTEM, "the cable was cut");
	CHECK(verdict_ms() == 0);
	CHECK(fake_watch.status == COLL_ERR_SYSTEM);
	CHECK(strcmp(fake_watch.cause, "the cable was cut") == 0, "%s", fake_watch.cause);
}

/* The run that is polled next may have another error: the first one is the fault. */
TEST(diagnose, the_first_error_is_the_fault)
{
	setup(COLL_ERR_PEER_DEAD);
	fake_core.link_end[PEER] = COLL_LINK_BROKEN;
	look();
	fault = COLL_ERR_SYSTEM;
	CHECK(look() == COLL_OK);
	CHECK(timer.fault == COLL_ERR_PEER_DEAD);
}
