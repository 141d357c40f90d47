/*
 * The alarm and the deadlines at faked times: what notes say, and which verdict the silence, the lateness or the loss
 * of frames of a rank gets, and when.
 */
#include "base/delay.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_context.h"
#include "tests/fakes/fake_control.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_engine.h"
#include "tests/fakes/fake_record.h"
#include "tests/fakes/fake_watch.h"
#include "tests/plain.h"
#include "watch/alarm.h"
#include "watch/watchdog.h"

enum { PEER = 2, NUMBER = 9, LOOK_MS = 50, LONG_MS = 20000, TIMEOUT_MS = 1000, LATE_MS = 5000, ASK_MS = 250 };

static struct coll_comm *comm;
static struct coll_run run;
static struct coll_record record;
static struct coll_wait wait;
static struct coll_wait_timer timer;

/* Rank 0 of 4, in collective number 9, waits for rank 2. */
static void setup(void)
{
	fake_clock_reset();
	fake_context_reset();
	fake_control_reset();
	fake_record_reset();
	fake_watch_reset();
	comm = fake_comm_open(0, 4);
	comm->ctx->control = fake_control.plane;
	comm->timeout_ms = TIMEOUT_MS;
	comm->arrival_timeout_ms = LATE_MS;
	comm->sequence = NUMBER;
	run = (struct coll_run){.polls = -1, .where = {.peer = PEER, .step = 6}};
	record = fake_record_of(comm->id, COLL_KIND_ALL_REDUCE, NUMBER, 0);
	wait = (struct coll_wait){.runs = {&run}, .nruns = 1, .record = &record};
	timer = (struct coll_wait_timer){.blocking = true};
}

/* What rank 2 answers to every question from now on: its call `number`, which it is in (or has left), and whom it
 * waits for there. */
static void peer_in(uint64_t number, bool active, int waits_for)
{
	struct coll_record r = fake_record_of(FAKE_COMM_ID, COLL_KIND_ALL_REDUCE, number, 0);

	r.active = active;
	r.waits_for = waits_for;
	fake_control_answers(PEER, &r);
}

static coll_status look(void)
{
	return coll_comm_inspect(comm, &wait, &timer, fake_clock.now_ns);
}

/* How long it takes to a verdict, looking every 50 ms; alive: the peer answers each question. -1: there is none. */
static int verdict_ms(bool alive)
{
	struct coll_peer_life *life = &fake_control.state[PEER].life;

	for (int ms = 0; ms <= LONG_MS; ms += LOOK_MS) {
		if (alive)
			life->last_answer_ns = fake_control.state[PEER].answered_ns = fake_clock.now_ns;
		else
			life->unanswered = (unsigned)(ms / ASK_MS);
		if (look() != COLL_OK)
			return ms;
		fake_clock_add_ms(LOOK_MS);
	}
	return -1;
}

static bool says(const char *part)
{
	return strstr(fake_core.cause, part) != NULL;
}

/* ---- Deadlines ---- */

/* A test behind setup(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), (void)0)

WORLD_TEST(watchdog, a_short_wait_asks_nobody)
{
	CHECK(look() == COLL_OK && timer.since_ns == fake_clock.now_ns);
	fake_clock_add_ms(ASK_MS - 1);
	CHECK(look() == COLL_OK);
	CHECK(run.polled == 0 && fake_control.asked[PEER] == 0);
	fake_clock_add_ms(1);
	CHECK(look() == COLL_OK);
	CHECK(run.polled == 1 && fake_control.asked[PEER] == 1 && fake_context.kicks == 1);
	CHECK(fake_record.waits_for == PEER && comm->box.step == 6);
}

WORLD_TEST(watchdog, what_is_asked_names_the_wait_and_is_shown)
{
	struct coll_record now;

	look();
	fake_clock_add_ms(ASK_MS);
	look();
	CHECK(fake_control.question.wait == timer.since_ns);
	REQUIRE(coll_record_read(&comm->record, &now));
	CHECK(now.active && now.waits_for == PEER && now.sequence == NUMBER);
	CHECK(fake_watch.shown == 1);
	timer.aside = true;
	record.sequence++;
	fake_clock_add_ms(LOOK_MS);
	look();
	REQUIRE(coll_record_read(&comm->record, &now));
	CHECK(now.sequence == NUMBER, "the communicator shows another wait");
}

WORLD_TEST(watchdog, a_step_that_moves_starts_the_time_anew)
{
	look();
	fake_clock_add_ms(ASK_MS);
	look();
	CHECK(timer.shown);
	run.moves = true;
	fake_clock_add_ms(LOOK_MS);
	CHECK(look() == COLL_OK);
	CHECK(timer.since_ns == 0 && !timer.shown && fake_watch.hidden == 1);
	CHECK(fake_control.asked[PEER] == 1);
}

WORLD_TEST(watchdog, a_silent_rank_is_blamed_after_the_timeout)
{
	int ms;

	ms = verdict_ms(false);
	CHECK(ms > TIMEOUT_MS && ms <= TIMEOUT_MS + 3 * LOOK_MS, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_PEER_SILENT && fake_core.culprit == PEER);
	CHECK(says("[COLL-2201] rank 2 on host host2 (process 102) is silent: no answer for 1000 ms"), "%s",
	      fake_core.cause);
	CHECK(strstr(fake_core.circumstances, "s in kind 0 number 9"), "%s", fake_core.circumstances);
}

/* This process may have been stopped: time has passed, and nobody was asked. */
WORLD_TEST(watchdog, silence_takes_unanswered_questions)
{
	comm->arrival_timeout_ms = LONG_MS;
	look();
	for (int i = 0; i < 10; i++) {
		fake_control.state[PEER].life.unanswered = 2;
		fake_clock_add_ms(TIMEOUT_MS);
		CHECK(look() == COLL_OK, "after %d s", i + 1);
	}
	fake_control.state[PEER].life.unanswered = 3;
	fake_clock_add_ms(LOOK_MS);
	look();
	fake_clock_add_ms(LOOK_MS);
	CHECK(look() == COLL_ERR_PEER_SILENT);
}

/* Between the two looks everything that had come was read. */
WORLD_TEST(watchdog, time_blames_at_the_second_look_only)
{
	look();
	fake_clock_add_ms(TIMEOUT_MS + 1);
	fake_control.state[PEER].life.unanswered = 4;
	CHECK(look() == COLL_OK);
	CHECK(fake_control.services == 1);
	fake_clock_add_ms(LOOK_MS);
	CHECK(look() == COLL_ERR_PEER_SILENT);
	CHECK(fake_control.services == 1);
}

/* Both limits pass between two looks, as after a stop of this process: silence is the more precise of the two. */
WORLD_TEST(watchdog, a_rank_that_is_silent_and_late_is_silent)
{
	look();
	fake_clock_add_ms(LATE_MS + TIMEOUT_MS);
	fake_control.state[PEER].life.unanswered = 4;
	CHECK(look() == COLL_OK);
	fake_clock_add_ms(LOOK_MS);
	CHECK(look() == COLL_ERR_PEER_SILENT, "%s", fake_core.cause);
}

WORLD_TEST(watchdog, a_rank_that_answers_and_does_not_come_is_late)
{
	int ms;

	peer_in(NUMBER - 1, false, -1);
	ms = verdict_ms(true);
	CHECK(ms > LATE_MS && ms <= LATE_MS + 3 * LOOK_MS, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_PEER_LATE && fake_core.culprit == PEER);
	CHECK(says("[COLL-2301] rank 2 on host host2 is late: alive but last seen after kind 0 number 8"), "%s",
	      fake_core.cause);
}

WORLD_TEST(watchdog, a_late_rank_that_waits_here_on_another_communicator_says_so)
{
	comm->ctx->settings.warn_ms = 30000;
	fake_control.echo = true;
	peer_in(NUMBER - 1, false, -1);
	fake_control.state[PEER].answer.abroad = fake_record_of(FAKE_COMM_ID + 1, COLL_KIND_BARRIER, 4, 0);
	CHECK(verdict_ms(true) > LATE_MS);
	CHECK(says("and waits for this rank on another communicator, in kind 9 number 4"), "%s", fake_core.cause);
	CHECK(strstr(fake_core.logged, "[COLL-5108]"), "%s", fake_core.logged);
	CHECK(fake_core.lines == 1);
}

WORLD_TEST(watchdog, nothing_moves_between_two_that_wait_for_each_other_a_frame_was_lost)
{
	int ms;

	peer_in(NUMBER, true, 0);
	ms = verdict_ms(true);
	CHECK(ms > TIMEOUT_MS && ms <= TIMEOUT_MS + 3 * LOOK_MS, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_CORRUPT && says("[COLL-3201]"), "%s", fake_core.cause);
}

/* Behind an outage both answer again, and the frame is still to come. */
WORLD_TEST(watchdog, a_frame_has_the_time_of_an_outage_as_well)
{
	int ms;

	comm->ctx->settings.timeout_ms = TIMEOUT_MS;
	comm->ctx->settings.unreachable_ms = 500;
	peer_in(NUMBER, true, 0);
	ms = verdict_ms(true);
	CHECK(ms > TIMEOUT_MS + 500 && ms <= TIMEOUT_MS + 500 + 3 * LOOK_MS, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_CORRUPT && says("for 1500 ms"), "%s", fake_core.cause);
}

WORLD_TEST(watchdog, a_rank_that_has_left_the_call_behind_has_lost_a_frame)
{
	peer_in(NUMBER + 1, true, 3);
	CHECK(verdict_ms(true) <= TIMEOUT_MS + 3 * LOOK_MS);
	CHECK(comm->failed == COLL_ERR_CORRUPT, "%s", fake_core.cause);
}

/* In the same call, but kept waiting by another: it is late, and nothing is lost. */
WORLD_TEST(watchdog, a_rank_in_the_call_that_waits_for_another_is_late)
{
	peer_in(NUMBER, true, 3);
	CHECK(verdict_ms(true) > LATE_MS);
	CHECK(comm->failed == COLL_ERR_PEER_LATE && says("alive but still in kind 0 number 9"), "%s", fake_core.cause);
}

/* Who keeps that one waiting is late, not the rank that waits in the call as this one does. */
WORLD_TEST(watchdog, the_rank_at_the_end_of_the_chain_is_late)
{
	peer_in(NUMBER, true, 3);
	fake_watch.chain_end = 3;
	fake_watch.at_the_end = fake_record_of(FAKE_COMM_ID, COLL_KIND_BARRIER, NUMBER - 2, 0);
	CHECK(verdict_ms(true) > LATE_MS);
	CHECK(comm->failed == COLL_ERR_PEER_LATE && fake_core.culprit == 3, "rank %d", fake_core.culprit);
	CHECK(says("[COLL-2301] rank 3 on host host3 is late: alive but last seen after kind 9 number 7"), "%s",
	      fake_core.cause);
}

WORLD_TEST(watchdog, a_chain_that_is_not_heard_to_its_end_delays_the_verdict)
{
	int ms;

	peer_in(NUMBER, true, 3);
	fake_watch.chain_waits = true;
	ms = verdict_ms(true);
	CHECK(ms > LATE_MS + 3000 && ms <= LATE_MS + 3000 + 3 * LOOK_MS, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_PEER_LATE && fake_core.culprit == PEER);
}

WORLD_TEST(watchdog, no_frame_of_a_message_is_lost_by_its_number)
{
	record.kind = COLL_KIND_SEND_RECV;
	peer_in(NUMBER + 5, true, 3);
	CHECK(verdict_ms(true) > LATE_MS);
	CHECK(comm->failed == COLL_ERR_PEER_LATE);
}

WORLD_TEST(watchdog, a_rank_that_said_goodbye_has_left)
{
	int ms;

	fake_control.state[PEER].life.left = true;
	fake_control.state[PEER].life.left_ns = fake_clock.now_ns;
	ms = verdict_ms(true);
	CHECK(ms > 1000 && ms < 1400, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_PEER_DEAD && says("[COLL-2102] rank 2 on host host2 left"), "%s",
	      fake_core.cause);
}

WORLD_TEST(watchdog, a_rank_that_left_after_an_error_is_not_to_blame)
{
	fake_control.state[PEER].life.left = true;
	fake_control.state[PEER].life.left_ns = fake_clock.now_ns;
	fake_control.ended_after[PEER] =
	        (struct coll_note){.status = COLL_ERR_PEER_SILENT, .process = 3, .text = "rank 3 is silent"};
	verdict_ms(true);
	CHECK(comm->failed == COLL_ERR_PEER_SILENT && fake_core.culprit == 3 && says("left after an error: rank 3"),
	      "%d: %s", fake_core.culprit, fake_core.cause);
}

WORLD_TEST(watchdog, a_rank_that_counts_as_left_is_not_said_to_have_destroyed_it)
{
	int ms;

	fake_control.state[PEER].life.presumed = true;
	fake_control.state[PEER].life.left = true;
	fake_control.state[PEER].life.left_ns = fake_clock.now_ns;
	ms = verdict_ms(true);
	CHECK(ms > 1000 && ms < 1400, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_PEER_DEAD &&
	              says("[COLL-2102] rank 2 on host host2 left: nobody listens where it did"),
	      "%s", fake_core.cause);
}

WORLD_TEST(watchdog, a_rank_that_destroyed_the_communicator_has_made_another_call)
{
	int ms;

	peer_in(NUMBER, true, 3);
	fake_control.state[PEER].answer.record.flags = COLL_RECORD_GONE;
	ms = verdict_ms(true);
	CHECK(ms > 1000 && ms < 1500, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_MISMATCH && says("this rank and rank 2"), "%s", fake_core.cause);
}

WORLD_TEST(watchdog, an_answer_with_another_call_is_a_mismatch_at_once)
{
	peer_in(NUMBER, true, 3);
	fake_watch.differs = true;
	CHECK(verdict_ms(true) == ASK_MS);
	CHECK(comm->failed == COLL_ERR_MISMATCH && says("calls differ"));
}

WORLD_TEST(watchdog, a_death_that_has_yet_to_settle_comes_before_a_mismatch)
{
	peer_in(NUMBER - 1, false, -1);
	fake_watch.differs = true;
	comm->death_ns = 1;
	CHECK(verdict_ms(true) > LATE_MS);
	CHECK(comm->failed == COLL_ERR_PEER_LATE);
}

WORLD_TEST(watchdog, a_circle_blames_who_has_not_made_the_call)
{
	peer_in(NUMBER - 1, true, 3);
	fake_watch.closes = true;
	fake_watch.circle = (struct coll_deadlock){.waiting = 3, .missing = 0, .text = "a circle"};
	CHECK(verdict_ms(true) == ASK_MS);
	CHECK(comm->failed == COLL_ERR_MISMATCH && fake_core.culprit == 3 && says("a circle"),
	      "the other one, where it is this rank's own call that is missing");
}

WORLD_TEST(watchdog, only_a_thread_that_cannot_leave_closes_a_circle)
{
	timer.blocking = false;
	peer_in(NUMBER - 1, true, 3);
	fake_watch.closes = true;
	CHECK(verdict_ms(true) > LATE_MS);
	CHECK(fake_watch.shown == 0);
}

WORLD_TEST(watchdog, without_a_control_plane_the_timeout_is_all)
{
	int ms;

	comm->ctx->control = NULL;
	ms = verdict_ms(false);
	CHECK(ms > TIMEOUT_MS && ms <= TIMEOUT_MS + 3 * LOOK_MS, "%d ms", ms);
	CHECK(says("[COLL-2202] no message from rank 2 for 1000 ms"), "%s", fake_core.cause);
}

WORLD_TEST(watchdog, a_wait_for_nobody_goes_on)
{
	run.where.peer = -1;
	CHECK(verdict_ms(false) == -1);
	run.where.peer = comm->rank;
	CHECK(verdict_ms(false) == -1);
	CHECK(fake_control.asked[PEER] == 0);
}

/* ---- Warnings ---- */

static void wait_for_warning(int ms)
{
	for (int at = 0; at < ms; at += LOOK_MS) {
		fake_control.state[PEER].life.last_answer_ns = fake_clock.now_ns;
		look();
		fake_clock_add_ms(LOOK_MS);
	}
}

WORLD_TEST(watchdog, a_warning_comes_once_with_the_chain)
{
	comm->ctx->settings.warn_ms = 2000;
	peer_in(NUMBER - 1, false, -1);
	wait_for_warning(2000);
	CHECK(fake_core.lines == 0);
	wait_for_warning(500);
	CHECK(fake_core.lines == 1);
	CHECK(strstr(fake_core.logged, "waiting 2 s for rank 2 on host host2: the chain"), "%s", fake_core.logged);
	wait_for_warning(1000);
	CHECK(fake_core.lines == 1);
}

WORLD_TEST(watchdog, a_warning_waits_for_the_chain_and_not_for_ever)
{
	comm->ctx->settings.warn_ms = 1000;
	comm->arrival_timeout_ms = LONG_MS;
	fake_watch.chain_waits = true;
	peer_in(NUMBER - 1, false, -1);
	wait_for_warning(4000);
	CHECK(fake_core.lines == 0);
	wait_for_warning(200);
	CHECK(fake_core.lines == 1 && strstr(fake_core.logged, "a part of the chain"), "%s", fake_core.logged);
}

WORLD_TEST(watchdog, warnings_can_be_switched_off)
{
	peer_in(NUMBER - 1, false, -1);
	wait_for_warning(4000);
	CHECK(fake_core.lines == 0 && fake_watch.chains == 0);
}

/* ---- The alarm ---- */

static coll_status heed(void)
{
	return coll_comm_heed_alarm(comm, &wait, &timer);
}

static void alarm_goes_off(void)
{
	comm->ctx->alarm++;
	coll_comm_alert(comm->ctx, 0);
}

static void death_of(int process, coll_status status)
{
	fake_control.facts[fake_control.nfacts++] = (struct coll_note){
	        .kind = COLL_GOSSIP_DEATH, .status = status, .process = process, .origin = 1, .text = "killed"};
	alarm_goes_off();
}

/* The others go on without this rank: it ends everything on the communicator, not its collectives alone. */
WORLD_TEST(watchdog, who_is_taken_for_dead_ends)
{
	death_of(comm->rank, COLL_ERR_PEER_SILENT);
	CHECK(heed() == COLL_OK, "what came is read first");
	CHECK(heed() == COLL_ERR_PEER_DEAD && comm->ended == COLL_ERR_PEER_DEAD && fake_core.culprit == comm->rank);
	CHECK(says("the other ranks take this rank for dead, since rank 1 of the job reported it: killed"), "%s",
	      fake_core.cause);
}

WORLD_TEST(watchdog, without_an_alarm_no_note_is_read)
{
	fake_control.has_failure = true;
	CHECK(heed() == COLL_OK);
}

WORLD_TEST(watchdog, a_failure_told_by_another_rank_is_this_ones)
{
	fake_control.has_failure = true;
	fake_control.failure = (struct coll_note){.kind = COLL_GOSSIP_FAIL,
	                                          .status = COLL_ERR_MISMATCH,
	                                          .process = 3,
	                                          .origin = 1,
	                                          .text = "calls differ"};
	alarm_goes_off();
	CHECK(comm->attention & COLL_ATTENTION_ALARM);
	CHECK(heed() == COLL_ERR_MISMATCH);
	CHECK(fake_core.culprit == 3 && says("calls differ (reported by rank 1)"), "%s", fake_core.cause);
	CHECK(comm->from_gossip && comm->told_failure && !(comm->attention & COLL_ATTENTION_ALARM));
}

/* What this rank has found is logged by this rank. */
WORLD_TEST(watchdog, a_failure_of_its_own_is_told_by_nobody)
{
	fake_control.has_failure = true;
	fake_control.failure = (struct coll_note){.kind = COLL_GOSSIP_FAIL,
	                                          .status = COLL_ERR_MISMATCH,
	                                          .process = 3,
	                                          .origin = comm->rank,
	                                          .text = "calls differ"};
	alarm_goes_off();
	CHECK(heed() == COLL_ERR_MISMATCH && says("calls differ") && !comm->told_failure, "%s", fake_core.cause);
}

/* A group that is being made heeds what is said of its parent, which counts its ranks in another way. */
WORLD_TEST(watchdog, the_ranks_in_a_note_are_those_of_its_communicator)
{
	fake_control.has_failure = true;
	fake_control.failure = (struct coll_note){.kind = COLL_GOSSIP_FAIL,
	                                          .status = COLL_ERR_PEER_LATE,
	                                          .process = 3,
	                                          .origin = 1,
	                                          .comm = comm->id,
	                                          .text = "ranks 1 and 3"};
	alarm_goes_off();
	CHECK(heed() == COLL_ERR_PEER_LATE && strcmp(fake_watch.late_text, "ranks 1 and 3") == 0);
	setup();
	fake_control.has_failure = true;
	fake_control.failure = (struct coll_note){.kind = COLL_GOSSIP_FAIL,
	                                          .status = COLL_ERR_PEER_LATE,
	                                          .process = 3,
	                                          .origin = 1,
	                                          .comm = comm->id + 1,
	                                          .text = "ranks 1 and 3"};
	comm->parent = comm->id + 1;
	alarm_goes_off();
	CHECK(heed() == COLL_ERR_PEER_LATE && fake_watch.late_text[0] == 0 && fake_core.culprit == 3);
	comm->parent = 0;
}

WORLD_TEST(watchdog, a_death_settles_first)
{
	int ms = 0;

	death_of(PEER, COLL_OK);
	for (; heed() == COLL_OK && ms < LONG_MS; ms += 10) {
		CHECK(comm->attention & COLL_ATTENTION_ALARM, "it looks again");
		fake_clock_add_ms(10);
	}
	CHECK(ms >= COLL_DELAY_SETTLE_MS && ms <= COLL_DELAY_SETTLE_MS + 10, "%d ms", ms);
	CHECK(comm->failed == COLL_ERR_PEER_DEAD && fake_core.culprit == PEER);
	CHECK(says("rank 2 is dead"), "%s", fake_core.cause);
}

WORLD_TEST(watchdog, the_note_of_a_better_informed_rank_comes_before_the_death)
{
	death_of(PEER, COLL_OK);
	CHECK(heed() == COLL_OK);
	fake_clock_add_ms(COLL_DELAY_SETTLE_MS / 2);
	fake_control.has_failure = true;
	fake_control.failure = (struct coll_note){
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_ABORTED, .process = 3, .origin = 3, .text = "aborted"};
	CHECK(heed() == COLL_ERR_ABORTED);
	CHECK(fake_core.culprit == 3);
}

WORLD_TEST(watchdog, of_a_host_out_of_reach_nobody_is_better_informed)
{
	death_of(PEER, COLL_ERR_PEER_SILENT);
	CHECK(heed() == COLL_OK && fake_control.services == 1, "what came is read first");
	CHECK(heed() == COLL_ERR_PEER_DEAD);
}

WORLD_TEST(watchdog, the_first_of_two_deaths_is_named)
{
	death_of(3, COLL_ERR_PEER_SILENT);
	death_of(PEER, COLL_ERR_PEER_SILENT);
	heed();
	CHECK(heed() == COLL_ERR_PEER_DEAD && fake_core.culprit == 3);
}

WORLD_TEST(watchdog, the_death_of_no_member_is_no_concern)
{
	death_of(-1, COLL_OK);
	CHECK(heed() == COLL_OK);
	CHECK(comm->death_ns == 0 && !(comm->attention & COLL_ATTENTION_ALARM));
}

WORLD_TEST(watchdog, a_lost_link_of_two_members_is_a_failure)
{
	fake_control.facts[fake_control.nfacts++] = (struct coll_note){
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_SYSTEM, .process = 3, .origin = 1, .text = "no link"};
	alarm_goes_off();
	CHECK(heed() == COLL_ERR_SYSTEM && fake_core.culprit == 1);
}

/* What another rank has concluded from it for the communicator comes first, or the note of the link itself. */
WORLD_TEST(watchdog, a_rank_does_not_blame_itself_for_its_own_link)
{
	fake_control.facts[fake_control.nfacts++] = (struct coll_note){
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_PEER_DEAD, .process = 0, .origin = 2, .text = "lost"};
	fake_control.has_failure = true;
	fake_control.failure = (struct coll_note){.kind = COLL_GOSSIP_FAIL,
	                                          .comm = comm->id,
	                                          .status = COLL_ERR_PEER_DEAD,
	                                          .process = 0,
	                                          .origin = 3,
	                                          .text = "lost (reported by rank 2)"};
	alarm_goes_off();
	CHECK(heed() == COLL_ERR_PEER_DEAD && fake_core.culprit == 2, "%d", fake_core.culprit);
}

WORLD_TEST(watchdog, of_a_lost_link_its_end_names_the_other)
{
	fake_control.facts[fake_control.nfacts++] = (struct coll_note){
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_PEER_DEAD, .process = 0, .origin = 2, .text = "lost"};
	alarm_goes_off();
	CHECK(heed() == COLL_ERR_PEER_DEAD && fake_core.culprit == 2, "%d", fake_core.culprit);
}

WORLD_TEST(watchdog, an_abort_needs_no_alarm)
{
	snprintf(comm->abort_text, sizeof(comm->abort_text), "enough");
	atomic_store(&comm->aborted, true);
	CHECK(heed() == COLL_ERR_ABORTED);
	CHECK(fake_core.culprit == 0 && says("enough"));
}

WORLD_TEST(watchdog, a_call_attends_to_what_was_told_before)
{
	CHECK(coll_comm_attend(comm, "barrier") == COLL_OK);
	death_of(PEER, COLL_ERR_PEER_SILENT);
	CHECK(coll_comm_attend(comm, "barrier") == COLL_OK);
	CHECK(comm->attention & COLL_ATTENTION_ALARM, "the next call looks again");
	CHECK(coll_comm_attend(comm, "barrier") == COLL_ERR_PEER_DEAD);
	CHECK(strcmp(comm->box.kind, "barrier") == 0 && comm->box.operation == NUMBER + 1);
}

WORLD_TEST(watchdog, an_alert_is_for_one_communicator_or_all)
{
	struct coll_comm *other;

	other = fake_comm_second();
	coll_comm_alert(comm->ctx, other->id);
	CHECK(!coll_comm_needs_note(comm->ctx, comm->id) && coll_comm_needs_note(comm->ctx, other->id));
	coll_comm_alert(comm->ctx, 0);
	CHECK(coll_comm_needs_note(comm->ctx, comm->id));
	CHECK(!coll_comm_needs_note(comm->ctx, 1), "there is no such communicator");
}
