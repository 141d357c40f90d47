/*
 * The choice, given the prices: who serves a call, who displaces whom, and what a forced row that cannot serve says.
 */
#include "select/select.h"
#include "tests/fakes/fake_algos.h"
#include "tests/fakes/fake_plan.h"
#include "tests/fakes/fake_select.h"
#include "tests/plain.h"

static struct coll_select_facts facts;
static struct coll_select_choice choice;

static void setup(void)
{
	fake_plan_reset();
	fake_select_reset();
	facts = (struct coll_select_facts){.size = 8, .forced = ""};
	for (int i = 0; i < FAKE_ALGOS; i++)
		fake_select.prices[i] =
		        (struct coll_select_price){.ns = 1000, .windows = 2, .fits = true, .lean = true};
}

static int chosen(enum coll_kind kind, bool ordered, bool ragged, bool pairwise)
{
	const struct coll_select_call call = {
	        .kind = kind, .count = 1, .elem_bytes = 1, .ordered = ordered, .ragged = ragged, .pairwise = pairwise};

	return coll_select_plan(&facts, &call, true, &choice) == COLL_OK ? (int)(choice.algo - coll_algos) : -1;
}

static int reduces(void)
{
	return chosen(COLL_KIND_ALL_REDUCE, false, false, false);
}

/* A test behind setup(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), (void)0)

WORLD_TEST(choice, a_row_must_be_clearly_cheaper_than_one_before_it)
{
	CHECK(reduces() == FAKE_QUICK);
	fake_select.prices[FAKE_LEAN].ns = 951;
	CHECK(reduces() == FAKE_QUICK);
	fake_select.prices[FAKE_LEAN].ns = 949;
	CHECK(reduces() == FAKE_LEAN && choice.cost_ns == 949 && choice.windows == 2);
	CHECK(strstr(choice.why, "lean") && strstr(choice.why, "next quick"), "%s", choice.why);
}

WORLD_TEST(choice, what_fits_comes_before_what_is_lean_and_that_before_time)
{
	fake_select.prices[FAKE_QUICK].lean = false;
	fake_select.prices[FAKE_LEAN].ns = 5000;
	CHECK(reduces() == FAKE_LEAN);
	fake_select.prices[FAKE_LEAN].fits = false;
	CHECK(reduces() == FAKE_QUICK);
}

WORLD_TEST(choice, rows_that_cannot_serve_are_left_out)
{
	CHECK(chosen(COLL_KIND_ALL_REDUCE, true, false, false) == -1, "few is for four ranks");
	CHECK(choice.why[0] != 0);
	facts.size = 4;
	CHECK(chosen(COLL_KIND_ALL_REDUCE, true, false, false) == FAKE_FEW);
	CHECK(chosen(COLL_KIND_ALL_GATHER, false, false, false) == FAKE_UNIFORM);
	CHECK(chosen(COLL_KIND_ALL_GATHER, false, true, false) == FAKE_RAGGED);
	CHECK(chosen(COLL_KIND_ALL_GATHER, false, false, true) == -1);
}

WORLD_TEST(choice, rows_for_links_are_chosen_between_hosts_only)
{
	fake_select.prices[FAKE_LINKS].ns = 1;
	CHECK(chosen(COLL_KIND_ALL_GATHER, false, false, false) == FAKE_UNIFORM);
	facts.caps.cross_host = true;
	CHECK(chosen(COLL_KIND_ALL_GATHER, false, false, false) == FAKE_LINKS);
	facts.one_host = true;
	CHECK(chosen(COLL_KIND_ALL_GATHER, false, false, false) == FAKE_UNIFORM);
}

WORLD_TEST(choice, a_forced_row_is_taken_or_refused)
{
	fake_select.forced = &coll_algos[FAKE_LEAN];
	fake_select.prices[FAKE_LEAN].ns = 5000;
	CHECK(reduces() == FAKE_LEAN && choice.forced);
	fake_select.forced = &coll_algos[FAKE_FEW];
	CHECK(reduces() == -1 && strstr(choice.why, "COLL_ALGO forces few, but there are too many ranks"), "%s",
	      choice.why);
	fake_select.no_force = COLL_ERR_CONFIG;
	CHECK(reduces() == -1 && strcmp(choice.why, "the fake says so") == 0);
}
