/*
 * The table of algorithms and its generators: every row builds for every rank,
 * whatever n and root.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "algos/algos.h"

static bool rooted(enum coll_kind kind)
{
	return kind == COLL_KIND_REDUCE || kind == COLL_KIND_BROADCAST || kind == COLL_KIND_GATHER ||
	       kind == COLL_KIND_SCATTER;
}

static bool serves(const struct coll_algo *a, int n)
{
	return a->max_size == 0 || n <= a->max_size;
}

static coll_status build(const struct coll_algo *a, int n, int root, int rank, struct coll_plan **plan)
{
	struct coll_shape shape = {.kind = a->kind, .rank = rank, .size = n, .root = root, .uniform = true, .hosts = 1};

	return coll_build_plan(&shape, a->name, a->generate, plan);
}

Test(algos, every_row_builds_for_every_rank)
{
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];

		for (int n = 1; n <= 24; n++)
			for (int root = 0; root < (rooted(a->kind) ? n : 1); root++)
				for (int rank = 0; rank < n; rank++) {
					struct coll_plan *plan = NULL;
					coll_status status = build(a, n, root, rank, &plan);

					cr_assert_eq(status, COLL_OK, "%s %s n=%d root=%d rank=%d: %d",
					             coll_plan_kind_name(a->kind), a->name, n, root, rank, status);
					coll_plan_free(plan);
				}
	}
}

Test(algos, rows_with_a_limit_refuse_more_ranks_than_scratch_buffers)
{
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];
		struct coll_plan *plan = NULL;

		if (a->max_size == 0)
			continue;
		cr_assert_eq(build(a, a->max_size, 0, a->max_size / 2, &plan), COLL_OK);
		coll_plan_free(plan);
		cr_assert_eq(build(a, COLL_SCRATCH_MAX + 2, 0, 0, &plan), COLL_ERR_UNSUPPORTED);
	}
}

Test(algos, names_are_unique_within_a_kind_and_found)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		cr_assert_eq(coll_algo_find(coll_algos[i].kind, coll_algos[i].name), &coll_algos[i]);
	cr_assert_null(coll_algo_find(COLL_KIND_BARRIER, "ring"));
}

/* What each collective must have: a row for any call that the API can make. */
Test(algos, every_kind_has_a_row_for_every_call)
{
	for (int kind = 0; kind < COLL_KIND_SEND_RECV; kind++) {
		unsigned any = 0, rows = 0;

		for (size_t i = 0; i < coll_algos_count; i++)
			if (coll_algos[i].kind == (enum coll_kind)kind && coll_algos[i].max_size == 0) {
				any |= coll_algos[i].flags;
				rows++;
			}
		cr_assert_gt(rows, 0);
		if (coll_plan_kind_reduces((enum coll_kind)kind))
			cr_assert(any & COLL_ALGO_ORDERED, "%s", coll_plan_kind_name((enum coll_kind)kind));
		if (kind == COLL_KIND_ALL_GATHER || kind == COLL_KIND_REDUCE_SCATTER)
			cr_assert(any & COLL_ALGO_RAGGED, "%s", coll_plan_kind_name((enum coll_kind)kind));
		if (kind == COLL_KIND_ALL_TO_ALL || kind == COLL_KIND_GATHER || kind == COLL_KIND_SCATTER)
			cr_assert(any & COLL_ALGO_PAIRWISE, "%s", coll_plan_kind_name((enum coll_kind)kind));
	}
	cr_assert(serves(coll_algo_find(COLL_KIND_ALL_REDUCE, "oneshot"), 64));
	cr_assert_not(serves(coll_algo_find(COLL_KIND_ALL_REDUCE, "oneshot"), 65));
}
