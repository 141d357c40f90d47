/*
 * The engine over loop: every algorithm x size x count x windows x in place or
 * not, all ranks polled in turn by one thread, against the result computed the
 * plain way.
 */
#include <stdlib.h>

#include "engine/position.h"
#include "engine/range.h"
#include "engine/run.h"
#include "sim/call.h"
#include "sim/plans.h"
#include "sim/world.h"
#include "tests/plain.h"
#include "tools/common/count.h"

enum { SIZES = 8 };

/* How one sweep runs its calls. */
struct setting {
	uint32_t windows;
	uint32_t slots;
	size_t slot_bytes;
	size_t ref_bytes; /* 1: everything by reference; SIZE_MAX: nothing */
	bool fused;
};

static void *aligned_block(size_t len_bytes)
{
	return aligned_alloc(64, (len_bytes + 64) / 64 * 64);
}

/* Run one call of all ranks; true when the result is right. */
static bool run_call(struct sim_world *w, const struct sim_call *c, const struct sim_plans *p, const struct setting *s,
                     uint64_t sequence)
{
	struct sim_buffers bufs[64];
	char *scratch[64] = {0};
	char why[160] = "";
	struct coll_reduction reduction;
	coll_status status = COLL_OK;
	int who = -1;
	bool right;
	const size_t elem_bytes = coll_dtype_size(c->type);
	const size_t tile = sim_plans_tile(p, elem_bytes, s->slot_bytes);

	if (coll_plan_kind_reduces(c->kind) && sim_call_reduction(c, &reduction) != COLL_OK)
		return false;
	if (sim_call_buffers(c, bufs) != COLL_OK)
		return false;
	for (int r = 0; r < c->size && status == COLL_OK; r++) {
		const struct coll_plan *plan = s->fused ? p->fused[r] : p->logical[r];
		struct coll_job job = {
		        .plan = plan, .tile = tile, .windows = s->windows, .sequence = sequence, .signature = 0xabcd};

		sim_call_bind(c, r, &bufs[r], &reduction, &job);
		scratch[r] = aligned_block(coll_run_scratch_bytes(plan, tile, elem_bytes, s->windows));
		job.scratch = scratch[r];
		status = coll_run_start(w->ranks[r].run, &w->ranks[r].fabric, &job);
	}
	if (status == COLL_OK)
		status = sim_world_finish(w, &who);
	right = status == COLL_OK && sim_call_check(c, bufs, why, sizeof(why)) == 0;
	if (!right)
		plain_fail(__FILE__, __LINE__, "call",
		           " %s %s n=%d root=%d count=%zu type=%s in_place=%llx windows=%u slot=%zu fused=%d: %s at "
		           "rank %d %s",
		           coll_plan_kind_name(c->kind), p->logical[0]->algo, c->size, c->root, c->count,
		           coll_dtype_name(c->type), (unsigned long long)c->in_place, s->windows, s->slot_bytes,
		           s->fused, coll_status_string(status), who, why);
	for (int r = 0; r < c->size; r++)
		free(scratch[r]);
	sim_call_free(c, bufs);
	return right;
}

/* Counts that find mistakes in cuts. */
static size_t count_at(int i, int n)
{
	const size_t counts[] = {0, 1, (size_t)n - 1, (size_t)n + 1, 13, 67};

	return counts[i];
}

enum { COUNTS = 6 };

static void sweep_algo(const struct coll_algo *algo, int n, const struct setting *s)
{
	struct sim_world w;
	uint64_t sequence = 0;

	REQUIRE(sim_world_create(&w, n, NULL, NULL, s->slots, s->slot_bytes, s->ref_bytes) == COLL_OK);
	for (int root = 0; root < n && (root == 0 || root == n - 1 || n <= 3); root++) {
		struct sim_plans p;

		if (sim_plans_make(&p, algo, n, root, false, true, false) != COLL_OK)
			break;
		for (int i = 0; i < 2 * COUNTS; i++) {
			struct sim_call c = {.kind = algo->kind,
			                     .size = n,
			                     .root = root,
			                     .type = COLL_U64,
			                     .count = count_at(i / 2, n),
			                     .in_place = i % 2 ? 0x5555 << (i / 2 % 2) : 0,
			                     .seed = sequence};

			if (algo->kind == COLL_KIND_BARRIER)
				c.count = 1;
			if (!run_call(&w, &c, &p, s, ++sequence))
				break;
		}
		sim_plans_free(&p);
	}
	sim_world_destroy(&w);
}

static void sweep(const struct setting *s)
{
	for (size_t a = 0; a < coll_algos_count; a++)
		for (int n = 1; n <= SIZES; n++)
			sweep_algo(&coll_algos[a], n, s);
}

TEST(engine, logical_plans_one_window)
{
	sweep(&(struct setting){.windows = 1, .slots = 2, .slot_bytes = 256, .ref_bytes = SIZE_MAX});
}

TEST(engine, fused_plans_one_window)
{
	sweep(&(struct setting){.windows = 1, .slots = 2, .slot_bytes = 256, .ref_bytes = SIZE_MAX, .fused = true});
}

TEST(engine, fused_plans_two_windows_small_slots)
{
	sweep(&(struct setting){.windows = 2, .slots = 2, .slot_bytes = 64, .ref_bytes = SIZE_MAX, .fused = true});
}

TEST(engine, fused_plans_three_windows_by_reference)
{
	sweep(&(struct setting){.windows = 3, .slots = 2, .slot_bytes = 64, .ref_bytes = 1, .fused = true});
}

TEST(engine, logical_plans_three_windows_mixed)
{
	sweep(&(struct setting){.windows = 3, .slots = 3, .slot_bytes = 64, .ref_bytes = 32});
}

/* ---- Types, operations, order, ragged blocks ---- */

/* One algorithm, one size, default setting; the rest is in the call. */
static void one_call(const struct coll_algo *algo, struct sim_call c, bool ordered, uint32_t windows)
{
	const struct setting s = {
	        .windows = windows, .slots = 2, .slot_bytes = 128, .ref_bytes = SIZE_MAX, .fused = true};
	struct sim_world w;
	struct sim_plans p;

	c.kind = algo->kind;
	if (sim_plans_make(&p, algo, c.size, c.root, ordered, !c.counts, false) != COLL_OK)
		return;
	REQUIRE(sim_world_create(&w, c.size, NULL, NULL, s.slots, s.slot_bytes, s.ref_bytes) == COLL_OK);
	run_call(&w, &c, &p, &s, 9);
	sim_world_destroy(&w);
	sim_plans_free(&p);
}

TEST(engine, every_type_and_operation)
{
	for (size_t a = 0; a < coll_algos_count; a++) {
		const enum coll_kind kind = coll_algos[a].kind;

		if (kind != COLL_KIND_ALL_REDUCE && kind != COLL_KIND_REDUCE_SCATTER)
			continue;
		for (int type = 0; type < COLL_DTYPE_COUNT; type++)
			for (coll_op op = 0; op <= COLL_OP_PREMUL_SUM; op++)
				if (coll_reduce_supports((coll_dtype)type, op) && (op != COLL_PROD || type < COLL_F16))
					one_call(&coll_algos[a],
					         (struct sim_call){.size = 5,
					                           .type = (coll_dtype)type,
					                           .op = op,
					                           .count = 37,
					                           .in_place = op & 1 ? 0x15 : 0,
					                           .seed = op},
					         false, 2);
	}
}

TEST(engine, rank_order_of_operands)
{
	int ran = 0;

	for (size_t a = 0; a < coll_algos_count; a++)
		for (int n = 1; n <= SIZES && coll_algos[a].flags & COLL_ALGO_ORDERED; n++, ran++)
			one_call(&coll_algos[a],
			         (struct sim_call){.size = n,
			                           .root = coll_algos[a].kind == COLL_KIND_REDUCE ? n / 2 : 0,
			                           .type = COLL_U64,
			                           .op = COLL_OP_USER,
			                           .count = 29,
			                           .in_place = 0x33,
			                           .seed = (uint64_t)n},
			         true, 3);
	CHECK(ran > 0);
}

/* Ragged blocks, some empty; all_to_all: a matrix and its transpose. */
TEST(engine, ragged_blocks)
{
	int ran = 0;

	for (size_t a = 0; a < coll_algos_count; a++) {
		const struct coll_algo *algo = &coll_algos[a];
		const bool known = algo->kind == COLL_KIND_ALL_GATHER || algo->kind == COLL_KIND_REDUCE_SCATTER;

		if (!coll_plan_kind_is_block(algo->kind) ||
		    !(algo->flags & (known ? COLL_ALGO_RAGGED : COLL_ALGO_PAIRWISE)))
			continue;
		for (int n = 2; n <= SIZES; n++) {
			size_t counts[2 * SIZES * SIZES];

			for (int i = 0; i < n * n; i++)
				counts[i] = (size_t)(i * 7 % 5) * (size_t)(i * 11 % 13);
			for (int i = 0; i < n * n; i++)
				counts[n * n + i] = counts[i % n * n + i / n];
			for (int root = 0; root < n; root += n - 1, ran++)
				one_call(algo,
				         (struct sim_call){.size = n,
				                           .root = known || algo->kind == COLL_KIND_ALL_TO_ALL ? 0
				                                                                               : root,
				                           .type = COLL_U64,
				                           .counts = counts,
				                           .in_place = 0x5a,
				                           .seed = (uint64_t)n},
				         false, 2);
		}
	}
	CHECK(ran > 0);
}

/* ---- What does not fit ---- */

/* Two ranks whose calls differ; returns the status and where it was noticed. */
static coll_status run_different(uint64_t sequence, uint32_t signature, size_t count, struct coll_run_where *where)
{
	const struct coll_algo *algo = coll_algo_find(COLL_KIND_ALL_REDUCE, "ring");
	struct coll_reduction reduction;
	struct sim_world w;
	struct sim_plans p;
	uint64_t in[16] = {0}, out[2][16] = {{0}};
	coll_status status;
	int who = -1;

	coll_reduce_bind(&reduction, COLL_U64, COLL_SUM, 2, COLL_ISA_SCALAR);
	if (sim_plans_make(&p, algo, 2, 0, false, true, false) != COLL_OK)
		return COLL_ERR_INTERNAL;
	if (sim_world_create(&w, 2, NULL, NULL, 2, 256, 0) != COLL_OK)
		return COLL_ERR_INTERNAL;
	for (int r = 0; r < 2; r++) {
		struct coll_job job = {.plan = p.fused[r],
		                       .elem_bytes = 8,
		                       .reduction = &reduction,
		                       .tile = 16,
		                       .windows = 1,
		                       .sequence = r ? sequence : 7,
		                       .signature = r ? signature : 0x77};

		job.in = (struct coll_extent){.base = (char *)in, .count = r ? count : 8};
		job.out = (struct coll_extent){.base = (char *)out[r], .count = r ? count : 8};
		coll_run_start(w.ranks[r].run, &w.ranks[r].fabric, &job);
	}
	status = sim_world_finish(&w, &who);
	if (who >= 0)
		coll_run_where(w.ranks[who].run, where);
	if (who >= 0 && where->peer != 1 - who)
		status = COLL_ERR_INTERNAL;
	for (int i = 0; i < 16; i++) /* nothing of a frame that does not fit is used */
		if (status != COLL_OK && (out[0][i] || out[1][i]))
			status = COLL_ERR_INTERNAL;
	sim_world_destroy(&w);
	sim_plans_free(&p);
	return status;
}

TEST(engine, calls_that_differ_are_refused)
{
	struct coll_run_where where = {0};

	CHECK(run_different(7, 0x77, 8, &where) == COLL_OK);
	CHECK(run_different(8, 0x77, 8, &where) == COLL_ERR_MISMATCH);
	CHECK(where.frame.sequence == 8, "%llu", (unsigned long long)where.frame.sequence);
	CHECK(run_different(7, 0x78, 8, &where) == COLL_ERR_MISMATCH);
	CHECK(where.frame.signature == 0x78, "%x", where.frame.signature);
	CHECK(run_different(7, 0x77, 9, &where) == COLL_ERR_CORRUPT);
	CHECK(where.frame.len_bytes == 32, "%u", where.frame.len_bytes);
}

/* ---- Counts that do not drift ---- */

TEST(engine, ring_moves_what_the_plan_says)
{
	const struct coll_algo *algo = coll_algo_find(COLL_KIND_ALL_REDUCE, "ring");
	const struct setting s = {.windows = 2, .slots = 2, .slot_bytes = 64, .ref_bytes = SIZE_MAX, .fused = true};
	const struct sim_call c = {
	        .kind = algo->kind, .size = 4, .type = COLL_U64, .count = 320, .seed = 1}; /* 10 tiles of 32 */
	struct coll_plan_counts counts;
	struct sim_world w;
	struct sim_plans p;

	REQUIRE(sim_plans_make(&p, algo, 4, 0, false, true, false) == COLL_OK);
	REQUIRE(sim_plans_tile(&p, 8, s.slot_bytes) == 32);
	REQUIRE(sim_world_create(&w, 4, NULL, NULL, s.slots, s.slot_bytes, s.ref_bytes) == COLL_OK);
	CHECK(run_call(&w, &c, &p, &s, 1));
	coll_plan_count(p.fused[0], &counts);
	for (int r = 0; r < 4; r++) {
		const struct coll_run_stats *stats = coll_run_stats(w.ranks[r].run);

		CHECK(stats->steps == 10 * (uint64_t)counts.steps, "%llu", (unsigned long long)stats->steps);
		CHECK(stats->frames_sent == 60, "%llu", (unsigned long long)stats->frames_sent);
		CHECK(stats->frames_received == 60, "%llu", (unsigned long long)stats->frames_received);
		CHECK(stats->bytes_sent == 6 * 80 * 8, "%llu", (unsigned long long)stats->bytes_sent);
		CHECK(stats->bytes_reduced == 3 * 80 * 8, "%llu", (unsigned long long)stats->bytes_reduced);
		CHECK(stats->by_reference == 0);
	}
	/* The same call again opens no channel. */
	CHECK(w.channels == 4 * 2 * 2, "%u", w.channels);
	CHECK(run_call(&w, &c, &p, &s, 2));
	CHECK(w.channels == 4 * 2 * 2, "%u", w.channels);
	sim_world_destroy(&w);
	sim_plans_free(&p);
}

/* What one call copies on each rank, by value, in blocks of 320 elements: into slots, out of them,
 * and between its own buffers. */
static uint64_t blocks_copied(enum coll_kind kind, const char *name, int n, uint64_t in_place, int rank)
{
	const struct coll_algo *algo = coll_algo_find(kind, name);
	const struct setting s = {.windows = 2, .slots = 2, .slot_bytes = 256, .ref_bytes = SIZE_MAX, .fused = true};
	const struct sim_call c = {
	        .kind = kind, .size = n, .type = COLL_U64, .count = 320, .seed = 1, .in_place = in_place};
	struct sim_world w;
	struct sim_plans p;
	uint64_t copied = 0;

	if (sim_plans_make(&p, algo, n, 0, false, true, false) != COLL_OK)
		return 0;
	if (sim_world_create(&w, n, NULL, NULL, s.slots, s.slot_bytes, s.ref_bytes) == COLL_OK) {
		CHECK(run_call(&w, &c, &p, &s, 1), "%s %d", name, n);
		copied = coll_run_stats(w.ranks[rank].run)->bytes_copied;
		sim_world_destroy(&w);
	}
	sim_plans_free(&p);
	CHECK(copied % (320 * 8) == 0, "%llu", (unsigned long long)copied);
	return copied / (320 * 8);
}

TEST(engine, out_of_place_each_block_is_copied_once_into_a_slot_once_out_of_one)
{
	for (int n = 2; n <= 8; n++) {
		const uint64_t least = 2 * (uint64_t)(n - 1) + 1; /* and the own one once */

		for (int r = 0; r < n; r++) {
			CHECK(blocks_copied(COLL_KIND_ALL_GATHER, "direct", n, 0, r) == least, "%d of %d", r, n);
			CHECK(blocks_copied(COLL_KIND_ALL_TO_ALL, "direct", n, 0, r) == least, "%d of %d", r, n);
			CHECK(blocks_copied(COLL_KIND_ALL_TO_ALL, "pairwise", n, 0, r) == least, "%d of %d", r, n);
		}
		CHECK(blocks_copied(COLL_KIND_ALL_GATHER, "circulant", n, 0, 0) == least, "%d", n);
	}
	/* In place one of two ranks sends from a copy, and neither copies its own block. */
	CHECK(blocks_copied(COLL_KIND_ALL_TO_ALL, "pairwise", 2, 3, 0) == 2);
	CHECK(blocks_copied(COLL_KIND_ALL_TO_ALL, "pairwise", 2, 3, 1) == 3);
}
