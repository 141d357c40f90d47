/*
 * Binding a call: shapes are found once and then looked up, and tiles fit slots.
 */
#include "select/bind.h"
#include "tests/fakes/fake_algos.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_intra.h"
#include "tests/fakes/fake_plan.h"
#include "tests/fakes/fake_select.h"
#include "tests/plain.h"

enum { SIZE = 4, SLOT_BYTES = 4096 };

static struct coll_comm *comm;

/* In place of what src/devcall fills. */
static struct coll_device_facts direct;

static struct coll_op_entry ops[COLL_OPS_MAX];

static void setup(void)
{
	fake_plan_reset();
	fake_select_reset();
	comm = fake_comm_open(0, SIZE);
	comm->ops = ops;
	comm->slot_bytes = SLOT_BYTES;
	comm->facts.forced = "";
	fake_select.choice = (struct coll_select_choice){.algo = &coll_algos[FAKE_LEAN], .windows = 3};
}

static struct coll_call reduce(size_t count)
{
	return (struct coll_call){.kind = COLL_KIND_ALL_REDUCE, .count = count, .type = COLL_F32, .op = COLL_SUM};
}

static struct coll_memo *bound(struct coll_call c)
{
	struct coll_memo *m = NULL;

	return coll_call_remember(comm, &c, &m) == COLL_OK ? m : NULL;
}

/* A test behind setup(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), (void)0)

WORLD_TEST(bind, a_shape_is_chosen_once)
{
	struct coll_memo *m;

	m = bound(reduce(100));
	REQUIRE(m);
	CHECK(bound(reduce(100)) == m && fake_select.chosen == 1 && fake_plan.pins == 1);
	CHECK(bound(reduce(200)) && fake_select.chosen == 2);
	CHECK(bound(reduce(100)) == m && fake_select.chosen == 2, "the other did not chase it away");
}

WORLD_TEST(bind, memos_that_are_taken_over_give_their_plans_back)
{
	for (size_t n = 1; n <= 500; n++)
		REQUIRE(bound(reduce(n)));
	CHECK(fake_select.chosen == 500);
	CHECK(fake_plan.pins > 0 && fake_plan.pins <= COLL_MEMO_SLOTS, "%d pins", fake_plan.pins);
}

WORLD_TEST(bind, blocks_of_too_many_ranks_do_not_fit_in_staging)
{
	struct coll_call c = {.kind = COLL_KIND_ALL_TO_ALL, .count = 1, .type = COLL_F64};

	comm->facts.devices = true;
	comm->size = COLL_STAGE_SLOT_BYTES / 8;
	CHECK(bound(c));
	comm->size++;
	c.count++;
	CHECK(!bound(c));
	c.type = COLL_F32;
	CHECK(bound(c));
	comm->size = SIZE;
}

WORLD_TEST(bind, as_many_roots_may_take_turns_as_there_are_pairs_of_places)
{
	struct coll_call c = {.kind = COLL_KIND_BROADCAST, .count = 100, .type = COLL_F32};

	for (int turn = 0; turn < 2; turn++)
		for (c.root = 0; c.root < COLL_MEMO_SLOTS / 2; c.root++)
			REQUIRE(bound(c));
	CHECK(fake_select.chosen == COLL_MEMO_SLOTS / 2);
}

WORLD_TEST(bind, a_memo_that_goes_closes_its_fast_path)
{
	uint64_t key = 9;

	REQUIRE(bound(reduce(1)));
	bound(reduce(1))->fastpath_key = &key;
	for (size_t n = 2; n <= 500 && key; n++)
		REQUIRE(bound(reduce(n)));
	CHECK(key == 0);
}

/* The plan has as many chunks as ranks, and one of them in a frame: a tile is as many slots. */
WORLD_TEST(bind, tiles_are_equal_and_fit_a_slot)
{
	const size_t largest = SLOT_BYTES / 4 / SIZE * SIZE;
	struct coll_memo *m;

	m = bound(reduce(100));
	REQUIRE(m);
	CHECK(m->tile == 100 && m->windows == 1, "one tile");
	m = bound(reduce(2 * largest + 1));
	REQUIRE(m);
	CHECK(m->tile <= largest && m->tile * 3 >= 2 * largest + 1 && m->windows == 3, "%zu", m->tile);
	m = bound(reduce(100 * largest));
	REQUIRE(m);
	CHECK(m->tile == largest && m->windows == 3);
	CHECK(m->scratch_bytes == m->tile * 4 * 3);
}

WORLD_TEST(bind, slots_too_small_for_an_element_are_refused)
{
	comm->slot_bytes = 2;
	CHECK(!bound(reduce(100)));
	CHECK(strstr(fake_core.cause, "[COLL-1108]") && fake_plan.pins == 0, "%s", fake_core.cause);
}

WORLD_TEST(bind, what_cannot_be_bound_is_refused)
{
	struct coll_call c = reduce(100);

	c.op = COLL_MAX;
	CHECK(!bound(c) && strstr(fake_core.cause, "not defined"), "%s", fake_core.cause);
	fake_plan.refuse = COLL_ERR_INTERNAL;
	CHECK(!bound(reduce(100)) && strstr(fake_core.cause, "the fake cache says so"));
	fake_select.no_choice = COLL_ERR_CONFIG;
	CHECK(!bound(reduce(100)) && strstr(fake_core.cause, "[COLL-1112]"));
	CHECK(fake_core.refusals == 3);
}

/* The call of 2 elements that the fake table has an intranode row for. */
static struct coll_memo *bound_intranode(struct coll_call c)
{
	comm->intra = &fake_intra.object;
	comm->ctx->dedicated_cores = true;
	c.count = 2;
	return bound(c);
}

WORLD_TEST(bind, the_row_of_the_table_makes_the_call)
{
	CHECK(bound_intranode(reduce(2))->intra == &fake_intra.object.ops[1] && bound(reduce(2))->fastpath);
	CHECK(bound(reduce(2))->plan, "it may have to do");
	CHECK(!bound(reduce(3))->intra, "of other lengths there is no row");
}

WORLD_TEST(bind, only_calls_of_equal_blocks_by_built_in_operations_of_the_user_go_over_shared_memory)
{
	struct coll_call c = reduce(2);

	comm->ops[0] = (struct coll_op_entry){.used = true, .commutative = true, .code = (coll_op)COLL_OP_USER};
	c.op = COLL_OP_FIRST;
	CHECK(!bound_intranode(c)->intra, "a user's operation");
	c = reduce(2);
	c.record_kind = COLL_RECORD_SPLIT;
	CHECK(!bound_intranode(c)->intra, "the library's own");
	c = reduce(2);
	c.ragged = true;
	CHECK(!bound_intranode(c)->intra);
	comm->facts.devices = true;
	CHECK(bound_intranode(reduce(2))->intra, "it fits one slot of staging");
	comm->facts.devices = false;
	fake_select.choice.forced = true;
	CHECK(bound(reduce(1))->intra, "COLL_ALGO is a fact like others: the fake table does not ask for it");
}

/* A plan that nothing would run is not made. */
WORLD_TEST(bind, a_direct_call_has_no_plan)
{
	const struct coll_memo *m;

	direct.on = true;
	comm->direct = &direct;
	m = bound(reduce(100));
	comm->direct = NULL;
	REQUIRE(m);
	CHECK(m->intra == &direct.op && !m->plan && !m->fastpath);
	CHECK(m->tile == 100 && m->windows == 1 && m->scratch_bytes == 0);
	CHECK(fake_plan.obtained == 0, "%d plans were made", fake_plan.obtained);
	CHECK(bound(reduce(100)) == m, "it is remembered all the same");
}

/* To the user it is a barrier; its own lanes make it. */
WORLD_TEST(bind, the_first_call_of_a_group_has_no_plan)
{
	static const struct coll_intra_op op;
	struct coll_call c = {.kind = COLL_KIND_BARRIER, .record_kind = COLL_RECORD_GROUP, .count = 1, .type = COLL_U8};

	CHECK(bound(c)->plan, "no group");
	setup();
	comm->group_op = &op;
	REQUIRE(bound(c));
	CHECK(bound(c)->intra == &op && !bound(c)->plan && fake_plan.obtained == 0);
}

static void first(const void *in, void *inout, size_t count, coll_dtype type, void *arg)
{
}

/* The number may name another function by now. */
WORLD_TEST(bind, a_users_operation_is_bound_anew)
{
	struct coll_call c = reduce(100);

	c.op = COLL_OP_FIRST;
	comm->ops[0] = (struct coll_op_entry){.used = true, .commutative = true, .code = (coll_op)COLL_OP_USER};
	REQUIRE(bound(c));
	CHECK(!bound(c)->reduction.user_fn && fake_select.chosen == 1);
	comm->ops[0].fn = (coll_user_fn)(void (*)(void))first;
	CHECK(bound(c)->reduction.user_fn == comm->ops[0].fn && fake_select.chosen == 1);
	comm->ops[0].commutative = false;
	CHECK(bound(c)->ordered && fake_select.chosen == 2, "another choice");
}
