/*
 * How long destroy waits: by the clock, by what the control plane says, and by what the kernel has counted of data
 * links.
 */
#include "comm/outage.h"

#include "base/clock.h"
#include "base/delay.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_context.h"
#include "tests/fakes/fake_control.h"
#include "tests/plain.h"

enum { RANKS = 3, STEP_MS = 20, UNREACHABLE_MS = 10000, ALL_MS = UNREACHABLE_MS + COLL_DELAY_DESTROY_MS };

static struct coll_context ctx;
static struct coll_outage outage;

static void setup(void)
{
	fake_clock_reset();
	fake_context_reset();
	fake_control_reset();
	ctx = (struct coll_context){.rank = 0, .size = RANKS, .control = fake_control.plane};
	ctx.settings.unreachable_ms = UNREACHABLE_MS;
	ctx.settings.timeout_ms = 3 * UNREACHABLE_MS;
	coll_outage_begin(&outage);
}

static void finish(void)
{
	coll_outage_end(&outage);
}

/* A test between setup() and finish(). */
#define DESTROY_TEST(name) TEST_BETWEEN(outage, name, setup(), finish())

/* The link to rank r is up; time passes, and this share of it something was on its way there. */
static void on_its_way(int r, int ms, int percent)
{
	fake_context.counts[r].up = true;
	fake_context.counts[r].counts.busy_us += (uint64_t)ms * (uint64_t)percent * 10;
}

/* Ranks are waited for during ms; each step something is on its way to rank 1, or not. False: not that long. */
static bool waits(int ms, int percent)
{
	for (int t = 0; t < ms; t += STEP_MS) {
		fake_clock_add_ms(STEP_MS);
		if (percent > 0)
			on_its_way(1, STEP_MS, percent);
		if (coll_outage_is_late(&outage, &ctx))
			return false;
	}
	return true;
}

/* Milliseconds until those who have not come are late, less than a step too many. */
static int late_after(int percent)
{
	int t = 0;

	while (t <= 2 * ALL_MS && waits(STEP_MS, percent))
		t += STEP_MS;
	return t;
}

static bool about(int ms, int expected)
{
	return ms >= expected - STEP_MS && ms <= expected + 2 * STEP_MS;
}

DESTROY_TEST(without_one_a_late_rank_has_the_time_of_destroy)
{
	const int ms = late_after(0);

	CHECK(about(ms, COLL_DELAY_DESTROY_MS), "after %d ms", ms);
}

DESTROY_TEST(a_process_without_a_control_plane_waits_as_long)
{
	int ms;

	ctx.control = NULL;
	fake_control.cut = true; /* nobody asks */
	ms = late_after(0);
	CHECK(about(ms, COLL_DELAY_DESTROY_MS), "after %d ms", ms);
}

DESTROY_TEST(behind_a_lost_communicator_the_time_is_shorter)
{
	int ms;

	fake_control.parted = true;
	ms = late_after(0);
	CHECK(about(ms, COLL_DELAY_DESTROY_PARTED_MS), "after %d ms", ms);
}

DESTROY_TEST(that_holds_during_an_outage_too)
{
	fake_control.cut = true;
	CHECK(waits(COLL_DELAY_DESTROY_MS + COLL_DELAY_DESTROY_PARTED_MS + 3 * STEP_MS, 0));
	fake_control.parted = true;
	CHECK(coll_outage_is_late(&outage, &ctx));
}

DESTROY_TEST(an_outage_of_control_links_has_that_of_a_host_out_of_reach_as_well)
{
	int ms;

	fake_control.cut = true;
	CHECK(coll_outage_late_ms(&ctx) == ALL_MS);
	ms = late_after(0);
	CHECK(ms >= ALL_MS - STEP_MS && ms <= ALL_MS + COLL_DELAY_DESTROY_MS, "after %d ms", ms);
}

DESTROY_TEST(no_longer_than_a_silent_rank)
{
	ctx.settings.timeout_ms = UNREACHABLE_MS / 2;
	CHECK(coll_outage_late_ms(&ctx) == UNREACHABLE_MS / 2 + COLL_DELAY_DESTROY_MS);
}

DESTROY_TEST(one_that_is_over_gives_late_ranks_their_time_again)
{
	int ms;

	fake_control.cut = true;
	CHECK(waits(COLL_DELAY_DESTROY_MS + STEP_MS, 0), "it is late during the outage");
	fake_control.cut = false;
	ms = late_after(0);
	CHECK(ms <= COLL_DELAY_DESTROY_MS && ms >= COLL_DELAY_DESTROY_MS - 3 * STEP_MS, "after %d ms more", ms);
}

DESTROY_TEST(one_that_was_over_before_the_time_is_not_seen)
{
	fake_control.cut = true;
	CHECK(waits(COLL_DELAY_DESTROY_MS / 2, 0));
	fake_control.cut = false;
	CHECK(about(late_after(0), COLL_DELAY_DESTROY_MS / 2));
}

DESTROY_TEST(a_data_link_on_which_nothing_is_acknowledged_is_one)
{
	int ms;

	CHECK(waits(COLL_DELAY_DESTROY_MS + COLL_DELAY_HOST_SILENT_MS, 100), "it is late");
	ms = late_after(100);
	CHECK(ms >= ALL_MS - COLL_DELAY_DESTROY_MS - COLL_DELAY_HOST_SILENT_MS - STEP_MS, "after %d ms more", ms);
}

DESTROY_TEST(one_of_a_data_link_that_was_over_before_the_time_is_not_seen)
{
	int ms = COLL_DELAY_DESTROY_MS - COLL_DELAY_HOST_SILENT_MS + STEP_MS;

	CHECK(waits(ms, 100));
	ms += late_after(0);
	CHECK(about(ms, COLL_DELAY_DESTROY_MS), "after %d ms", ms);
}

DESTROY_TEST(what_is_acknowledged_is_none)
{
	int ms = 0;

	for (; ms <= ALL_MS && waits(STEP_MS, 100); ms += STEP_MS)
		fake_context.counts[1].counts.bytes++;
	CHECK(about(ms, COLL_DELAY_DESTROY_MS), "after %d ms", ms);
}

DESTROY_TEST(a_link_that_idles_now_and_then_is_none)
{
	const int ms = late_after(80);

	CHECK(about(ms, COLL_DELAY_DESTROY_MS), "after %d ms", ms);
}

DESTROY_TEST(the_kernel_counts_coarsely)
{
	CHECK(waits(COLL_DELAY_DESTROY_MS + COLL_DELAY_HOST_SILENT_MS, 95));
}

DESTROY_TEST(one_link_of_several_is_enough)
{
	for (int t = 0; t < COLL_DELAY_DESTROY_MS + STEP_MS; t += STEP_MS) {
		on_its_way(2, STEP_MS, 100);
		fake_context.counts[2].counts.bytes += 1000;
		CHECK(waits(STEP_MS, 100));
	}
}

DESTROY_TEST(a_link_that_was_made_since_the_last_look_is_none)
{
	CHECK(waits(COLL_DELAY_DESTROY_MS - STEP_MS, 0));
	on_its_way(1, ALL_MS, 100);
	CHECK(coll_outage_is_late(&outage, &ctx) || !waits(2 * STEP_MS, 100), "one look is not enough");
}

/* A socket that took the place of another counts from 0 again. */
DESTROY_TEST(counts_that_fall_show_none)
{
	bool late = false;

	for (int t = 0; t < COLL_DELAY_DESTROY_MS + 2 * STEP_MS && !late; t += STEP_MS) {
		fake_context.counts[1].up = true;
		fake_context.counts[1].counts.busy_us = UINT64_C(1000000) * (uint64_t)(ALL_MS - t);
		late = !waits(STEP_MS, 0);
	}
	CHECK(late);
}
