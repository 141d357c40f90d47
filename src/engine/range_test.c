/*
 * Where bytes are, for sizes that no test could allocate: addresses only.
 */
#include "engine/range.h"
#include "tests/plain.h"

static const struct coll_plan vector_plan = {.kind = COLL_KIND_ALL_REDUCE, .size = 3, .chunks = 3, .max_run = 1};

/* A run and an instance on tile t of a vector, as coll_run_start() leaves them. */
static void place(struct coll_run *run, struct instance *inst, size_t tile)
{
	run->job.plan = &vector_plan;
	inst->tile = tile;
	inst->first = tile * run->job.tile;
	inst->len = run->elements - inst->first < run->job.tile ? run->elements - inst->first : run->job.tile;
	inst->at[0] = run->job.in.base + inst->first * run->job.elem_bytes;
	inst->q = inst->len / 3;
	inst->r = inst->len % 3;
}

TEST(range, more_than_four_gigabytes)
{
	struct coll_run run = {.elements = ((size_t)5 << 32) + 1};
	struct instance inst;
	struct walk w;
	struct coll_step s = {.op = COLL_STEP_SEND, .src_chunk = 2, .run = 1};
	const size_t tile = ((size_t)3 << 31) + 1;

	run.job.elem_bytes = 8;
	run.job.tile = tile;
	run.job.in.base = (char *)4096;
	place(&run, &inst, 2);
	CHECK(walk_begin(&run, &inst, &s, SIDE_SRC, &w) == tile / 3);
	CHECK((size_t)(w.span.src - (char *)4096) == 8 * (2 * tile + 2 * (tile / 3) + (tile % 3 ? 1 : 0)));
	place(&run, &inst, 3); /* the last tile is short */
	CHECK(inst.len == run.elements - 3 * tile);
	s.src_chunk = 0;
	s.run = 3;
	CHECK(walk_begin(&run, &inst, &s, SIDE_SRC, &w) == inst.len);
	CHECK(!walk_more(&run, &inst, &s, SIDE_SRC, &w));
}

TEST(range, runs_wrap_in_two_spans)
{
	struct coll_run run = {.elements = 10};
	struct instance inst;
	struct walk w;
	const struct coll_step s = {
	        .op = COLL_STEP_SEND, .src_chunk = 2, .run = 2, .flags = COLL_STEP_WRAP}; /* chunks 2 and 0 */

	run.job.elem_bytes = 4;
	run.job.tile = 10;
	run.job.in.base = (char *)4096;
	place(&run, &inst, 0);
	CHECK(walk_begin(&run, &inst, &s, SIDE_SRC, &w) == 7);
	CHECK(w.span.src == (char *)4096 + 28 && w.span.len == 3);
	CHECK(walk_more(&run, &inst, &s, SIDE_SRC, &w));
	CHECK(w.span.src == (char *)4096 && w.span.len == 4);
	CHECK(!walk_more(&run, &inst, &s, SIDE_SRC, &w));
}

TEST(range, tiles_fill_slots)
{
	struct coll_plan p = vector_plan;

	CHECK(coll_run_tile(&p, 8, 64) == 24);
	p.max_run = 2; /* 8 elements a slot: chunks of 4 */
	CHECK(coll_run_tile(&p, 8, 64) == 12);
	p.max_run = 3;
	CHECK(coll_run_tile(&p, 8, 64) == 8);
	p.max_run = 2;
	CHECK(coll_run_tile(&p, 8, 8) == 1); /* less than one element per chunk */
	p.kind = COLL_KIND_ALL_TO_ALL;
	CHECK(coll_run_tile(&p, 4, 64) == 8);
	CHECK(coll_run_tile(&p, 8, 8) == 1); /* cannot be less */
}
