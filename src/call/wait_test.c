/*
 * The wait loop and a blocking call in it: what ends a wait, what is done meanwhile, and how long sleeps are.
 */
#include "call/wait.h"
#include "call/world_test.h"
#include "inflight/loop.h"

/* ---- The loop alone ---- */

static struct script {
	int looks, last_looks, inspections;
	int waits;       /* looks that find nothing, before the end */
	int moves;       /* of those, the first that have moved something */
	coll_status end; /* of the look after them */
	coll_status inspected;
} script;

static coll_status scripted_look(void *arg, bool last, bool *moved)
{
	if (last) {
		script.last_looks++;
		return COLL_AGAIN;
	}
	if (script.looks++ == script.waits)
		return script.end;
	*moved = script.looks <= script.moves;
	return COLL_AGAIN;
}

static coll_status scripted_inspect(void *arg, uint64_t now_ns)
{
	script.inspections++;
	return script.inspected;
}

static coll_status run_loop(struct script s, struct coll_wait_loop l)
{
	struct coll_context *ctxs[2] = {comm->ctx, comm->ctx};

	script = s;
	l.ctxs = ctxs;
	l.n = l.n ? l.n : 1;
	l.look = scripted_look;
	l.inspect = scripted_inspect;
	return coll_wait_loop_run(&l);
}

/* A test between world_open() and world_close(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, world_open(), world_close())

WORLD_TEST(loop, the_first_look_may_be_the_last)
{
	CHECK(run_loop((struct script){.end = COLL_OK}, (struct coll_wait_loop){.n = 1}) == COLL_OK);
	CHECK(script.looks == 1 && script.inspections == 0 && fake_context.pauses == 0);
}

WORLD_TEST(loop, an_error_of_a_look_ends_it)
{
	CHECK(run_loop((struct script){.waits = 3, .end = COLL_ERR_SYSTEM}, (struct coll_wait_loop){.n = 1}) ==
	      COLL_ERR_SYSTEM);
	CHECK(script.looks == 4 && fake_context.pauses == 3);
}

WORLD_TEST(loop, an_error_of_an_inspection_ends_it)
{
	CHECK(run_loop((struct script){.waits = -1, .inspected = COLL_ERR_PEER_LATE},
	               (struct coll_wait_loop){.n = 1}) == COLL_ERR_PEER_LATE);
	CHECK(script.inspections == 1 && fake_context.sleeps == 0);
}

WORLD_TEST(loop, what_moves_does_not_pause)
{
	CHECK(run_loop((struct script){.waits = 5, .moves = 5}, (struct coll_wait_loop){.n = 1}) == COLL_OK);
	CHECK(fake_context.pauses == 0 && script.inspections == 0);
}

WORLD_TEST(loop, a_limit_ends_it_and_no_sleep_is_longer)
{
	const uint64_t ms = 1000000;
	uint64_t begun;

	begun = fake_clock.now_ns;
	CHECK(run_loop((struct script){.waits = -1}, (struct coll_wait_loop){.until_ns = begun + 25 * ms}) ==
	      COLL_AGAIN);
	CHECK(fake_clock.now_ns >= begun + 25 * ms && fake_clock.now_ns < begun + 27 * ms);
	CHECK(fake_context.sleeps == 3 && fake_context.last_sleep_ms < 10, "10, 10 and the rest: %d ms",
	      fake_context.last_sleep_ms);
	CHECK(script.last_looks == 3, "each sleep after a last look");
}

WORLD_TEST(loop, what_moves_all_the_time_does_not_outlast_a_limit)
{
	fake_clock.step_ns = 1000;
	CHECK(run_loop((struct script){.waits = 100000, .moves = 100000},
	               (struct coll_wait_loop){.until_ns = fake_clock.now_ns + 50000}) == COLL_AGAIN);
	CHECK(script.looks <= 52);
}

WORLD_TEST(loop, it_spins_before_it_sleeps)
{
	run_loop((struct script){.waits = 60}, (struct coll_wait_loop){.n = 1});
	CHECK(fake_context.pauses == 60 && fake_context.sleeps > 0 && fake_context.sleeps < 15);
	fake_context.sleeps = fake_context.pauses = 0;
	run_loop((struct script){.waits = 1}, (struct coll_wait_loop){.no_spin = true, .nap_ms = 50});
	CHECK(fake_context.sleeps == 1 && fake_context.pauses == 0 && fake_context.last_sleep_ms == 50);
}

WORLD_TEST(loop, several_contexts_sleep_in_turn_and_briefly)
{
	run_loop((struct script){.waits = 1}, (struct coll_wait_loop){.n = 2, .no_spin = true});
	CHECK(fake_context.sleeps == 1 && fake_context.last_sleep_ms == COLL_DELAY_SLEEP_TURN_MS);
}

/* ---- A blocking call ---- */

static struct coll_run run, second;
static struct coll_record record;

static coll_status wait_for(int nruns)
{
	const struct coll_wait w = {.runs = {&run, &second}, .nruns = nruns, .record = &record};

	return coll_comm_wait(comm, &w);
}

WORLD_TEST(wait, a_run_that_ends_soon_needs_neither_pause_nor_progress)
{
	comm->ctx->spins = true;
	run = (struct coll_run){.polls = 20};
	CHECK(wait_for(1) == COLL_OK);
	CHECK(run.polled == 21 && fake_context.pauses == 0 && fake_context.progressed == 0);
	run = (struct coll_run){.polls = 20, .awaits = true};
	CHECK(wait_for(1) == COLL_OK);
	CHECK(fake_context.progressed == 20, "completion words are out");
}

WORLD_TEST(wait, both_runs_must_end)
{
	run = (struct coll_run){.polls = 2};
	second = (struct coll_run){.polls = 9};
	CHECK(wait_for(2) == COLL_OK);
	CHECK(second.polls == 0 && run.polls == 0);
	CHECK(fake_watch.hidden >= 1, "it shows nothing any more");
}

WORLD_TEST(wait, idle_looks_make_progress_and_heed_the_alarm)
{
	run = (struct coll_run){.polls = 9};
	CHECK(wait_for(1) == COLL_OK);
	CHECK(fake_context.progressed == 9 && fake_watch.heeded == 9);
}

WORLD_TEST(wait, an_alarm_ends_it_also_while_it_moves)
{
	run = (struct coll_run){.polls = -1, .moves = true};
	fake_watch.heed = COLL_ERR_ABORTED;
	CHECK(wait_for(1) == COLL_ERR_ABORTED);
}

WORLD_TEST(wait, a_deadline_ends_it)
{
	run = (struct coll_run){.polls = -1};
	fake_watch.inspect = COLL_ERR_PEER_LATE;
	fake_watch.inspect_from_ns = fake_clock.now_ns + 1000000000;
	CHECK(wait_for(1) == COLL_ERR_PEER_LATE);
	CHECK(fake_clock.now_ns >= fake_watch.inspect_from_ns);
	CHECK(fake_watch.inspected > 50);
}

/* The cause is not known at once. */
WORLD_TEST(wait, an_error_of_a_run_ends_it_when_the_cause_is_known)
{
	run = (struct coll_run){.polls = 3};
	second = (struct coll_run){.polls = 1, .end = COLL_ERR_SYSTEM};
	fake_watch.inquire = COLL_ERR_PEER_DEAD;
	fake_watch.unknown = 3;
	CHECK(wait_for(2) == COLL_ERR_PEER_DEAD);
	CHECK(fake_watch.faulty == &second && fake_watch.inquired == 4);
	CHECK(second.polled == 2, "the fault is not polled again");
}

WORLD_TEST(wait, others_in_flight_are_driven_meanwhile)
{
	struct coll_request *r;

	r = world_hand_in(8, NULL);
	fake_engine_run_of(1)->polls = 5;
	run = (struct coll_run){.polls = 9};
	CHECK(wait_for(1) == COLL_OK);
	CHECK(atomic_load(&r->done));
	CHECK(world_take_back(r) == COLL_OK);
}

static void ring(void *arg)
{
	comm->ctx->alarm++;
}

/* What was told after this thread looked may have woken another one. */
WORLD_TEST(wait, a_note_that_comes_before_the_sleep_keeps_it_awake)
{
	uint64_t begun;

	begun = fake_clock.now_ns;
	fake_context.spun_ns = 0;
	fake_context.on_idle = ring;
	run = (struct coll_run){.polls = 9};
	CHECK(wait_for(1) == COLL_OK);
	CHECK(fake_context.sleeps > 0 && fake_clock.now_ns - begun < 1000000, "it did not sleep through one");
}
