/*
 * Numbers are given out lowest first and used again; the peer's may be any.
 */
#include "tests/plain.h"
#include "transports/common/id_table.h"

TEST(id_table, lowest_first_and_used_again)
{
	struct coll_id_table t = {0};
	char things[40];
	uint32_t id;

	for (uint32_t i = 0; i < 40; i++) {
		REQUIRE(coll_id_table_free_id(&t, 1 << 10, &id) && id == i, "%u for the %uth", id, i);
		CHECK(coll_id_table_put(&t, id, &things[i]));
	}
	coll_id_table_drop(&t, 7, &things[8]);
	CHECK(coll_id_table_get(&t, 7) == &things[7], "another's number was dropped");
	coll_id_table_drop(&t, 7, &things[7]);
	coll_id_table_drop(&t, 30, &things[30]);
	CHECK(coll_id_table_get(&t, 7) == NULL);
	CHECK(coll_id_table_free_id(&t, 1 << 10, &id) && id == 7);
	CHECK(coll_id_table_get(&t, 39) == &things[39]);
	coll_id_table_fini(&t);
	CHECK(coll_id_table_get(&t, 0) == NULL);
}

TEST(id_table, no_more_than_allowed)
{
	struct coll_id_table t = {0};
	uint32_t id;

	for (uint32_t i = 0; i < 32; i++)
		CHECK(coll_id_table_free_id(&t, 32, &id) && coll_id_table_put(&t, id, &t));
	CHECK(!coll_id_table_free_id(&t, 32, &id));
	coll_id_table_drop(&t, 31, &t);
	CHECK(coll_id_table_free_id(&t, 32, &id) && id == 31);
	coll_id_table_fini(&t);
}

TEST(id_table, any_number)
{
	struct coll_id_table t = {0};

	CHECK(coll_id_table_get(&t, UINT32_MAX) == NULL);
	coll_id_table_drop(&t, UINT32_MAX, &t);
	CHECK(coll_id_table_put(&t, 1000, &t));
	for (uint32_t i = 0; i < 2000; i++)
		CHECK(coll_id_table_get(&t, i) == (i == 1000 ? &t : NULL), "%u", i);
	coll_id_table_fini(&t);
}
