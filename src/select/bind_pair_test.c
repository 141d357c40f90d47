/*
 * Binding a message: the plan of each half, and what both ends must agree on.
 */
#include "select/bind_pair.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_plan.h"
#include "tests/plain.h"

static const struct coll_pair pair = {
        .dest = 2, .source = 3, .send_count = 10, .recv_count = 20, .send = "s", .recv = (void *)1, .type = COLL_F32};

static struct coll_comm *setup(void)
{
	struct coll_comm *comm = fake_comm_open(1, 4);

	fake_plan_reset();
	comm->slot_bytes = 4096;
	return comm;
}

TEST(bind_pair, each_half_has_a_plan_of_one_step)
{
	const struct coll_plan *plan = NULL;

	CHECK(coll_pair_plan(setup(), 0, 2, &plan) == COLL_OK && plan == &fake_plan.plan);
	CHECK(fake_plan.shape.kind == COLL_KIND_SEND_RECV && fake_plan.shape.root == 2 && fake_plan.shape.rank == 1);
	CHECK(fake_plan.generate(&fake_plan.shape, NULL) == COLL_OK);
	CHECK(fake_plan.sends == 1 && fake_plan.recvs == 0 && fake_plan.peer == 2);
	CHECK(coll_pair_plan(setup(), 1, 3, &plan) == COLL_OK);
	CHECK(fake_plan.generate(&fake_plan.shape, NULL) == COLL_OK);
	CHECK(fake_plan.sends == 0 && fake_plan.recvs == 1 && fake_plan.peer == 3);
}

TEST(bind_pair, without_a_plan_the_call_is_refused)
{
	struct coll_comm *comm = setup();
	const struct coll_plan *plan = NULL;

	fake_plan.refuse = COLL_ERR_MEMORY;
	CHECK(coll_pair_plan(comm, 0, 2, &plan) == COLL_ERR_MEMORY && !plan && fake_core.refusals == 1);
}

static uint32_t signature(int half, struct coll_pair p)
{
	struct coll_job job;

	coll_pair_job(setup(), &p, half, &fake_plan.plan, &job);
	return job.signature;
}

TEST(bind_pair, both_ends_have_one_signature_where_type_and_count_are_equal)
{
	struct coll_pair equal = pair, longer = pair, other = pair;

	equal.recv_count = 10;
	longer.recv_count = 11;
	other.recv_count = 10;
	other.type = COLL_I32;
	CHECK(signature(0, pair) == signature(1, equal));
	CHECK(signature(0, pair) != signature(1, longer));
	CHECK(signature(0, pair) != signature(1, other));
}

TEST(bind_pair, the_job_of_a_half_has_its_buffer)
{
	struct coll_job job;

	coll_pair_job(setup(), &pair, 0, &fake_plan.plan, &job);
	CHECK(job.in.base == pair.send && !job.out.base && job.in.count == 10 && job.tile == 4096 / 4);
	coll_pair_job(setup(), &pair, 1, &fake_plan.plan, &job);
	CHECK(!job.in.base && job.out.base == pair.recv && job.out.count == 20);
}

TEST(bind_pair, the_record_names_the_half_or_both)
{
	struct coll_pair p = pair;
	struct coll_record r;

	coll_pair_record(setup(), &p, &r);
	CHECK(r.op == 2 && r.root == 2 && r.count == 10);
	p.source = -1;
	coll_pair_record(setup(), &p, &r);
	CHECK(r.op == 0 && r.root == 2);
	p.dest = -1;
	p.source = 3;
	coll_pair_record(setup(), &p, &r);
	CHECK(r.op == 1 && r.root == 3 && r.count == 20);
}
