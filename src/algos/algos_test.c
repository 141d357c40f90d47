/*
 * The table of algorithms and its generators: every row builds for every rank,
 * its plans are proved right, logical and fused, whoever runs in place, and its
 * price is what the plans really do.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "algos/algos.h"
#include "plan/lower.h"
#include "proof/verify.h"
#include "tools/common/count.h"

static bool rooted(enum coll_kind kind)
{
	return kind == COLL_KIND_REDUCE || kind == COLL_KIND_BROADCAST || kind == COLL_KIND_GATHER ||
	       kind == COLL_KIND_SCATTER;
}

/* ---- Proofs ---- */

struct family {
	struct coll_plan *logical[64];
	struct coll_plan *fused[64];
};

static bool uniform_only(const struct coll_algo *a)
{
	return coll_plan_kind_is_block(a->kind) && !(a->flags & (COLL_ALGO_RAGGED | COLL_ALGO_PAIRWISE));
}

static coll_status build(const struct coll_algo *a, int n, int root, int rank, struct coll_plan **plan)
{
	struct coll_shape shape = {.kind = a->kind,
	                           .rank = rank,
	                           .size = n,
	                           .root = root,
	                           .ordered = a->flags & COLL_ALGO_ORDERED,
	                           .uniform = uniform_only(a)};

	return coll_build_plan(&shape, a->name, a->generate, plan);
}

static void family_make(struct family *f, const struct coll_algo *a, int n, int root)
{
	for (int r = 0; r < n; r++) {
		coll_status status = build(a, n, root, r, &f->logical[r]);

		cr_assert_eq(status, COLL_OK, "%s %s n=%d root=%d rank=%d: %d", coll_plan_kind_name(a->kind), a->name,
		             n, root, r, status);
		cr_assert_eq(coll_plan_lower(f->logical[r], &f->fused[r]), COLL_OK);
	}
}

static void family_free(struct family *f, int n)
{
	for (int r = 0; r < n; r++) {
		coll_plan_free(f->logical[r]);
		coll_plan_free(f->fused[r]);
	}
}

static void prove(const struct coll_algo *a, struct coll_plan **plans, int n, int root, uint64_t in_place)
{
	const struct coll_plan *const *these = (const struct coll_plan *const *)plans;
	struct coll_verify_options opt = {.depth = plans[0]->fused ? 2 : 0,
	                                  .windows = 2,
	                                  .ordered = a->flags & COLL_ALGO_ORDERED,
	                                  .uniform = uniform_only(a),
	                                  .pairwise = a->flags & COLL_ALGO_PAIRWISE,
	                                  .in_place = in_place,
	                                  .then = these};
	char why[256];
	coll_status status = coll_plan_verify(these, n, &opt, why, sizeof(why));

	cr_assert_eq(status, COLL_OK, "%s %s n=%d root=%d fused=%d in place %llx: %s", coll_plan_kind_name(a->kind),
	             a->name, n, root, plans[0]->fused, (unsigned long long)in_place, why);
}

Test(algos, every_row_is_proved_for_every_n_and_root)
{
	static const uint64_t in_place[] = {0, ~(uint64_t)0, 0x5555555555555555u, 0x123456789abcdef0u};

	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];

		for (int n = 1; n <= 20 && a->cost; n++) /* without: see tests/plans/layouts.c */
			for (int root = 0; root < (rooted(a->kind) ? n : 1); root++) {
				struct family f;

				family_make(&f, a, n, root);
				for (int k = 0; k < 4; k++) {
					prove(a, f.logical, n, root, in_place[k]);
					prove(a, f.fused, n, root, in_place[k]);
				}
				family_free(&f, n);
			}
	}
}

/* ---- Prices ---- */

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* What one rank's plan does, folded into the busiest rank's account. */
static void account(struct coll_algo_cost *busiest, const struct coll_plan *p)
{
	const double unit = coll_plan_kind_is_block(p->kind) ? 1 : 1.0 / p->chunks;
	double reduced = 0, copied = 0, scratch = 0;
	struct coll_plan_counts counts;

	coll_plan_count(p, &counts);
	for (uint32_t i = 0; i < coll_plan_nsteps(p); i++) {
		const struct coll_step *s = &p->steps[i];

		if (s->op == COLL_STEP_RECV || s->op == COLL_STEP_COPY)
			copied += s->run;
		else if (s->op == COLL_STEP_RECV_REDUCE)
			reduced += s->run;
		else if (s->op == COLL_STEP_REDUCE)
			reduced += (double)s->run * (s->stride - (s->group == COLL_NO_SPLICE));
	}
	for (uint32_t k = 0; k < p->nscratch; k++)
		scratch += p->scratch[k].count;
	busiest->frames = larger(busiest->frames, counts.sends + counts.recvs);
	busiest->sent = larger(busiest->sent, (double)counts.sent_chunks * unit);
	busiest->received = larger(busiest->received, (double)counts.received_chunks * unit);
	busiest->reduced = larger(busiest->reduced, reduced * unit);
	busiest->copied = larger(busiest->copied, copied * unit);
	busiest->frame = larger(busiest->frame, p->max_run * unit);
	busiest->scratch = larger(busiest->scratch, scratch * unit);
	busiest->all_frames += counts.sends + counts.recvs;
	busiest->all_sent += (double)counts.sent_chunks * unit;
}

static void account_all(struct coll_algo_cost *busiest, const struct coll_algo *a, int n, int root)
{
	struct coll_plan *plans[64];
	uint32_t rounds;

	busiest->all_frames = busiest->all_sent = 0; /* the same for every root */
	for (int r = 0; r < n; r++) {
		cr_assert_eq(build(a, n, root, r, &plans[r]), COLL_OK);
		account(busiest, plans[r]);
	}
	cr_assert_eq(coll_plan_rounds((const struct coll_plan *const *)plans, n, &rounds), COLL_OK);
	busiest->rounds = larger(busiest->rounds, rounds);
	for (int r = 0; r < n; r++)
		coll_plan_free(plans[r]);
}

#define SAME(member)                                                                                           \
	cr_assert(fabs(plan.member - price.member) < 1e-9, "%s %s n=%d: " #member " is %g, the price says %g", \
	          coll_plan_kind_name(a->kind), a->name, n, plan.member, price.member)

Test(algos, the_price_is_what_the_plans_do)
{
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];

		for (int n = 1; n <= 64; n++) {
			struct coll_algo_cost plan = {0}, price;

			if (!a->cost)
				continue; /* needs a layout: coll-plan verify --layouts counts it */
			for (int root = 0; root < (rooted(a->kind) ? n : 1); root++)
				account_all(&plan, a, n, root);
			a->cost(n, &price);
			if (strncmp(a->name, "blocks", 6) == 0) { /* a bound: what is left out varies with n */
				cr_assert_leq(plan.rounds, price.rounds, "%s n=%d: %g", a->name, n, plan.rounds);
				cr_assert_leq(plan.frames, price.frames, "%s n=%d: %g", a->name, n, plan.frames);
				cr_assert_geq(plan.frames, price.frames - 2, "%s n=%d: %g", a->name, n, plan.frames);
			} else {
				SAME(rounds);
				SAME(frames);
			}
			SAME(sent);
			SAME(received);
			SAME(reduced);
			SAME(copied);
			SAME(frame);
			SAME(scratch);
			if (price.all_sent > 0) {
				SAME(all_frames);
				SAME(all_sent);
			}
		}
	}
}

/* The optimum that the circulant graph promises. */
Test(algos, circulant_all_reduce_is_optimal_for_every_n)
{
	const struct coll_algo *a = coll_algo_find(COLL_KIND_ALL_REDUCE, "circulant");

	for (int n = 2; n <= 64; n++) {
		struct coll_algo_cost plan = {0};

		account_all(&plan, a, n, 0);
		cr_assert_leq(plan.rounds, 2 * ceil(log2(n)));
		cr_assert_leq(plan.sent, 2.0 * (n - 1) / n + 1e-9);
	}
}

/* ---- The table ---- */

static bool serves(const struct coll_algo *a, int n)
{
	return a->max_size == 0 || n <= a->max_size;
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
	cr_assert(serves(coll_algo_find(COLL_KIND_ALL_REDUCE, "oneshot"), 32));
	cr_assert_not(serves(coll_algo_find(COLL_KIND_ALL_REDUCE, "oneshot"), 33));
}
