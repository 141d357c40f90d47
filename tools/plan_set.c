/*
 * See plan_set.h.
 */
#include "tools/plan_set.h"
#include "plan/lower.h"
#include "proof/verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool plan_kind_has_root(enum coll_kind kind)
{
	return kind == COLL_KIND_REDUCE || kind == COLL_KIND_BROADCAST || kind == COLL_KIND_GATHER ||
	       kind == COLL_KIND_SCATTER;
}

bool plan_set_serves(const struct coll_algo *a, int size, bool ordered, enum plan_lengths lengths)
{
	if (!a->cost || (a->max_size && size > a->max_size))
		return false;
	if (ordered && !(a->flags & COLL_ALGO_ORDERED))
		return false;
	switch (lengths) {
	case PLAN_RAGGED: return coll_plan_kind_is_block(a->kind) && a->flags & COLL_ALGO_RAGGED;
	case PLAN_PAIRWISE: return coll_plan_kind_is_block(a->kind) && a->flags & COLL_ALGO_PAIRWISE;
	default: return true;
	}
}

static coll_status build_rank(struct plan_set *set, int rank)
{
	struct coll_shape shape = {.kind = set->algo->kind,
	                           .rank = rank,
	                           .size = set->size,
	                           .root = set->root,
	                           .ordered = set->ordered,
	                           .uniform = set->lengths == PLAN_UNIFORM,
	                           .layout = set->layout};
	coll_status status = coll_build_plan(&shape, set->algo->name, set->algo->generate, &set->logical[rank]);

	return status ? status : coll_plan_lower(set->logical[rank], &set->fused[rank]);
}

coll_status plan_set_build(struct plan_set *set, const struct coll_algo *algo, int size, int root, bool ordered,
                           enum plan_lengths lengths, char *why, size_t why_bytes)
{
	return plan_set_build_layout(set, algo, NULL, size, root, ordered, lengths, why, why_bytes);
}

coll_status plan_set_build_layout(struct plan_set *set, const struct coll_algo *algo, const struct coll_layout *layout,
                                  int size, int root, bool ordered, enum plan_lengths lengths, char *why,
                                  size_t why_bytes)
{
	coll_status status = COLL_OK;
	int rank;

	*set = (struct plan_set){
	        .algo = algo, .size = size, .root = root, .ordered = ordered, .lengths = lengths, .layout = layout};
	set->logical = calloc((size_t)size, sizeof(struct coll_plan *));
	set->fused = calloc((size_t)size, sizeof(struct coll_plan *));
	if (!set->logical || !set->fused)
		status = COLL_ERR_MEMORY;
	for (rank = 0; rank < size && !status; rank++)
		status = build_rank(set, rank);
	if (!status)
		return COLL_OK;
	snprintf(why, why_bytes, "rank %d does not build: %s", rank - 1, coll_status_string(status));
	plan_set_free(set);
	return status;
}

void plan_set_free(struct plan_set *set)
{
	for (int r = 0; r < set->size; r++) {
		if (set->logical)
			coll_plan_free(set->logical[r]);
		if (set->fused)
			coll_plan_free(set->fused[r]);
	}
	free(set->logical);
	free(set->fused);
	*set = (struct plan_set){0};
}

coll_status plan_set_verify(const struct plan_set *set, bool fused, char *why, size_t why_bytes)
{
	struct coll_verify_options opt = {.depth = fused ? 2 : 0,
	                                  .windows = 2,
	                                  .tiles = 3,
	                                  .ordered = set->ordered,
	                                  .then = plan_set_plans(set, fused),
	                                  .uniform = set->lengths == PLAN_UNIFORM,
	                                  .pairwise = set->lengths == PLAN_PAIRWISE};
	coll_status status;

	opt.in_place = 0x5555555555555555u;
	status = coll_plan_verify(plan_set_plans(set, fused), set->size, &opt, why, why_bytes);
	if (status)
		return status;
	/* Who runs in place changes no frame: the order of events is proved already. */
	opt.in_place = ~opt.in_place;
	opt.windows = opt.tiles = 1;
	opt.then = NULL;
	return coll_plan_verify(plan_set_plans(set, fused), set->size, &opt, why, why_bytes);
}

bool plan_set_equal(const struct plan_set *a, const struct plan_set *b)
{
	for (int r = 0; r < a->size; r++) {
		const struct coll_plan *p = a->logical[r], *q = b->logical[r];

		/* What follows the head holds no pointer; the fused form follows from the logical. */
		if (p->bytes != q->bytes || p->chunks != q->chunks || p->nlanes != q->nlanes ||
		    memcmp(p->lane_first, q->lane_first, sizeof(p->lane_first)) != 0 ||
		    memcmp(p + 1, q + 1, p->bytes - sizeof(*p)) != 0)
			return false;
	}
	return true;
}
