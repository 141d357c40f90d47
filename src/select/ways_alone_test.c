/*
 * The table of ways, linked without the library: how it is walked, and what it makes of an intranode object.
 */
#include "select/ways.h"
#include "tests/fakes/fake_intra.h"
#include "tests/plain.h"

TEST(ways, every_walk_ends_in_the_plan)
{
	for (int kind = 0; kind < COLL_KIND_SEND_RECV; kind++)
		for (size_t bytes = 1; bytes <= (size_t)1 << 24; bytes *= 4) {
			const struct coll_ways_facts f = {.kind = (enum coll_kind)kind,
			                                  .size = 2,
			                                  .bytes = bytes,
			                                  .intra_bytes = 65536,
			                                  .holds = COLL_CALL_INTRANODE};
			const struct coll_ways_row *row = coll_ways_first(&f);
			size_t steps = 0;

			while (row->by != COLL_BY_PLAN && ++steps <= coll_ways_count)
				row = coll_ways_next(&f, row);
			CHECK(row == &coll_ways[coll_ways_count - 1], "kind %d, %zu bytes", kind, bytes);
		}
}

TEST(ways, an_operation_for_each_row_over_shared_memory)
{
	struct coll_ways_facts f = {.kind = COLL_KIND_ALL_REDUCE,
	                            .size = 2,
	                            .bytes = 8,
	                            .intra_bytes = 65536,
	                            .holds = COLL_CALL_INTRANODE};
	const struct coll_intra_op *op;

	coll_ways_bind(&fake_intra.object);
	op = coll_ways_op(&fake_intra.object, coll_ways_first(&f));
	CHECK(op->way == COLL_WAY_EAGER_LINE && op->arg == &fake_intra.object && op->where && !op->instead);
	CHECK(op->matched, "it expects no frames");
	f.bytes = 1 << 20;
	op = coll_ways_op(&fake_intra.object, coll_ways_first(&f));
	CHECK(op->way == COLL_WAY_ZERO_COPY && op->instead);
	f.kind = COLL_KIND_SCAN;
	CHECK(coll_ways_first(&f)->by == COLL_BY_PLAN);
}

TEST(ways, a_count_that_overflows_is_no_intranode_call)
{
	fake_intra.object.size = 4;
	CHECK(coll_ways_facts_of(&fake_intra.object, COLL_KIND_ALL_REDUCE, SIZE_MAX / 8, 4).bytes == 0);
	CHECK(coll_ways_facts_of(&fake_intra.object, COLL_KIND_ALL_REDUCE, 10, 4).bytes == 40);
}
