/*
 * The engine over loop: every algorithm x size x count x windows x in place or
 * not, all ranks polled in turn by one thread, against the result computed the
 * plain way.
 */
#include "tests/plain.h"

#include <stdlib.h>

#include "sim/call.h"
#include "sim/plans.h"
#include "sim/world.h"

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

		if (sim_plans_make(&p, algo, n, root, false, true) != COLL_OK)
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
