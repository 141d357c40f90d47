/*
 * Trials of a few ranks that see different times: all always go the same way, which is before long the quickest one of
 * the machine, also when that changes; and few calls go another way.
 */
#include <criterion/criterion.h>

#include "intra/autotune.h"

struct machine {
	uint64_t ns[COLL_TRIED_WAYS];
	bool can_pull;
};
static const struct machine pulls = {{500, 470, 420, 380}, true}, slots = {{300, 470, 420, 380}, true};
static const struct machine forbidden = {{500, 470, 1, 1}, false}, level = {{400, 399, 398, 397}, true};

enum { RANKS = 3 };

struct group {
	struct intra_autotune t[RANKS];
	unsigned seed;
	bool is_long;
	int went[COLL_TRIED_WAYS];
	int settled;
};

/* Ranks wait for the one that comes last, sometimes for long: their times say little. */
static void end(struct group *p, enum intra_copy way, uint64_t ns)
{
	const unsigned x = p->seed = p->seed * 1103515245u + 12345u;

	for (int r = 0; r < RANKS; r++)
		coll_intra_autotune_end(&p->t[r], way,
		                        ns + (x >> 16) % 7 + (r != (int)(x >> 29) % RANKS ? (x >> 8) % 1000 : 0));
}

static void calls(struct group *p, const struct machine *m, int n)
{
	for (int i = 0; i < n; i++) {
		bool settles[RANKS];
		enum intra_copy way[RANKS];
		uint32_t least[RANKS][COLL_TRIED_WAYS] = {{0}};

		for (int r = 0; r < RANKS; r++) {
			way[r] = coll_intra_autotune_begin(&p->t[r], p->is_long, m->can_pull, &settles[r]);
			cr_assert_eq(settles[r], settles[0]);
		}
		/* Each hears the others in an order of its own. */
		for (int r = 0; r < RANKS; r++)
			for (int k = 0; k < RANKS; k++)
				coll_intra_autotune_receive(least[r], p->t[(r + k) % RANKS].ns);
		for (int r = 0; settles[0] && r < RANKS; r++)
			way[r] = coll_intra_autotune_settle(&p->t[r], least[r], m->can_pull);
		p->settled += settles[0];
		for (int r = 1; r < RANKS; r++)
			cr_assert_eq(way[r], way[0], "call %d", i);
		cr_assert(m->can_pull || !coll_intra_cmas(way[0]));
		p->went[way[0]]++;
		end(p, way[0], m->ns[way[0]]);
	}
}

static int of(struct group *p, const struct machine *m, int n, enum intra_copy way)
{
	const int before = p->went[way];

	calls(p, m, n);
	return p->went[way] - before;
}

Test(trial, the_quickest_way_is_found_and_kept)
{
	struct group p = {.seed = 1};

	calls(&p, &pulls, 17);
	cr_expect_geq(of(&p, &pulls, 2000, COLL_CMA_STREAMED), 1900);
	cr_expect_gt(p.went[COLL_SLOTS], 4, "others are tried again");
	cr_expect_gt(p.settled, 10);
}

/* After half as many calls. */
Test(trial, calls_that_take_long_are_tried_less_often)
{
	struct group p = {.seed = 6, .is_long = true};

	cr_expect_eq(of(&p, &pulls, 8, COLL_CMA_STREAMED), 2);
	cr_expect_eq(of(&p, &pulls, 120, COLL_CMA_STREAMED), 120);
	cr_expect_geq(of(&p, &pulls, 2000, COLL_CMA_STREAMED), 1900);
}

Test(trial, a_machine_that_changes_is_followed)
{
	struct group p = {.seed = 2};

	for (int i = 0; i < 4; i++) {
		calls(&p, &pulls, 600);
		cr_expect_geq(of(&p, &pulls, 1000, COLL_CMA_STREAMED), 950, "%d", i);
		calls(&p, &slots, 600);
		cr_expect_geq(of(&p, &slots, 1000, COLL_SLOTS), 950, "%d", i);
	}
}

Test(trial, what_is_forbidden_is_not_done)
{
	struct group p = {.seed = 3};

	calls(&p, &forbidden, 17);
	cr_expect_geq(of(&p, &forbidden, 2000, COLL_SLOTS_STREAMED), 1900);
}

Test(trial, what_was_best_may_become_impossible)
{
	struct group p = {.seed = 4};
	struct machine m = pulls;

	calls(&p, &m, 1000);
	m.can_pull = false;
	calls(&p, &m, 1000);
}

/* A difference of nothing is no reason to change. */
Test(trial, ways_that_are_level_do_not_alternate)
{
	struct group p = {.seed = 5};
	int changes = 0;

	calls(&p, &level, 17);
	for (int i = 0; i < 50; i++) {
		const uint8_t best = p.t[0].best;

		calls(&p, &level, 128);
		changes += best != p.t[0].best;
	}
	cr_expect_leq(changes, 3);
}
