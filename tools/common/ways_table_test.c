/*
 * The table in words, over a fake table of one row and the plan.
 */
#include "tools/common/ways_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plain.h"

TEST(ways_table, the_table_has_a_line_for_each_row)
{
	char *text = NULL;
	size_t len_bytes = 0;
	FILE *to = open_memstream(&text, &len_bytes);

	REQUIRE(to != NULL);
	coll_ways_table(to);
	fclose(to);
	CHECK(strstr(text, "| `a way` | all_reduce, barrier | 2-4 | any | intranode | mapped by every rank | to 8 |") !=
	              NULL,
	      "%s", text);
	CHECK(strstr(text, "| `plan` | all | any |") != NULL, "%s", text);
	free(text);
}
