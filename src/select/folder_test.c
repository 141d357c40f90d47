/*
 * The folder as a whole over a fake table of algorithms: from a call's shape to what runs it.
 */
#include "select/bind.h"
#include "select/ways.h"
#include "tests/fakes/fake_algos.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_intra.h"
#include "tests/fakes/fake_plan.h"
#include "tests/plain.h"

static struct coll_comm *comm;

static void setup(void)
{
	fake_plan_reset();
	fake_intra = (struct fake_intra){.created = 0};
	comm = fake_comm_open(0, 8);
	comm->slot_bytes = 65536;
	comm->facts = (struct coll_select_facts){
	        .size = 8,
	        .caps = {.latency_ns = 1000, .overhead_ns = 100, .bytes_per_ns = 10},
	        .slot_bytes = 65536,
	        .windows_max = 4,
	        .scratch_bytes_max = 1 << 30,
	        .forced = "",
	};
}

/* Which algorithm's plan was asked for. */
static const char *planned(size_t count)
{
	const struct coll_call c = {.kind = COLL_KIND_ALL_REDUCE, .count = count, .type = COLL_F32, .op = COLL_SUM};
	struct coll_memo *m;

	return coll_call_remember(comm, &c, &m) == COLL_OK ? fake_plan.algo : "none";
}

TEST(select, few_rounds_for_few_bytes_and_few_bytes_for_many)
{
	setup();
	CHECK(strcmp(planned(2), "quick") == 0, "%s", planned(2));
	CHECK(strcmp(planned(1 << 20), "lean") == 0);
}

TEST(select, a_setting_forces_a_row)
{
	setup();
	comm->facts.forced = "all_reduce:lean";
	CHECK(strcmp(planned(2), "lean") == 0);
	comm->facts.forced = "few";
	CHECK(strcmp(planned(3), "none") == 0 && strstr(fake_core.cause, "too many ranks"), "%s", fake_core.cause);
}

TEST(select, the_explanation_names_the_ways_in_order)
{
	char text[400];

	setup();
	comm->intra = &fake_intra.object;
	fake_intra.object.size = 2;
	fake_intra.object.payload_bytes = 65536;
	coll_ways_bind(comm->intra);
	CHECK(coll_comm_explain_call(comm, COLL_KIND_ALL_REDUCE, 2, COLL_F32, "shm", text, sizeof(text)) == COLL_OK);
	CHECK(strstr(text, "a way; else quick (no memory can be shared)") &&
	              strstr(text, "transport=shm because quick"),
	      "%s", text);
	CHECK(fake_plan.pins == 0);
}

TEST(select, conditions_that_fail_leave_the_plan)
{
	struct coll_call c = {.kind = COLL_KIND_ALL_REDUCE, .count = 2, .type = COLL_F32, .op = COLL_SUM};
	struct coll_memo *m;

	setup();
	comm->intra = &fake_intra.object;
	fake_intra.object.size = 2;
	fake_intra.object.payload_bytes = 65536;
	coll_ways_bind(comm->intra);
	REQUIRE(coll_call_remember(comm, &c, &m) == COLL_OK);
	CHECK(m->intra && m->intra->way == COLL_WAY_EAGER_LINE && m->plan);
	c.record_kind = COLL_RECORD_SPLIT;
	REQUIRE(coll_call_remember(comm, &c, &m) == COLL_OK);
	CHECK(!m->intra && m->plan);
	c.record_kind = 0;
	c.count = 4;
	comm->facts.forced = "all_reduce:lean";
	REQUIRE(coll_call_remember(comm, &c, &m) == COLL_OK);
	CHECK(!m->intra, "COLL_ALGO");
}
