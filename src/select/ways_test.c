/*
 * The table of ways: every row is reached, no two serve the same call by the same way, every chain ends in the plan,
 * and each threshold holds at its edges.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "base/limits.h"
#include "core/way_name.h"
#include "select/explain.h"
#include "select/ways.h"

enum { CHAIN_MAX = 5 };
#define K ((size_t)1 << 10)
#define M ((size_t)1 << 20)
#define G ((size_t)1 << 30)

static const int sizes[] = {1, 2, 3, 4, 8, 13, 14, 16, 17, 64, 128, 256, 257};
static const size_t lengths[] = {0,    1,      48,      49,          256,        257,   512,    513,    664,
                                 665,  K - 1,  K,       K + 1,       2 * K,      8192,  8193,   32768,  32769,
                                 M,    64 * K, 2 * M,   64 * M,      64 * K + 1, 4 * G, 20 * G, 40 * G, 300 * G,
                                 8191, 4 * K,  256 * K, 256 * K - 1, 2 * M + 1,  32767, 65535};
static const size_t intra[] = {64, 4 * K, 64 * K, M};
enum {
	LIKE_MOST = COLL_CALL_INTRANODE | COLL_CALL_KNOWN | COLL_CALL_MOVES | COLL_CALL_ON_DEVICES,
	OF_LIBRARY = LIKE_MOST & ~COLL_CALL_OF_USER
};
static const uint32_t held[] = {LIKE_MOST,  LIKE_MOST | COLL_CALL_DEVICES, LIKE_MOST | COLL_CALL_FORCED,
                                OF_LIBRARY, OF_LIBRARY | COLL_CALL_GROUP,  OF_LIBRARY | COLL_CALL_GROUP_END};
enum { HELD = sizeof(held) / sizeof(*held) };

static void each_call(void (*fn)(const struct coll_ways_facts *f))
{
	for (int kind = 0; kind < COLL_KIND_SEND_RECV; kind++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
			for (size_t b = 0; b < sizeof(lengths) / sizeof(*lengths); b++)
				for (size_t i = 0; i < sizeof(intra) / sizeof(*intra); i++)
					for (int rest = 0; rest < 8 * HELD; rest++)
						fn(&(struct coll_ways_facts){
						        .kind = (enum coll_kind)kind,
						        .size = sizes[s],
						        .shared_cores = rest & 1,
						        .bytes = lengths[b],
						        .intra_bytes = intra[i],
						        .copy = (enum coll_intra_copy)(rest >> 1 & 3),
						        .holds = held[rest >> 3]});
}

static size_t reached[COLL_INTRA_OPS_MAX];

static void walk(const struct coll_ways_facts *f)
{
	const struct coll_ways_row *row = coll_ways_first(f);
	uint32_t ways = 0;
	int rows = 1;

	for (; row->by != COLL_BY_PLAN; row = coll_ways_next(f, row), rows++) {
		reached[row - coll_ways]++;
		if (row->instead == COLL_INSTEAD_NOTHING)
			return;
		cr_assert_not(ways >> row->way & 1, "%s twice in a chain", coll_way_name(row->way));
		ways |= 1u << row->way;
		cr_assert_lt(rows, CHAIN_MAX);
		cr_assert_eq(row->instead == COLL_INSTEAD_NEXT,
		             row->buffers == COLL_BUFFERS_MAPPED || row->buffers == COLL_BUFFERS_READABLE,
		             "%s: who has a condition has a row instead", coll_way_name(row->way));
	}
	reached[row - coll_ways]++;
	cr_assert(row == &coll_ways[coll_ways_count - 1] || f->holds & COLL_CALL_FORCED);
}

Test(ways, each_row_is_reached_and_each_chain_ends_in_the_plan)
{
	each_call(walk);
	for (size_t i = 0; i < coll_ways_count; i++)
		cr_expect_gt(reached[i], 0, "row %zu, %s, is never reached", i, coll_way_name(coll_ways[i].way));
	cr_expect_eq(coll_ways[coll_ways_count - 1].way, COLL_WAY_PLAN);
}

static void one_of_a_way(const struct coll_ways_facts *f)
{
	const struct coll_ways_row *of[COLL_WAY_PLAN + 1] = {NULL};

	for (size_t i = 0; i < coll_ways_count; i++) {
		const struct coll_ways_row *row = &coll_ways[i];

		if (row->by == COLL_BY_PLAN || !coll_ways_serves(row, f))
			continue;
		cr_assert(!of[row->way], "%s: rows %td and %zu serve the same call", coll_way_name(row->way),
		          of[row->way] - coll_ways, i);
		of[row->way] = row;
	}
}

Test(ways, no_two_rows_of_a_way_serve_the_same_call)
{
	each_call(one_of_a_way);
}

Test(ways, what_is_tried_after_a_row_without_condition_is_the_plan)
{
	for (size_t i = 0; i + 1 < coll_ways_count; i++) {
		const struct coll_ways_facts f = {.kind = COLL_KIND_BARRIER, .size = 2, .bytes = 1};

		if (coll_ways[i].instead == COLL_INSTEAD_PLAN && coll_ways[i].by != COLL_BY_PLAN)
			cr_expect_eq(coll_ways_next(&f, &coll_ways[i]), &coll_ways[coll_ways_count - 1]);
	}
}

/* ---- What must hold ---- */

/* A call that most rows would take. */
static struct coll_ways_facts plain(enum coll_kind kind, uint32_t holds)
{
	return (struct coll_ways_facts){.kind = kind, .size = 2, .bytes = 8, .intra_bytes = 64 * K, .holds = holds};
}

static uint8_t way_of(enum coll_kind kind, uint32_t holds)
{
	const struct coll_ways_facts f = plain(kind, holds);

	return coll_ways_first(&f)->way;
}

Test(ways, over_shared_memory_goes_no_call_of_which_a_condition_fails)
{
	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, COLL_CALL_INTRANODE), COLL_WAY_EAGER_LINE);
	for (uint32_t bit = 1; bit <= COLL_CALL_INTRANODE; bit <<= 1)
		if (COLL_CALL_INTRANODE & bit)
			cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, COLL_CALL_INTRANODE & ~bit), COLL_WAY_PLAN, "bit %#x",
			             bit);
}

Test(ways, devices_that_map_each_other_come_before_shared_memory)
{
	const uint32_t devices = LIKE_MOST | COLL_CALL_DEVICES;

	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, devices), COLL_WAY_DEVICE_DIRECT);
	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, devices & ~(uint32_t)(COLL_CALL_BUILT_IN | COLL_CALL_EQUAL)),
	             COLL_WAY_DEVICE_DIRECT);
	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, devices & ~(uint32_t)COLL_CALL_MATCHED), COLL_WAY_DEVICE_DIRECT);
	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, devices & ~(uint32_t)COLL_CALL_ON_DEVICES), COLL_WAY_EAGER_LINE);
	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, devices & ~(uint32_t)COLL_CALL_MOVES), COLL_WAY_EAGER_LINE);
	cr_expect_eq(way_of(COLL_KIND_ALL_TO_ALL, devices & ~(uint32_t)(COLL_CALL_KNOWN | COLL_CALL_EQUAL)),
	             COLL_WAY_PLAN);
	cr_expect_eq(way_of(COLL_KIND_BARRIER, devices), COLL_WAY_EAGER_LINE);
}

Test(ways, what_is_forced_is_a_plan)
{
	cr_expect_eq(way_of(COLL_KIND_ALL_REDUCE, LIKE_MOST | COLL_CALL_DEVICES | COLL_CALL_FORCED), COLL_WAY_PLAN);
}

Test(ways, the_barriers_of_a_group_come_first)
{
	cr_expect_eq(way_of(COLL_KIND_BARRIER, COLL_CALL_GROUP | COLL_CALL_FORCED), COLL_WAY_GROUP_BARRIER);
	cr_expect_eq(way_of(COLL_KIND_BARRIER, COLL_CALL_GROUP_END | COLL_CALL_MATCHED), COLL_WAY_GROUP_BARRIER);
	cr_expect_eq(way_of(COLL_KIND_BARRIER, COLL_CALL_GROUP_END), COLL_WAY_PLAN, "a frame may be left");
}

Test(ways, each_condition_has_a_name)
{
	cr_expect_eq(1u << coll_ways_nconditions, (uint32_t)COLL_CALL_ON_DEVICES << 1);
	cr_expect_str_eq(coll_ways_conditions[0], "of the user");
	cr_expect_str_eq(coll_ways_conditions[7], "all matched");
}

Test(ways, ranks_of_16_and_1024_share_memory_and_no_more)
{
	cr_expect(!coll_ways_share(1) && coll_ways_share(2) && coll_ways_share(16));
	cr_expect(coll_ways_share(17) && coll_ways_share(1024) && !coll_ways_share(1025));
}

/* ---- At the edges ---- */

struct edge {
	enum coll_kind kind;
	int size;
	bool shared;
	size_t bytes; /* the longest of a row */
	const char *here, *above;
};

static void chain_of(const struct edge *e, size_t bytes, enum coll_intra_copy copy, char text[400])
{
	const struct coll_ways_facts f = {.kind = e->kind,
	                                  .size = e->size,
	                                  .shared_cores = e->shared,
	                                  .bytes = bytes,
	                                  .intra_bytes = 64 * K,
	                                  .copy = copy,
	                                  .holds = COLL_CALL_INTRANODE};
	const struct coll_ways_row *row = coll_ways_first(&f);

	text[0] = 0;
	for (; row->by != COLL_BY_PLAN; row = coll_ways_next(&f, row))
		strcat(strcat(text, coll_way_name(row->way)), " ");
	strcat(text, "plan");
}

Test(ways, thresholds_hold_at_their_edges)
{
	static const struct edge edges[] = {
	        {COLL_KIND_ALL_REDUCE, 2, false, 48, "eager-line plan", "pair-swap plan"},
	        {COLL_KIND_ALL_REDUCE, 2, false, 8191, "pair-swap plan", "zero-copy pair-swap plan"},
	        {COLL_KIND_ALL_REDUCE, 2, false, 64 * K, "zero-copy pair-swap plan", "zero-copy pair-stream plan"},
	        {COLL_KIND_ALL_REDUCE, 4, false, 512, "eager-lines plan", "plan"},
	        {COLL_KIND_ALL_REDUCE, 4, true, 664, "eager-lines plan", "eager-chunk plan"},
	        {COLL_KIND_ALL_REDUCE, 4, true, 8191, "eager-chunk plan", "zero-copy eager-chunk plan"},
	        {COLL_KIND_ALL_REDUCE, 4, true, 64 * K - 1, "zero-copy eager-chunk plan", "zero-copy cico plan"},
	        {COLL_KIND_ALL_REDUCE, 4, false, 8191, "plan", "zero-copy plan"},
	        {COLL_KIND_ALL_REDUCE, 4, false, 64 * K - 1, "zero-copy plan", "zero-copy cico plan"},
	        {COLL_KIND_ALL_REDUCE, 17, false, 1024, "central plan", "plan"},
	        {COLL_KIND_ALL_REDUCE, 17, true, 64 * M, "central plan", "central plan"},
	        {COLL_KIND_ALL_REDUCE, 1024, true, 64, "central plan", "central plan"},
	        {COLL_KIND_ALL_REDUCE, 1025, true, 64, "plan", "plan"},
	        {COLL_KIND_BARRIER, 16, false, 1, "eager-line plan", "eager-line plan"},
	        {COLL_KIND_BARRIER, 17, true, 1, "central plan", "central plan"},
	        {COLL_KIND_BROADCAST, 2, false, 48, "eager-bcast plan", "wide-bcast plan"},
	        {COLL_KIND_BROADCAST, 3, false, 664, "eager-bcast plan", "wide-bcast plan"},
	        {COLL_KIND_BROADCAST, 2, false, 32 * K, "wide-bcast plan", "zero-copy plan"},
	        {COLL_KIND_BROADCAST, 2, true, 256 * K - 1, "zero-copy plan", "zero-copy pair-bcast plan"},
	        {COLL_KIND_BROADCAST, 2, true, 2 * M, "zero-copy pair-bcast plan", "zero-copy plan"},
	        {COLL_KIND_BROADCAST, 5, true, 32 * K, "wide-bcast plan", "zero-copy cico plan"},
	        {COLL_KIND_BROADCAST, 5, false, 32 * K, "wide-bcast plan", "zero-copy plan"},
	        {COLL_KIND_ALL_GATHER, 2, false, 64 * K, "zero-copy pair-swap plan", "zero-copy cma pair-stream plan"},
	        {COLL_KIND_ALL_GATHER, 2, true, 48, "eager-lines plan", "pair-swap plan"},
	        {COLL_KIND_ALL_GATHER, 4, true, 64 * K, "zero-copy eager-chunk plan", "zero-copy cico plan"},
	        {COLL_KIND_REDUCE_SCATTER, 2, false, 32 * K, "zero-copy pair-swap plan", "zero-copy pair-stream plan"},
	        {COLL_KIND_REDUCE_SCATTER, 4, false, 216, "eager-lines plan", "eager-chunk plan"},
	        {COLL_KIND_REDUCE_SCATTER, 4, false, 512, "eager-chunk plan", "plan"},
	        {COLL_KIND_REDUCE_SCATTER, 4, true, 16 * K, "zero-copy eager-chunk plan", "zero-copy plan"},
	        {COLL_KIND_ALL_TO_ALL, 8, false, 48, "eager-lines plan", "eager-chunk plan"},
	        {COLL_KIND_ALL_TO_ALL, 8, false, 4 * K, "eager-chunk plan", "plan"},
	        {COLL_KIND_ALL_TO_ALL, 8, true, 8 * K, "zero-copy eager-chunk plan", "zero-copy cma cico plan"},
	        {COLL_KIND_ALL_TO_ALL, 2, false, 32 * K, "zero-copy pair-swap plan", "zero-copy cma pair-stream plan"},
	        {COLL_KIND_REDUCE, 8, true, 64, "plan", "plan"},
	        {COLL_KIND_SCAN, 64, true, 64, "plan", "plan"},
	        {COLL_KIND_SCATTER, 64, false, 64 * K, "central plan", "plan"},
	};
	char text[400];

	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++) {
		chain_of(&edges[i], edges[i].bytes, COLL_INTRA_AUTO, text);
		cr_expect_str_eq(text, edges[i].here, "case %zu: %s", i, text);
		chain_of(&edges[i], edges[i].bytes + 1, COLL_INTRA_AUTO, text);
		cr_expect_str_eq(text, edges[i].above, "case %zu, a byte more: %s", i, text);
	}
}

Test(ways, the_setting_takes_rows_out)
{
	const struct edge e = {COLL_KIND_ALL_GATHER, 2}, b = {COLL_KIND_BROADCAST, 2};
	char text[400];

	chain_of(&e, M, COLL_INTRA_CACHED, text);
	cr_expect_str_eq(text, "zero-copy pair-stream plan");
	chain_of(&e, M, COLL_INTRA_CMAED, text);
	cr_expect_str_eq(text, "zero-copy cma pair-stream plan");
	chain_of(&b, M, COLL_INTRA_CMAED, text);
	cr_expect_str_eq(text, "zero-copy plan");
}

/* ---- In words ---- */

Test(ways, chains_are_explained_with_their_conditions)
{
	const struct coll_ways_facts f = {.kind = COLL_KIND_ALL_TO_ALL,
	                                  .size = 2,
	                                  .bytes = M,
	                                  .intra_bytes = 64 * K,
	                                  .copy = COLL_INTRA_AUTO,
	                                  .holds = COLL_CALL_INTRANODE};
	const struct coll_ways_facts none = {.kind = COLL_KIND_SCAN, .size = 2, .bytes = M};
	const struct coll_ways_facts direct = plain(COLL_KIND_ALL_REDUCE, LIKE_MOST | COLL_CALL_DEVICES);
	const struct coll_ways_facts end = plain(COLL_KIND_BARRIER, COLL_CALL_GROUP_END | COLL_CALL_MATCHED);
	char text[400], cut[20];

	coll_explain_ways(&f, "direct", text, sizeof(text));
	cr_expect_str_eq(
	        text,
	        "zero-copy if all inputs are mapped by every rank and not in place; else cma if every rank may "
	        "read the others' memory and a trial finds it faster (plain buffers); else pair-stream "
	        "(plain buffers); else direct (no memory can be shared)",
	        "%s", text);
	coll_explain_ways(&none, "ring", text, sizeof(text));
	cr_expect_str_eq(text, "ring");
	coll_explain_ways(&direct, "ring", text, sizeof(text));
	cr_expect_str_eq(text, "device-direct", "%s", text);
	coll_explain_ways(&end, "ring", text, sizeof(text));
	cr_expect_str_eq(text, "group-barrier; else ring (a frame of an earlier call may be left)", "%s", text);
	coll_explain_ways(&f, "direct", cut, sizeof(cut));
	cr_expect_str_eq(cut, "zero-copy if all in");
}
