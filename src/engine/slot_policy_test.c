/*
 * Pace, told the times of a machine whose cores are near or far: it streams to a peer that is far,
 * finds out when that changes, and leaves machines alone where streaming gains nothing.
 */
#include <criterion/criterion.h>

#include "engine/slot_policy.h"

enum { SLOT = 65536, FRESH = 10 };

static const struct coll_slot_policy_rule rule = {.way = COLL_SLOT_POLICY_AUTO,
                                                  .least_bytes = 8192,
                                                  .slow_bytes_per_ns = 7,
                                                  .gain = 1.25,
                                                  .probe_bytes = 32 << 20,
                                                  .fresh = FRESH};

/* Rates in bytes per ns. */
struct machine {
	double cached, streamed;
};
static const struct machine near = {20, 12}, far = {4, 12}, slow = {4, 4.5};

/* One fill of a slot on a machine; whether it was streamed. */
static bool fill(struct coll_slot_policy *p, const struct machine *m)
{
	bool timed;
	const bool streams = coll_slot_policy_streams(p, SLOT, &timed);

	if (timed)
		coll_slot_policy_took(p, SLOT, (uint64_t)(SLOT / (streams ? m->streamed : m->cached)));
	return streams;
}

static int streamed_of(struct coll_slot_policy *p, const struct machine *m, int fills)
{
	int n = 0;

	for (int i = 0; i < fills; i++)
		n += fill(p, m);
	return n;
}

Test(slot_policy, a_near_peer_is_never_streamed_to)
{
	struct coll_slot_policy p;

	coll_slot_policy_init(&p, &rule);
	cr_expect_eq(streamed_of(&p, &near, 100000), 0);
	cr_expect_eq(p.turns, 0);
}

Test(slot_policy, a_far_peer_is_streamed_to_soon_and_probed_seldom)
{
	struct coll_slot_policy p;

	coll_slot_policy_init(&p, &rule);
	cr_expect_eq(streamed_of(&p, &far, FRESH), 0, "slots that are touched for the first time are not judged");
	for (int i = 0; i < 20 && p.state != COLL_SLOT_POLICY_FAR; i++)
		fill(&p, &far);
	cr_expect_eq(p.state, COLL_SLOT_POLICY_FAR);
	cr_expect_eq(streamed_of(&p, &far, 400), 400, "no probe yet");
	cr_expect_geq(streamed_of(&p, &far, 10000), 9900, "probes cost no more than 1 fill in 100");
}

Test(slot_policy, a_peer_that_comes_near_is_found_out)
{
	struct coll_slot_policy p;
	uint64_t bytes = 0;

	coll_slot_policy_init(&p, &rule);
	for (int round = 0; round < 3; round++) {
		streamed_of(&p, &far, 100);
		cr_assert_eq(p.state, COLL_SLOT_POLICY_FAR);
		for (bytes = 0; p.state != COLL_SLOT_POLICY_NEAR && bytes < 2 * rule.probe_bytes; bytes += SLOT)
			fill(&p, &near);
		cr_assert_eq(p.state, COLL_SLOT_POLICY_NEAR, "after %lu bytes", (unsigned long)bytes);
		cr_expect_eq(streamed_of(&p, &near, 1000), 0);
	}
	cr_expect_geq(p.turns, 6);
}

Test(slot_policy, one_fill_that_was_interrupted_changes_nothing)
{
	struct coll_slot_policy p;

	coll_slot_policy_init(&p, &rule);
	for (int i = 0; i < 1000; i++)
		cr_expect_not(fill(&p, i % 50 ? &near : &far));
	cr_expect_eq(p.turns, 0);
}

Test(slot_policy, where_streaming_gains_nothing_it_is_tried_less_and_less)
{
	struct coll_slot_policy p;
	int before, after;

	coll_slot_policy_init(&p, &rule);
	before = streamed_of(&p, &slow, 20000);
	after = streamed_of(&p, &slow, 20000);
	cr_expect_gt(before, 0);
	cr_expect_lt(before, 100);
	cr_expect_lt(after, before);
	cr_expect_neq(p.state, COLL_SLOT_POLICY_FAR);
	streamed_of(&p, &slow, 600000);
	cr_expect_gt(streamed_of(&p, &slow, 40000), 0, "but always again");
	/* What was learned of one machine is forgotten on another. */
	while (p.state != COLL_SLOT_POLICY_FAR)
		fill(&p, &far);
	cr_expect_eq(p.hold, 4 * rule.probe_bytes);
}

Test(slot_policy, few_cached_fills_are_timed)
{
	struct coll_slot_policy p;
	int timed = 0;

	coll_slot_policy_init(&p, &rule);
	for (int i = 0; i < 1000; i++) {
		bool this;

		coll_slot_policy_streams(&p, SLOT, &this);
		if (this)
			coll_slot_policy_took(&p, SLOT, (uint64_t)(SLOT / near.cached));
		timed += this;
	}
	cr_expect_gt(timed, 200);
	cr_expect_leq(timed, 250);
}

/* It finds lines where the other way left them. */
Test(slot_policy, the_first_fill_of_a_trial_does_not_count)
{
	const struct machine first = {slow.cached, 100 * slow.streamed};
	struct coll_slot_policy p;

	coll_slot_policy_init(&p, &rule);
	for (int i = 0; i < 10000; i++) {
		fill(&p, p.state == COLL_SLOT_POLICY_TRIAL && p.fills == 0 ? &first : &slow);
		cr_assert_neq(p.state, COLL_SLOT_POLICY_FAR, "after %d fills", i);
	}
	cr_expect_gt(p.turns, 0, "it was tried");
}

Test(slot_policy, a_way_that_is_forced_is_gone)
{
	struct coll_slot_policy_rule forced = rule;
	struct coll_slot_policy p;

	forced.way = COLL_SLOT_POLICY_STREAMED;
	coll_slot_policy_init(&p, &forced);
	cr_expect_eq(streamed_of(&p, &near, 100), 100);
	cr_expect(coll_slot_policy_is_far(&p, SLOT));
	cr_expect_not(coll_slot_policy_is_far(&p, 100));
	forced.way = COLL_SLOT_POLICY_CACHED;
	coll_slot_policy_init(&p, &forced);
	cr_expect_eq(streamed_of(&p, &far, 1000), 0);
	cr_expect_not(coll_slot_policy_is_far(&p, SLOT));
}
