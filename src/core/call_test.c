/*
 * Calls: signatures show what ranks must agree on, and which kinds synchronise.
 */
#include "core/call.h"
#include "record/record.h"
#include "tests/plain.h"

enum { SIZE = 4 };

static struct coll_call reduce(size_t count)
{
	return (struct coll_call){.kind = COLL_KIND_ALL_REDUCE, .count = count, .type = COLL_F32, .op = COLL_SUM};
}

static uint32_t signature(struct coll_call c)
{
	return coll_call_signature(&c, SIZE);
}

TEST(call, signatures_show_what_ranks_must_agree_on)
{
	const size_t counts[SIZE] = {1, 2, 3, 4}, others[SIZE] = {1, 2, 4, 3};
	struct coll_call a = reduce(100), b = reduce(101);

	CHECK(signature(a) == signature(a) && signature(a) != signature(b));
	b = a;
	b.type = COLL_I32;
	CHECK(signature(a) != signature(b));
	b = a;
	b.root = 1;
	CHECK(signature(a) != signature(b));
	b = a;
	b.record_kind = COLL_RECORD_SPLIT;
	CHECK(signature(a) != signature(b));
	a = b = (struct coll_call){.kind = COLL_KIND_ALL_GATHER, .count = 4, .type = COLL_F32, .ragged = true};
	a.out_counts = counts;
	b.out_counts = others;
	CHECK(signature(a) != signature(b));
	a = b = (struct coll_call){.kind = COLL_KIND_ALL_TO_ALL, .count = 4, .type = COLL_F32, .pairwise = true};
	b.count = 5;
	CHECK(signature(a) == signature(b), "each rank has lengths of its own");
}

TEST(call, an_operation_is_part_of_calls_that_reduce)
{
	struct coll_call a = reduce(100), b = a;

	b.op = COLL_MAX;
	CHECK(signature(a) != signature(b));
	a.kind = b.kind = COLL_KIND_BROADCAST;
	CHECK(signature(a) == signature(b));
}

TEST(call, it_synchronises_if_each_rank_needs_something_of_every_other)
{
	struct coll_call c = reduce(1);

	CHECK(coll_call_synchronises(&c));
	c.count = 0;
	CHECK(!coll_call_synchronises(&c), "no bytes");
	for (int k = 0; k < COLL_KIND_COUNT; k++) {
		const bool all = k == COLL_KIND_ALL_REDUCE || k == COLL_KIND_ALL_GATHER ||
		                 k == COLL_KIND_REDUCE_SCATTER || k == COLL_KIND_ALL_TO_ALL || k == COLL_KIND_BARRIER;

		c = (struct coll_call){.kind = (enum coll_kind)k, .count = 1};
		CHECK(coll_call_synchronises(&c) == all, "kind %d", k);
		c.ragged = true;
		CHECK(!coll_call_synchronises(&c), "a length may be 0");
	}
}

TEST(call, it_is_to_the_user_what_he_called)
{
	struct coll_call c = reduce(1);

	CHECK(coll_call_kind(&c) == COLL_KIND_ALL_REDUCE);
	c.record_kind = COLL_RECORD_SPLIT;
	CHECK(coll_call_kind(&c) == COLL_RECORD_SPLIT);
}
