/*
 * Prices: more bytes never cost less, slower links never cost less, and the same facts give the same price.
 */
#include "select/cost.h"
#include "tests/fakes/fake_algos.h"
#include "tests/plain.h"

static struct coll_select_facts facts(void)
{
	return (struct coll_select_facts){.size = 4,
	                                  .caps = {.latency_ns = 1000, .overhead_ns = 100, .bytes_per_ns = 10},
	                                  .slot_bytes = 65536,
	                                  .windows_max = 4,
	                                  .scratch_bytes_max = 1 << 30,
	                                  .forced = ""};
}

static double price(const struct coll_select_facts *f, int row, size_t bytes)
{
	const struct coll_select_call call = {.kind = coll_algos[row].kind, .count = bytes, .elem_bytes = 1};

	return coll_select_cost(f, &call, &coll_algos[row]);
}

TEST(cost, more_bytes_never_cost_less)
{
	struct coll_select_facts f = facts();

	for (int across = 0; across < 2; across++) {
		f.caps.cross_host = across;
		for (int row = 0; row < FAKE_ALGOS; row++)
			for (size_t bytes = 1; bytes < (size_t)1 << 30; bytes *= 2)
				CHECK(price(&f, row, bytes) <= price(&f, row, 2 * bytes), "%s %zu bytes",
				      coll_algos[row].name, bytes);
	}
}

TEST(cost, one_tile_is_its_rounds_and_its_bytes)
{
	const struct coll_select_facts f = facts();

	/* rounds (latency + 2 overhead) + sent bytes / rate */
	CHECK(price(&f, FAKE_QUICK, 1000) == 1200 + 4 * 1000 / 10.0, "%g", price(&f, FAKE_QUICK, 1000));
	CHECK(price(&f, FAKE_LEAN, 1000) == 2 * 1200 + 1000 / 10.0, "%g", price(&f, FAKE_LEAN, 1000));
}

TEST(cost, a_slower_link_costs_more)
{
	struct coll_select_facts slow = facts();
	const struct coll_select_facts f = facts();

	slow.caps.bytes_per_ns /= 2;
	CHECK(price(&slow, FAKE_LEAN, 1 << 20) > price(&f, FAKE_LEAN, 1 << 20));
	slow = facts();
	slow.oversubscribed = true;
	CHECK(price(&slow, FAKE_LEAN, 8) > price(&f, FAKE_LEAN, 8), "ranks wait for cores");
}

static struct coll_select_price whole(const struct coll_select_facts *f, struct coll_select_call call, int row)
{
	struct coll_select_price p;

	call.kind = coll_algos[row].kind;
	call.elem_bytes = 1;
	coll_select_price(f, &call, &coll_algos[row], &p);
	return p;
}

TEST(cost, windows_have_scratch_and_a_tile_each)
{
	struct coll_select_facts f = facts();
	const struct coll_select_call two_tiles = {.count = 2 * 65536}, many = {.count = 1 << 26};
	struct coll_select_price p;

	f.windows_max = 64;
	CHECK(whole(&f, two_tiles, FAKE_LEAN).windows <= 2);
	p = whole(&f, many, FAKE_LEAN);
	f.scratch_bytes_max = 65536;
	CHECK(whole(&f, many, FAKE_LEAN).windows == 1 && whole(&f, many, FAKE_LEAN).fits);
	f.scratch_bytes_max = 65535;
	CHECK(!whole(&f, many, FAKE_LEAN).fits && p.fits && p.windows >= 1);
}

TEST(cost, lengths_that_only_two_ranks_have_do_not_enter)
{
	const struct coll_select_facts f = facts();
	const struct coll_select_call a = {.count = 1, .pairwise = true}, b = {.count = 1 << 24, .pairwise = true};

	CHECK(whole(&f, a, FAKE_RAGGED).ns == whole(&f, b, FAKE_RAGGED).ns);
	CHECK(whole(&f, a, FAKE_RAGGED).windows == whole(&f, b, FAKE_RAGGED).windows);
	CHECK(whole(&f, a, FAKE_RAGGED).windows > 1, "there may be more tiles than the one that is priced");
}

TEST(cost, long_vectors_know_lean_rows)
{
	const struct coll_select_facts f = facts();
	const struct coll_select_call brief = {.count = 65535}, large = {.count = 65536};

	CHECK(whole(&f, brief, FAKE_QUICK).lean, "short ones may send what they like");
	CHECK(!whole(&f, large, FAKE_QUICK).lean && whole(&f, large, FAKE_LEAN).lean);
}
