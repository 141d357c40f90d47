/*
 * A plan set: the plans of all ranks of one collective, logical and fused. Shared
 * by coll-plan and the tests of plans.
 */
#ifndef COLL_TOOLS_PLAN_SET_H
#define COLL_TOOLS_PLAN_SET_H

#include "algos/algos.h"

/* How long the blocks of a block kind are; see struct coll_verify_options. */
enum plan_lengths { PLAN_UNIFORM, PLAN_RAGGED, PLAN_PAIRWISE, PLAN_LENGTHS_COUNT };

struct plan_set {
	const struct coll_algo *algo;
	int size;
	int root;
	bool ordered;
	enum plan_lengths lengths;
	const struct coll_layout *layout; /* not owned; NULL: none */
	struct coll_plan **logical;       /* by rank */
	struct coll_plan **fused;
};

/* Whether the row can do it at all without a layout: size, order, lengths. */
bool plan_set_serves(const struct coll_algo *algo, int size, bool ordered, enum plan_lengths lengths);
bool plan_kind_has_root(enum coll_kind kind);

/* Build and lower. On failure why has one line and nothing is left. */
coll_status plan_set_build(struct plan_set *set, const struct coll_algo *algo, int size, int root, bool ordered,
                           enum plan_lengths lengths, char *why, size_t why_bytes);
/* The same for a layout, which is kept until the set is freed; NULL: none. */
coll_status plan_set_build_layout(struct plan_set *set, const struct coll_algo *algo, const struct coll_layout *layout,
                                  int size, int root, bool ordered, enum plan_lengths lengths, char *why,
                                  size_t why_bytes);
void plan_set_free(struct plan_set *set);

/* Prove one form: two windows, three tiles, the same operation again right after,
 * every rank once in place and once not. Fused plans have two slots. */
coll_status plan_set_verify(const struct plan_set *set, bool fused, char *why, size_t why_bytes);

/* Whether two sets of one algorithm and size hold the same steps. */
bool plan_set_equal(const struct plan_set *a, const struct plan_set *b);

static inline const struct coll_plan *const *plan_set_plans(const struct plan_set *set, bool fused)
{
	return (const struct coll_plan *const *)(fused ? set->fused : set->logical);
}

#endif
