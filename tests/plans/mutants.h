/*
 * What the families of mutants share: sets of plans under test, judgement, counts.
 */
#ifndef COLL_TESTS_PLANS_MUTANTS_H
#define COLL_TESTS_PLANS_MUTANTS_H

#include <stdlib.h>

#include "proof/verify.h"
#include "tests/plain.h"
#include "tools/plan_set.h"

extern const uint64_t mutant_seed;
extern const struct coll_model mutant_truth; /* the engine as it is */

struct pair_counts {
	const char *name;
	long tried;
	long caught;
	char first[320]; /* how */
};

struct coll_verify_options mutant_options(const struct plan_set *set, bool fused, uint64_t in_place);

/* Whether the set is refused, in one of two in-place mixtures; why says how. */
bool mutant_refused(const struct plan_set *set, bool fused, char *why, size_t why_bytes);

/* The most demanding call that an algorithm serves; false when it serves none. */
bool mutant_build(struct plan_set *set, const struct coll_algo *a, int n, int root);

/* Print the pair counts; all: every attempt must have been caught, else at least one. */
void mutant_show(const struct pair_counts *t, bool all);

/* Take step i out of a plan; waits that count it count one less. */
void mutant_drop(struct coll_plan *p, uint32_t i);

static inline struct coll_step *mutant_step(struct coll_plan *p, uint32_t i)
{
	return (struct coll_step *)(uintptr_t)&p->steps[i];
}

/* The families. */
void mutants_what_is_right_is_accepted(void);
void mutants_wrong_steps_are_refused(void);
void mutants_wrong_generators_are_refused(void);
void mutants_a_fusion_that_holds_up_others_is_not_made_and_would_be_refused(void);

#endif
