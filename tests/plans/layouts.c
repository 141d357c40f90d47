/*
 * Plans for layouts: every row that reads the layout is proved and counted (tools/layout_sweep.h), as far as a
 * test may take; the whole sweep is `coll-plan verify --layouts`. Also what a layout is.
 *
 *   plan-layouts [most ranks [random layouts]]
 */
#define PLAIN_OWN_MAIN

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/layout.h"
#include "tests/plain.h"
#include "tools/layout_sweep.h"
#include "tools/plan_layout.h"

static struct layout_sweep sweep = {.most = 36, .randoms = 500, .random_most = 32, .threads = 2};

static void rows_are_proved_and_counted_for_every_layout(void)
{
	const struct layout_sweep_result r = layout_sweep_run(&sweep);

	printf("%ld layouts, %ld plans\n", r.layouts, r.plans);
	CHECK(r.failed == 0, "%ld failed", r.failed);
	CHECK(r.layouts >= sweep.randoms / 2 && r.plans > 10 * r.layouts);
}

static struct coll_layout *parsed(const char *text, const char *map, int size)
{
	struct coll_layout *l = NULL;
	int n;

	CHECK(plan_layout_parse(text, map, NULL, &l, &n), "%s %s", text, map);
	CHECK(n == size, "%s: %d ranks", text, n);
	return l;
}

static void places_number_groups_one_after_the_other(void)
{
	static const int ranks[] = {0, 2, 1, 3, 4};
	static const uint32_t host_of[] = {7, 3, 7, 3, 3};
	const struct coll_layout_split split = {"host", true, false, host_of};
	struct coll_layout *l = NULL;
	uint32_t first, most, fewest;
	char text[64];

	REQUIRE(coll_layout_create(5, &split, 1, &l) == COLL_OK && l);
	for (int p = 0; p < 5; p++)
		CHECK(l->rank_at[p] == ranks[p] && l->place_of[ranks[p]] == p, "place %d: rank %d", p, l->rank_at[p]);
	CHECK(coll_layout_children(l, 0, 0, &first) == 2 && first == 0);
	CHECK(coll_layout_children(l, 1, 1, &first) == 3 && first == 2);
	coll_layout_widths(l, 1, &most, &fewest);
	CHECK(most == 3 && fewest == 2);
	coll_layout_print(l, text, sizeof(text));
	CHECK(strcmp(text, "host(2) x rank(2..3)") == 0, "%s", text);
	coll_layout_destroy(&l);
}

/* What a layout has counted in advance, against a count of its groups. */
static void check_widths(const struct coll_layout *l)
{
	for (uint32_t stage = 0; stage <= l->nlevels; stage++) {
		uint32_t most = 0, fewest = UINT32_MAX, ranks = 0, first, told_most, told_fewest;

		for (uint32_t g = 0; g < (stage ? l->level[stage - 1].groups : 1); g++) {
			const uint32_t n = coll_layout_children(l, stage, g, &first);

			most = n > most ? n : most;
			fewest = n < fewest ? n : fewest;
		}
		coll_layout_widths(l, stage, &told_most, &told_fewest);
		CHECK(told_most == most && told_fewest == fewest, "stage %u: %u to %u, not %u to %u", stage,
		      told_fewest, told_most, fewest, most);
		for (uint32_t g = 0; stage < l->nlevels && g < l->level[stage].groups; g++)
			if (l->level[stage].first[g + 1] - l->level[stage].first[g] > ranks)
				ranks = l->level[stage].first[g + 1] - l->level[stage].first[g];
		CHECK(stage == l->nlevels || l->level[stage].most == ranks, "level %u: %u", stage, ranks);
	}
}

static void widths_are_counted_once(void)
{
	enum { RANKS = 64 };
	uint32_t host_of[RANKS], numa_of[RANKS], l3_of[RANKS];
	const struct coll_layout_split splits[] = {
	        {"host", true, false, host_of}, {"numa", false, false, numa_of}, {"l3", false, false, l3_of}};
	int left_out = 0;

	/* One host has most ranks, and one NUMA node of it most of these: at some sizes the innermost level is left
	 * out. */
	for (uint32_t big = 2; big < RANKS; big++) {
		struct coll_layout *l = NULL;

		for (uint32_t r = 0; r < RANKS; r++) {
			host_of[r] = r < big ? 0 : r;
			numa_of[r] = r < big / 2 ? 0 : r;
			l3_of[r] = r / 2;
		}
		REQUIRE(coll_layout_create(RANKS, splits, 3, &l) == COLL_OK && l);
		left_out += l->nlevels < 3;
		check_widths(l);
		coll_layout_destroy(&l);
	}
	CHECK(left_out > 0);
}

static void levels_that_tell_nothing_apart_vanish(void)
{
	static const uint32_t one[] = {5, 5, 5, 5}, each[] = {3, 2, 1, 0}, pairs[] = {0, 0, 1, 1};
	const struct coll_layout_split nothing[] = {{"site", true, false, one}, {"host", true, false, each}};
	const struct coll_layout_split some[] = {{"site", true, false, one},
	                                         {"host", true, false, pairs},
	                                         {"numa", false, false, pairs},
	                                         {"l3", false, false, each}};
	struct coll_layout *l = NULL;

	CHECK(coll_layout_create(4, nothing, 2, &l) == COLL_OK && !l);
	REQUIRE(coll_layout_create(4, some, 4, &l) == COLL_OK && l);
	CHECK(l->nlevels == 1 && strcmp(l->level[0].name, "host") == 0);
	coll_layout_destroy(&l);
	CHECK(l == NULL);
}

/* The hash is that of the grouping and the numbering of ranks, not of the numbers that groups were given. */
static void the_hash_is_that_of_what_differs(void)
{
	static const uint32_t a[] = {0, 0, 1, 1}, same[] = {9, 9, 4, 4}, other[] = {0, 1, 0, 1};
	const struct coll_layout_split splits[] = {
	        {"host", true, false, a}, {"host", true, false, same}, {"host", true, false, other}};
	struct coll_layout *l[3];

	for (int i = 0; i < 3; i++)
		REQUIRE(coll_layout_create(4, &splits[i], 1, &l[i]) == COLL_OK && l[i]);
	CHECK(l[0]->hash == l[1]->hash);
	CHECK(l[0]->hash != l[2]->hash);
	for (int i = 0; i < 3; i++)
		coll_layout_destroy(&l[i]);
}

/* The optimum of n ports of rates b is the smaller one of min b and sum b / (2 (n - 1)). */
static void shares_come_near_the_optimum_of_unequal_links(void)
{
	static const struct {
		const char *sizes, *rates;
		uint32_t n;
		double optimum;
	} cases[] = {{"1,1,1,1", "1000,1000,1000,500", 4, 500}, {"2,2,2,2", "1000,1000,1000,500", 4, 500},
	             {"1,1,1", "2000,2000,1000", 3, 1000},      {"1,1,1,1", "3000,1000,1000,1000", 4, 1000},
	             {"4,1,1", "1000,900,800", 3, 675},         {"1,1,1,1,1", "400,100,100,100,100", 5, 100}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *at = cases[i].rates;
		struct coll_layout *l = NULL;
		double slowest = 0;
		char text[128];
		int size;

		REQUIRE(plan_layout_parse(cases[i].sizes, "block", cases[i].rates, &l, &size) && l, "%s",
		        cases[i].sizes);
		REQUIRE(l->by_rate, "%s", cases[i].rates);
		for (uint32_t g = 0; g < cases[i].n; g++) {
			const double share = l->share ? (double)l->share[g] / l->parts : 1.0 / cases[i].n;
			const double t = (1 + share * (cases[i].n - 2)) / strtod(at, NULL);

			slowest = t > slowest ? t : slowest;
			at = strchr(at, ',') + 1;
		}
		coll_layout_print(l, text, sizeof(text));
		CHECK(1 / slowest >= 0.93 * cases[i].optimum, "%s at %s: %.0f of %.0f", text, cases[i].rates,
		      1 / slowest, cases[i].optimum);
		coll_layout_destroy(&l);
	}
}

static void equal_or_unknown_rates_change_nothing(void)
{
	static const uint32_t some[] = {1000, 1000, 0, 500, 500};
	static const char *const rates[] = {"1000,1000,1000", "7,7,7"};
	struct coll_layout *plain = parsed("2,1,2", "block", 5);

	for (int i = 0; i < 2; i++) {
		struct coll_layout *l = NULL;
		int size;

		REQUIRE(plan_layout_parse("2,1,2", "block", rates[i], &l, &size) && l);
		CHECK(!l->share && !l->by_rate && l->hash == plain->hash);
		coll_layout_destroy(&l);
	}
	CHECK(coll_layout_rate(plain, some) == COLL_OK);
	CHECK(!plain->share && !plain->by_rate, "one is unknown");
	coll_layout_destroy(&plain);
}

/* The rate of an uplink is that of the slowest that is told; it changes the hash, and no share. */
static void uplinks_are_told_to_sites(void)
{
	static const uint32_t some[] = {0, 0, 300, 300, 200, 200, 0, 0}, none[8] = {0};
	struct coll_layout *plain = parsed("2x2x2", "block", 8), *l = NULL;
	const uint64_t hash = plain->hash;
	char text[64];
	int size;

	REQUIRE(plan_layout_parse("2x2x2", "block", "500,100", &l, &size) && l);
	CHECK(l->level[0].mbps == 100 && l->hash != hash && !l->share && !l->by_rate);
	coll_layout_print(l, text, sizeof(text));
	CHECK(strcmp(text, "site(2) x host(2) x rank(2), uplinks of 100 Mb/s") == 0, "%s", text);
	coll_layout_print(l, text, 28);
	CHECK(strcmp(text, "site(2) x host(2) x rank(2)") == 0, "%s", text);
	coll_layout_destroy(&l);
	coll_layout_tell_uplinks(plain, some);
	CHECK(plain->level[0].mbps == 200 && plain->hash != hash);
	coll_layout_tell_uplinks(plain, none);
	CHECK(plain->level[0].mbps == 0 && plain->hash == hash, "unknown is not slow");
	coll_layout_destroy(&plain);
}

static void texts_that_are_no_layouts_are_refused(void)
{
	static const char *const texts[] = {"",    "x",   "4",    "4x",  "x4",    "2x0",     "2x-1",
	                                    "2 4", "2,,", "2,0",  "a,b", "2x3,4", "70000,1", "2x2x2x2x2x2x2x2",
	                                    "2.5", "1e3", "-1,2", "+2,2"};
	struct coll_layout *l;
	int size;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (strcmp(texts[i], "4") != 0) /* one host: no levels, but fine */
			CHECK(!plan_layout_parse(texts[i], "block", NULL, &l, &size), "'%s' is taken", texts[i]);
	CHECK(!plan_layout_parse("2x2", "Block", NULL, &l, &size));
	CHECK(!plan_layout_parse("2x2", "random:", NULL, &l, &size));
	CHECK(!plan_layout_parse("2x2", "random:1x", NULL, &l, &size));
	l = parsed("3,1", "random:7", 4);
	coll_layout_destroy(&l);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		sweep.most = (int)strtol(argv[1], NULL, 10);
	if (argc > 2)
		sweep.randoms = (int)strtol(argv[2], NULL, 10);
	PLAIN_RUN(places_number_groups_one_after_the_other);
	PLAIN_RUN(widths_are_counted_once);
	PLAIN_RUN(levels_that_tell_nothing_apart_vanish);
	PLAIN_RUN(the_hash_is_that_of_what_differs);
	PLAIN_RUN(shares_come_near_the_optimum_of_unequal_links);
	PLAIN_RUN(equal_or_unknown_rates_change_nothing);
	PLAIN_RUN(uplinks_are_told_to_sites);
	PLAIN_RUN(texts_that_are_no_layouts_are_refused);
	PLAIN_RUN(rows_are_proved_and_counted_for_every_layout);
	return plain_summary();
}
