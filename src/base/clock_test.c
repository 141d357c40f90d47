/*
 * Uptime: see clock.h.
 */
#include <criterion/criterion.h>

#include "base/clock.h"

enum { PATIENCE = 1000 };

Test(clock, what_is_looked_at_often_counts_fully)
{
	struct coll_uptime l = {0};
	uint64_t now = 5000;

	for (int i = 0; i < 10; i++, now += 100)
		cr_assert(!coll_uptime_reaches(&l, now, PATIENCE), "after %d looks", i + 1);
	cr_assert(coll_uptime_reaches(&l, now, PATIENCE));
}

Test(clock, a_stop_is_no_uptime)
{
	struct coll_uptime l = {0};

	cr_assert(!coll_uptime_reaches(&l, 5000, PATIENCE));
	cr_assert(!coll_uptime_reaches(&l, 5100, PATIENCE));
	cr_assert(!coll_uptime_reaches(&l, 5100 + 1000 * PATIENCE, PATIENCE),
	          "the first look after a stop blames nobody");
	cr_assert_eq(l.ns, 100 + PATIENCE / 4);
}

/* Who looks seldom waits for four looks, not for ever. */
Test(clock, rare_looks_end_it_too)
{
	struct coll_uptime l = {0};
	int looks = 0;

	while (!coll_uptime_reaches(&l, 5000 + (uint64_t)looks * 10 * PATIENCE, PATIENCE))
		looks++;
	cr_assert_eq(looks, 4);
}

Test(clock, a_clock_that_stands_still_adds_nothing)
{
	struct coll_uptime l = {0};

	for (int i = 0; i < 100; i++)
		cr_assert(!coll_uptime_reaches(&l, 5000, PATIENCE));
	cr_assert_eq(l.ns, 0);
}

static uint64_t by_hand(void *arg)
{
	return *(const uint64_t *)arg;
}

Test(clock, can_be_driven_by_hand)
{
	uint64_t now = 42;
	const struct coll_clock_source hand = {by_hand, &now};

	coll_clock_take(&hand);
	cr_assert_eq(coll_clock_ns(), 42);
	now += 1000000;
	cr_assert_eq(coll_clock_ns(), 1000042);
	cr_assert_eq(coll_clock_coarse_ns(), 1000042);
	coll_clock_take(NULL);
	cr_assert_gt(coll_clock_ns(), 1000042);
}
