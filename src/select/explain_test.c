/*
 * The chain of a call in words, over a fake table of one row and the plan.
 */
#include <string.h>

#include "select/explain.h"
#include "tests/plain.h"

static const char *chain(enum coll_kind kind, size_t bytes)
{
	static char text[200];
	const struct coll_ways_facts f = {.kind = kind, .size = 4, .bytes = bytes, .holds = COLL_CALL_INTRANODE};

	coll_explain_ways(&f, "ring", text, sizeof(text));
	return text;
}

TEST(explain, each_row_has_its_condition)
{
	CHECK(strcmp(chain(COLL_KIND_ALL_REDUCE, 8),
	             "a way if all buffers are mapped by every rank; else ring (plain buffers)") == 0,
	      "%s", chain(COLL_KIND_ALL_REDUCE, 8));
	CHECK(strcmp(chain(COLL_KIND_ALL_REDUCE, 9), "ring") == 0, "%s", chain(COLL_KIND_ALL_REDUCE, 9));
}

TEST(explain, a_text_is_cut_and_ends)
{
	const struct coll_ways_facts f = {
	        .kind = COLL_KIND_ALL_REDUCE, .size = 4, .bytes = 8, .holds = COLL_CALL_INTRANODE};
	char text[8] = "???????";

	coll_explain_ways(&f, "ring", text, sizeof(text));
	CHECK(strcmp(text, "a way i") == 0, "%s", text);
}
