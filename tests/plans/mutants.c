/*
 * Does the verifier see? Plans are broken on purpose, one defect at a time, and
 * every broken set of plans must be refused.
 *
 * Three families. Step mutants change one step of one rank of a real plan
 * (logical or fused), at every kind of site that a seeded choice finds, for every
 * algorithm and 2 to 8 ranks: each application must be caught. Generator mutants
 * are algorithms with a mistake in their text. Rule mutants keep the plans and
 * break the engine they run on: fewer slots, shared scratch, waits that count
 * something else. Prints each mutant and how it was first caught.
 */
#define PLAIN_OWN_MAIN

#include "tests/plans/mutants.h"
#include "proof/verify.h"

static int distinct; /* mutants seen caught */
const uint64_t mutant_seed = 20261121;
const struct coll_model mutant_truth;

/* ---- Judging ---- */

struct coll_verify_options mutant_options(const struct plan_set *set, bool fused, uint64_t in_place)
{
	return (struct coll_verify_options){.depth = fused ? 2 : 0,
	                                    .windows = 2,
	                                    .tiles = 3,
	                                    .ordered = set->ordered,
	                                    .in_place = in_place,
	                                    .then = plan_set_plans(set, fused),
	                                    .uniform = set->lengths == PLAN_UNIFORM,
	                                    .pairwise = set->lengths == PLAN_PAIRWISE};
}

bool mutant_refused(const struct plan_set *set, bool fused, char *why, size_t why_bytes)
{
	for (int m = 0; m < 2; m++) {
		struct coll_verify_options opt =
		        mutant_options(set, fused, m ? 0xaaaaaaaaaaaaaaaau : 0x5555555555555555u);

		if (coll_plan_verify(plan_set_plans(set, fused), set->size, &opt, why, why_bytes))
			return true;
	}
	return false;
}

bool mutant_build(struct plan_set *set, const struct coll_algo *a, int n, int root)
{
	bool ordered = a->flags & COLL_ALGO_ORDERED;
	char why[256];

	for (int l = PLAN_LENGTHS_COUNT - 1; l >= 0; l--)
		if (plan_set_serves(a, n, ordered, (enum plan_lengths)l))
			return plan_set_build(set, a, n, root, ordered, (enum plan_lengths)l, why, sizeof(why)) ==
			       COLL_OK;
	return false;
}

void mutant_show(const struct pair_counts *t, bool all)
{
	printf("%-52s %6ld of %6ld caught: %s\n", t->name, t->caught, t->tried, t->first);
	CHECK(t->tried > 0, "%s: applies nowhere", t->name);
	CHECK(t->caught > 0 && (!all || t->caught == t->tried), "%s: %ld survive", t->name, t->tried - t->caught);
	distinct += t->caught > 0;
}

void mutant_drop(struct coll_plan *p, uint32_t i)
{
	const uint32_t n = coll_plan_nsteps(p), lane = p->steps[i].lane, index = i - p->lane_first[lane];

	memmove(mutant_step(p, i), mutant_step(p, i + 1), (n - i - 1) * sizeof(struct coll_step));
	for (uint32_t l = lane + 1; l <= COLL_LANES_MAX; l++)
		p->lane_first[l]--;
	for (uint32_t j = 0; j < n - 1; j++) {
		struct coll_step *s = mutant_step(p, j);

		if (s->wait_lane == lane && s->wait_count > index)
			s->wait_count--;
	}
}

/* ---- Rule mutants ---- */

/* A broken rule must be noticed with some algorithm and some n <= 12. */
static void try_rule(const char *name, const struct coll_model *model, uint32_t depth, bool fused)
{
	struct pair_counts t = {.name = name};
	char why[256] = "";

	for (size_t a = 0; a < coll_algos_count; a++)
		for (int n = 2; n <= 12; n++) {
			struct plan_set set;
			struct coll_verify_options opt;

			if (!mutant_build(&set, &coll_algos[a], n, 0))
				continue;
			opt = mutant_options(&set, fused, 0x5555555555555555u);
			if (fused)
				opt.depth = depth;
			t.tried++;
			if (coll_plan_verify_model(plan_set_plans(&set, fused), n, &opt, model, why, sizeof(why)) &&
			    t.caught++ == 0)
				snprintf(t.first, sizeof(t.first), "%s %s n=%d: %s",
				         coll_plan_kind_name(coll_algos[a].kind), coll_algos[a].name, n, why);
			plan_set_free(&set);
		}
	mutant_show(&t, false);
}

static void engines_that_are_wrong_are_noticed(void)
{
	try_rule("engine: one slot per channel under fused steps", &mutant_truth, 1, true);
	try_rule("engine: a lane stops at a send", &(struct coll_model){.blocking_send = true}, 0, false);
	try_rule("engine: windows share a slice of scratch", &(struct coll_model){.shared_scratch = true}, 0, false);
	try_rule("engine: a tile ends before its sends", &(struct coll_model){.early_reuse = true}, 0, false);
	try_rule("engine: waits count started steps", &(struct coll_model){.wait_for_start = true}, 0, false);
	try_rule("engine: waits are ignored", &(struct coll_model){.ignore_waits = true}, 2, true);
	try_rule("engine: an operation does not wait for the one before", &(struct coll_model){.early_leave = true}, 2,
	         true);
	try_rule("engine: every receive is armed at once", &(struct coll_model){.arm_all = true}, 2, true);
}

int main(void)
{
	printf("seed %llu\n", (unsigned long long)mutant_seed);
	PLAIN_RUN(mutants_what_is_right_is_accepted);
	PLAIN_RUN(mutants_wrong_steps_are_refused);
	PLAIN_RUN(mutants_wrong_generators_are_refused);
	PLAIN_RUN(engines_that_are_wrong_are_noticed);
	PLAIN_RUN(mutants_a_fusion_that_holds_up_others_is_not_made_and_would_be_refused);
	printf("%d distinct mutants caught\n", distinct);
	if (distinct < 20)
		return 1;
	return plain_summary();
}
