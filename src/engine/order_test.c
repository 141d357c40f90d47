/*
 * An operation behind another one: what a run does with the lanes of the run before
 * it, and what it makes of its end. Two ranks over loop, one thread; the orders that
 * nobody would think of are the seeded scheduler's.
 */
#include "engine/order.h"
#include "engine/position.h"
#include "engine/run.h"
#include "sim/plans.h"
#include "sim/world.h"
#include "tests/plain.h"

enum { COUNT = 16, OPS = 3 };

/* Two ranks, a few operations, a run for each; all_reduce by the ring. */
struct pair_of_ranks {
	struct sim_world w;
	struct sim_plans ring;
	struct coll_reduction sum;
	struct coll_run *runs[2][OPS];
	uint64_t in[2][OPS][COUNT], out[2][OPS][COUNT];
};

static bool set_up(struct pair_of_ranks *p)
{
	memset(p, 0, sizeof(*p));
	coll_reduce_bind(&p->sum, COLL_U64, COLL_SUM, 2, COLL_ISA_SCALAR);
	if (sim_plans_make(&p->ring, coll_algo_find(COLL_KIND_ALL_REDUCE, "ring"), 2, 0, false, true, false) != COLL_OK)
		return false;
	if (sim_world_create(&p->w, 2, NULL, NULL, 2, 256, SIZE_MAX) != COLL_OK)
		return false;
	for (int i = 0; i < 2 * OPS; i++)
		if (coll_run_create(&p->runs[i / OPS][i % OPS]) != COLL_OK)
			return false;
	return true;
}

static void tear_down(struct pair_of_ranks *p)
{
	sim_world_destroy(&p->w);
	sim_plans_free(&p->ring);
	for (int i = 0; i < 2 * OPS; i++)
		coll_run_destroy(&p->runs[i / OPS][i % OPS]);
}

/* Operation op on a rank: windows of two elements, behind `after`. */
static coll_status begin(struct pair_of_ranks *p, int rank, int op, uint32_t windows, const struct coll_run *after)
{
	struct coll_job job = {.plan = p->ring.fused[rank],
	                       .elem_bytes = 8,
	                       .reduction = &p->sum,
	                       .tile = 4,
	                       .windows = windows,
	                       .sequence = (uint64_t)op + 1,
	                       .signature = 0x77,
	                       .after = after};

	for (int i = 0; i < COUNT; i++)
		p->in[rank][op][i] = (uint64_t)(100 * op + 10 * rank + i);
	job.in = (struct coll_extent){.base = (char *)p->in[rank][op], .count = COUNT};
	job.out = (struct coll_extent){.base = (char *)p->out[rank][op], .count = COUNT};
	return coll_run_start(p->runs[rank][op], &p->w.ranks[rank].fabric, &job);
}

static bool right(const struct pair_of_ranks *p, int op)
{
	for (int i = 0; i < 2 * COUNT; i++)
		if (p->out[i / COUNT][op][i % COUNT] != (uint64_t)(200 * op + 10 + 2 * (i % COUNT)))
			return false;
	return true;
}

#define PAIR_OF_RANKS_TEST(suite, name) \
	TEST_WITH(suite, name, struct pair_of_ranks, p, REQUIRE(set_up(&p)), tear_down(&p))

PAIR_OF_RANKS_TEST(follow, a_lane_begins_when_the_one_before_has_left_it)
{
	struct coll_run_where where;
	bool moved;

	CHECK(begin(p, 0, 0, 1, NULL) == COLL_OK);
	CHECK(begin(p, 0, 1, 2, p->runs[0][0]) == COLL_OK);
	CHECK(!coll_run_left(p->runs[0][0], 0, 0));
	CHECK(coll_run_left(p->runs[0][0], 0, 1), "its only window is 0");
	CHECK(coll_run_left(p->runs[0][0], 7, 0), "it has no such lane");
	CHECK(!coll_run_left(p->runs[0][1], 0, 0));
	/* The second window of the second operation is free, the first is not: one SEND. */
	CHECK(coll_run_poll(p->runs[0][1], &moved) == COLL_AGAIN);
	CHECK(moved);
	CHECK(coll_run_stats(p->runs[0][1])->steps == 1, "%d", (int)coll_run_stats(p->runs[0][1])->steps);
	CHECK(coll_run_poll(p->runs[0][1], &moved) == COLL_AGAIN);
	CHECK(!moved);
	coll_run_where(p->runs[0][1], &where);
	CHECK(where.behind);
	CHECK(where.peer == -1 || where.peer == 1, "%d", where.peer);
	coll_run_where(p->runs[0][0], &where);
	CHECK(!where.behind);
}

PAIR_OF_RANKS_TEST(follow, operations_retire_in_order)
{
	uint32_t ended = 0;

	for (int op = 0; op < OPS; op++)
		for (int rank = 0; rank < 2; rank++)
			CHECK(begin(p, rank, op, 1 + (uint32_t)op, op ? p->runs[rank][op - 1] : NULL) == COLL_OK);
	/* The last is polled first. */
	for (int epoch = 0; epoch < 1000 && ended != 0x77; epoch++)
		for (int i = 0; i < 2 * 4; i++) {
			const int rank = i / 4, op = 2 - i % 4;
			coll_status status;

			if (op < 0)
				continue;
			status = coll_run_poll(p->runs[rank][op], NULL);
			CHECK(status == COLL_OK || status == COLL_AGAIN, "%s", coll_status_string(status));
			if (status == COLL_OK)
				ended |= 1u << (4 * rank + op);
			for (int before = 0; before < op && status == COLL_OK; before++)
				CHECK(ended >> (4 * rank + before) & 1, "operation %d before %d", op, before);
		}
	CHECK(ended == 0x77, "%x", ended);
	for (int op = 0; op < OPS; op++)
		CHECK(right(p, op), "operation %d", op);
}

PAIR_OF_RANKS_TEST(follow, what_has_no_bytes_waits_its_turn)
{
	struct coll_job empty = {.elem_bytes = 8, .tile = 4, .windows = 1, .sequence = 2};

	empty.plan = p->ring.fused[0];
	empty.after = p->runs[0][0];
	CHECK(begin(p, 0, 0, 1, NULL) == COLL_OK);
	CHECK(coll_run_start(p->runs[0][1], &p->w.ranks[0].fabric, &empty) == COLL_OK);
	CHECK(coll_run_poll(p->runs[0][1], NULL) == COLL_AGAIN);
	CHECK(begin(p, 1, 0, 1, NULL) == COLL_OK);
	for (int epoch = 0; epoch < 100; epoch++)
		for (int rank = 0; rank < 2; rank++)
			coll_run_poll(p->runs[rank][0], NULL);
	CHECK(coll_run_poll(p->runs[0][1], NULL) == COLL_OK);
}

PAIR_OF_RANKS_TEST(follow, a_failure_is_passed_on_and_the_runs_are_good_for_another_job)
{
	uint64_t frames;

	for (int op = 0; op < OPS; op++)
		CHECK(begin(p, 0, op, 2, op ? p->runs[0][op - 1] : NULL) == COLL_OK);
	CHECK(coll_run_poll(p->runs[0][0], NULL) == COLL_AGAIN);
	frames = coll_run_stats(p->runs[0][1])->frames_sent;
	coll_run_cancel(p->runs[0][0], COLL_ERR_PEER_DEAD);
	/* As yet only the first is cancelled: the others hear it from their predecessors. */
	CHECK(coll_run_poll(p->runs[0][1], NULL) == COLL_ERR_PEER_DEAD);
	CHECK(coll_run_poll(p->runs[0][2], NULL) == COLL_ERR_PEER_DEAD);
	CHECK(coll_run_stats(p->runs[0][1])->frames_sent == frames);
	CHECK(coll_run_poll(p->runs[0][0], NULL) == COLL_ERR_PEER_DEAD, "an error stays");
	sim_world_close(&p->w, 0);
	sim_world_close(&p->w, 1);
	for (int op = 0; op < OPS; op++)
		coll_run_cancel(p->runs[0][op], COLL_ERR_ABORTED);
	CHECK(coll_run_poll(p->runs[0][1], NULL) == COLL_ERR_PEER_DEAD, "the first error stays");
	CHECK(!coll_run_awaits_progress(p->runs[0][0]));
	for (int rank = 0; rank < 2; rank++)
		CHECK(begin(p, rank, 0, 2, NULL) == COLL_OK);
	for (int epoch = 0; epoch < 100; epoch++)
		for (int rank = 0; rank < 2; rank++)
			coll_run_poll(p->runs[rank][0], NULL);
	CHECK(coll_run_poll(p->runs[0][0], NULL) == COLL_OK);
	CHECK(right(p, 0));
}

PAIR_OF_RANKS_TEST(follow, a_run_that_was_started_again_has_retired)
{
	for (int rank = 0; rank < 2; rank++)
		CHECK(begin(p, rank, 0, 2, NULL) == COLL_OK);
	/* The second is told to follow the first, and not polled before the first is in use again. */
	CHECK(begin(p, 0, 1, 2, p->runs[0][0]) == COLL_OK);
	for (int epoch = 0; epoch < 100; epoch++)
		for (int rank = 0; rank < 2; rank++)
			coll_run_poll(p->runs[rank][0], NULL);
	CHECK(begin(p, 1, 1, 2, NULL) == COLL_OK);
	coll_run_restart(p->runs[0][0], p->in[0][2], p->out[0][2], 3);
	coll_run_follow(p->runs[0][0], p->runs[0][1]);
	for (int epoch = 0; epoch < 100; epoch++)
		for (int rank = 0; rank < 2; rank++)
			coll_run_poll(p->runs[rank][1], NULL);
	CHECK(coll_run_poll(p->runs[0][1], NULL) == COLL_OK);
	CHECK(coll_run_poll(p->runs[0][0], NULL) == COLL_AGAIN, "the other rank has not come yet");
	CHECK(right(p, 1));
}
