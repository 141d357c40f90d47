/*
 * When a member begins a ballot: who waits for whom, and that it ends when each takes the others for dead.
 */
#include "members/turn.h"

#include "base/clock.h"
#include "base/delay.h"
#include "members/words.h"
#include "tests/plain.h"

enum { MS = COLL_NS_PER_MS, BALLOT = COLL_DELAY_NS(MEMBERS_BALLOT) };

static const uint64_t BEGUN = 1000 * COLL_NS_PER_MS;

/* The first time from `from` on at which it is its turn, looked at each millisecond. */
static uint64_t turn_of(struct coll_turn *t, struct coll_turn_facts f, uint64_t from)
{
	for (f.now_ns = from; !coll_turn_is_mine(t, &f); f.now_ns += MS)
		if (f.now_ns > from + 60000 * (uint64_t)MS)
			return 0;
	return f.now_ns;
}

TEST(members_turn, the_lowest_begins_at_once_and_others_after_a_pause)
{
	struct coll_turn first = {.rng = {1}}, second = {.rng = {2}};
	const uint64_t later = turn_of(&second, (struct coll_turn_facts){.self = 1}, BEGUN);

	CHECK(turn_of(&first, (struct coll_turn_facts){.lowest = true}, BEGUN) == BEGUN);
	CHECK(later >= BEGUN + BALLOT && later <= BEGUN + 2 * BALLOT + MS);
}

TEST(members_turn, a_ballot_that_runs_is_waited_for)
{
	const struct coll_turn_facts f = {.self = 1, .lowest = true, .running = coll_ballot_number(1, 2)};
	struct coll_turn t = {.rng = {3}};
	const uint64_t at = turn_of(&t, f, BEGUN);

	CHECK(at >= BEGUN + COLL_DELAY_NS(SUSPECT) + BALLOT);
	CHECK(at <= BEGUN + COLL_DELAY_NS(SUSPECT) + 2 * BALLOT + MS);
}

/* Also by the lowest: a report may be wrong, and its own one would overtake a ballot that is about to decide. */
TEST(members_turn, one_whose_owner_is_lost_is_waited_for_during_a_pause)
{
	for (uint64_t seed = 0; seed < 100; seed++) {
		const struct coll_turn_facts f = {
		        .self = 0, .lowest = true, .running = coll_ballot_number(1, 2), .lost = true};
		struct coll_turn t = {.rng = {seed}};
		const uint64_t at = turn_of(&t, f, BEGUN);

		CHECK(at >= BEGUN + BALLOT && at <= BEGUN + 2 * BALLOT + MS, "%llu", (unsigned long long)(at - BEGUN));
	}
}

/* However often it looks, one pause is drawn. */
TEST(members_turn, pauses_are_spread)
{
	uint64_t sum = 0;

	for (uint64_t seed = 0; seed < 100; seed++) {
		const struct coll_turn_facts f = {.self = 1, .running = coll_ballot_number(1, 2), .lost = true};
		struct coll_turn t = {.rng = {seed}};

		sum += turn_of(&t, f, BEGUN) - BEGUN;
	}
	CHECK(sum / 100 > BALLOT + BALLOT / 4, "%llu", (unsigned long long)(sum / 100));
}

/* Each takes all others for dead, and a message takes so long. Returns when one has run for four messages, so that it
 * is decided; 0: never. */
static uint64_t decided_at(int members, uint64_t message_ns, uint64_t seed)
{
	struct coll_turn turn[16] = {{0}};
	uint64_t above = 0, begun_ns = 0;
	int runs = -1;

	for (int m = 0; m < members; m++)
		turn[m].rng.state = coll_mix64(seed * 16 + (uint64_t)m);
	for (uint64_t now = BEGUN; now < BEGUN + 30000 * (uint64_t)MS; now += MS) {
		if (runs >= 0 && now >= begun_ns + 4 * message_ns)
			return now;
		for (int m = 0; m < members; m++) {
			struct coll_turn_facts f = {.now_ns = now, .self = m, .lowest = true, .lost = true};

			if (m == runs)
				continue;
			f.running = runs >= 0 && now >= begun_ns + message_ns ? above : turn[m].seen;
			if (!coll_turn_is_mine(&turn[m], &f))
				continue;
			if (runs >= 0)
				coll_turn_overtaken(&turn[runs], now);
			runs = m;
			begun_ns = now;
			above = coll_ballot_number(coll_ballot_round(above) + 1, m);
		}
	}
	return 0;
}

TEST(members_turn, members_that_take_each_other_for_dead_decide)
{
	for (int members = 2; members <= 16; members++)
		for (uint64_t seed = 0; seed < 50; seed++)
			for (int message_ms = 1; message_ms <= 64; message_ms *= 4) {
				const uint64_t at = decided_at(members, (uint64_t)message_ms * MS, seed);

				CHECK(at && at < BEGUN + 10000 * (uint64_t)MS, "%d members, %d ms, seed %llu: %llu ms",
				      members, message_ms, (unsigned long long)seed, (unsigned long long)(at / MS));
			}
}

TEST(members_turn, pauses_grow_with_each_ballot_that_is_overtaken)
{
	const struct coll_turn_facts f = {.self = 1};
	struct coll_turn t = {.rng = {5}};
	uint64_t now = BEGUN;

	for (int i = 1; i <= 5; i++) {
		const uint64_t least = (uint64_t)BALLOT << (i < 3 ? i : 3);
		uint64_t at;

		coll_turn_overtaken(&t, now);
		at = turn_of(&t, f, now);
		CHECK(at >= now + least && at <= now + 2 * least + MS, "%d: %llu ms", i,
		      (unsigned long long)((at - now) / MS));
		now = at;
	}
}
