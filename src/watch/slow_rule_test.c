/*
 * Who is far behind, by made-up facts: only the cause, never those that wait for it.
 */
#include "watch/slow_rule.h"

#include <string.h>

#include "tests/plain.h"

enum { MOST = 9, HALF_MS = 4000 };

static struct coll_slow_facts at[MOST];

static void rank(int r, uint32_t waited, uint32_t in_call)
{
	at[r] = (struct coll_slow_facts){.comm = 7,
	                                 .half_ms = {HALF_MS, HALF_MS},
	                                 .waited_ms = {waited, waited},
	                                 .in_call_ms = {in_call, in_call}};
}

/* The verdicts of n ranks of which each asks all others, a bit each. */
static unsigned behind(int n)
{
	unsigned found = 0;

	for (int r = 0; r < n; r++) {
		struct coll_slow_facts others[MOST];
		int m = 0;

		for (int o = 0; o < n; o++)
			if (o != r)
				others[m++] = at[o];
		found |= coll_slow_behind(&at[r], others, m) > 0 ? 1u << r : 0;
	}
	return found;
}

TEST(slow_rule, the_slow_ranks_are_named_and_nobody_else)
{
	for (int r = 0; r < 8; r++)
		rank(r, r % 3 == 1 ? 100 : 3500, r % 3 == 1 ? 200 : 3800);
	CHECK(behind(8) == (1u << 1 | 1u << 4 | 1u << 7), "%x", behind(8));
	rank(0, 3000, 3200);
	rank(1, 20, 30);
	CHECK(behind(2) == 1u << 1, "%x", behind(2));
}

/* On a crowded host calls of all take long. */
TEST(slow_rule, who_has_to_wait_for_a_processor_may_be_slow_too)
{
	for (int r = 0; r < 8; r++)
		rank(r, r % 3 == 1 ? 2000 : 4000, r % 3 == 1 ? 2000 : 4000);
	CHECK(behind(8) == (1u << 1 | 1u << 4 | 1u << 7), "%x", behind(8));
}

/* 1 waits for 0, and the others for both: 0 alone is the cause. */
TEST(slow_rule, a_rank_that_waits_itself_is_no_cause)
{
	for (int r = 0; r < 6; r++)
		rank(r, 3500, 3700);
	rank(0, 50, 100);
	rank(1, 2500, 2700);
	CHECK(behind(6) == 1u << 0, "%x", behind(6));
}

TEST(slow_rule, who_works_in_its_calls_while_others_wait_is_not_behind)
{
	for (int r = 0; r < 6; r++)
		rank(r, 3500, 3900);
	rank(0, 200, 3900);
	CHECK(behind(6) == 0, "%x", behind(6));
}

TEST(slow_rule, one_late_call_and_short_waits_are_nothing)
{
	for (int r = 0; r < 6; r++)
		rank(r, 3500, 3900);
	rank(2, 100, 200);
	for (int r = 0; r < 6; r++)
		at[r].waited_ms[1] = at[r].in_call_ms[1] = 10;
	CHECK(behind(6) == 0, "%x", behind(6));
	for (int r = 0; r < 6; r++)
		rank(r, 390, 390);
	rank(2, 0, 0);
	CHECK(behind(6) == 0, "%x", behind(6));
	rank(2, 0, 0);
	for (int r = 0; r < 6; r++)
		rank(r, r == 2 ? 0 : 410, r == 2 ? 0 : 410);
	CHECK(behind(6) == 1u << 2, "%x", behind(6));
}

TEST(slow_rule, waits_on_communicators_of_others_do_not_count)
{
	for (int r = 0; r < 6; r++) {
		rank(r, 3500, 3900);
		at[r].comm = 0;
	}
	rank(2, 100, 200);
	CHECK(behind(6) == 0, "%x", behind(6));
	at[2].half_ms[0] = 0;
	for (int r = 0; r < 6; r++)
		at[r].comm = 7;
	CHECK(behind(6) == 0, "too early: %x", behind(6));
}

/* As on a machine that others use, too: now one of two waits longer, now the other. */
TEST(slow_rule, of_two_ranks_only_who_stays_behind_is_warned_of)
{
	const uint64_t again = 600, look = 2;
	struct coll_slow_streak k = {0};
	uint64_t now = 0;
	int warned = 0;

	for (int i = 0; i < 40; i++) {
		const bool own = i / 3 % 2 == 0;

		warned += coll_slow_stays(&k, true, own ? 900 : 0, own ? 0 : 900, now += look, again);
	}
	CHECK(warned == 0, "%d warnings in turns", warned);
	for (int i = 0; i < 10; i++)
		warned += coll_slow_stays(&k, true, 900, 900, now += look, again);
	CHECK(warned == 0, "%d warnings of both", warned);
	k = (struct coll_slow_streak){0};
	for (int i = 1; i <= COLL_SLOW_STAYS; i++)
		CHECK(coll_slow_stays(&k, true, 900, 0, now += look, again) == (i == COLL_SLOW_STAYS), "look %d", i);
	k = (struct coll_slow_streak){0};
	for (int i = 0; i < COLL_SLOW_STAYS; i++)
		CHECK(!coll_slow_stays(&k, true, 0, 900, now += look, again));
	for (int i = 0; i < 20; i++)
		CHECK(!coll_slow_stays(&k, true, 900, 0, now += look, again), "the other was warned of, look %d", i);
	CHECK(coll_slow_stays(&k, true, 900, 0, now += again, again), "long ago");
	k = (struct coll_slow_streak){0};
	CHECK(coll_slow_stays(&k, false, 900, 0, now, again), "of more ranks, at once");
	CHECK(!coll_slow_stays(&k, false, 0, 0, now, again));
}

/* One host of four is slow: half of all links. Its own ranks see slow links only, the others know better. */
TEST(slow_rule, links_of_one_host_of_four)
{
	uint32_t links[3] = {118000, 2400, 118000}, lame[3] = {2400, 2500, 2300},
	         half[4] = {2400, 118000, 2300, 117000};

	for (int r = 0; r < 8; r++)
		rank(r, 0, 0);
	for (int r = 0; r < 6; r++)
		at[r].usual_kb = coll_slow_upper_median(links, 3);
	for (int r = 6; r < 8; r++)
		at[r].usual_kb = coll_slow_upper_median(lame, 3);
	for (int r = 0; r < 8; r++) {
		struct coll_slow_facts own = at[r], others[MOST];

		memcpy(others, at, sizeof(others));
		others[r] = others[7];
		CHECK(coll_slow_median(&own, others, 7) == 118000, "rank %d", r);
	}
	CHECK(coll_slow_upper_median(half, 4) == 117000);
	CHECK(coll_slow_is_far_below(2400, 118000) && !coll_slow_is_far_below(30000, 118000));
	CHECK(!coll_slow_is_far_below(2400, 0), "too little is known");
}

TEST(slow_rule, a_rate_needs_bytes_on_the_way)
{
	CHECK(coll_slow_rate(24000000, 10000000, 50000) == 2400);
	CHECK(coll_slow_rate(240000, 100000, 50000) == 0, "too few bytes");
	CHECK(coll_slow_rate(24000000, 10000000, 100) == 0, "one short message at a time");
	CHECK(coll_slow_rate(24000000, 0, 100) == 0);
}
