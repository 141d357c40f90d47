/*
 * COLL_ALGO, read: what is forced for which collective, and which texts are refused.
 */
#include "select/forced.h"
#include "tests/fakes/fake_algos.h"
#include "tests/plain.h"

static const char *forced(const char *text, enum coll_kind kind)
{
	const struct coll_algo *algo = NULL;
	char why[160] = "";

	if (coll_select_forced(text, kind, &algo, why, sizeof(why)) != COLL_OK)
		return why[0] ? "refused" : "refused without a reason";
	return algo ? algo->name : "none";
}

static bool is(const char *text, enum coll_kind kind, const char *expected)
{
	return strcmp(forced(text, kind), expected) == 0;
}

TEST(forced, a_bare_name_is_for_those_that_have_it)
{
	CHECK(is("", COLL_KIND_ALL_REDUCE, "none"));
	CHECK(is("lean", COLL_KIND_ALL_REDUCE, "lean"));
	CHECK(is("lean", COLL_KIND_ALL_GATHER, "none"));
	CHECK(is("lean,ragged", COLL_KIND_ALL_GATHER, "ragged"));
	CHECK(is("lean,quick", COLL_KIND_ALL_REDUCE, "quick"), "the last one");
}

TEST(forced, a_name_for_one_collective_beats_a_bare_one)
{
	CHECK(is("all_reduce:lean,quick", COLL_KIND_ALL_REDUCE, "lean"));
	CHECK(is("quick,all_gather:links", COLL_KIND_ALL_REDUCE, "quick"));
	CHECK(is("all_reduce:auto,quick", COLL_KIND_ALL_REDUCE, "none"));
	CHECK(is("quick,auto", COLL_KIND_ALL_REDUCE, "none"));
}

TEST(forced, what_is_unknown_is_refused_whatever_is_asked_for)
{
	CHECK(is("ring", COLL_KIND_ALL_REDUCE, "refused"));
	CHECK(is("lean,ring", COLL_KIND_BARRIER, "refused"));
	CHECK(is("all_gather:lean", COLL_KIND_ALL_REDUCE, "refused"));
	CHECK(is("all_weather:lean", COLL_KIND_ALL_REDUCE, "refused"));
	CHECK(is("native", COLL_KIND_ALL_REDUCE, "refused"), "its name before");
}

TEST(forced, what_is_malformed_is_refused)
{
	static const char *const texts[] = {",",
	                                    "lean,",
	                                    ":lean",
	                                    "all_reduce:",
	                                    "lean,,quick",
	                                    "a:b:c",
	                                    "a_name_that_is_longer_than_any_name_there_is"};
	char why[160];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		CHECK(is(texts[i], COLL_KIND_ALL_REDUCE, "refused"), "%s", texts[i]);
	CHECK(coll_select_check_forced("lean", why, sizeof(why)) == COLL_OK);
	CHECK(coll_select_check_forced("ring", why, sizeof(why)) == COLL_ERR_CONFIG);
}
