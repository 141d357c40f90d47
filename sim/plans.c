/*
 * See plans.h.
 */
#include "sim/plans.h"
#include "engine/range.h"
#include "plan/lower.h"

#include <string.h>

#include "engine/engine.h"

coll_status sim_plans_make(struct sim_plans *p, const struct coll_algo *algo, int size, int root, bool ordered,
                           bool uniform)
{
	coll_status status = COLL_OK;

	assert(size <= 64);
	memset(p, 0, sizeof(*p));
	p->size = size;
	if (!algo->cost || (algo->max_size && size > algo->max_size))
		return COLL_ERR_UNSUPPORTED;
	for (int r = 0; r < size && status == COLL_OK; r++) {
		const struct coll_shape shape = {.kind = algo->kind,
		                                 .rank = r,
		                                 .size = size,
		                                 .root = root,
		                                 .ordered = ordered,
		                                 .uniform = uniform,
		                                 .layout = NULL};

		status = coll_build_plan(&shape, algo->name, algo->generate, &p->logical[r]);
		if (status == COLL_OK)
			status = coll_plan_lower(p->logical[r], &p->fused[r]);
	}
	if (status != COLL_OK)
		sim_plans_free(p);
	return status;
}

void sim_plans_free(struct sim_plans *p)
{
	for (int r = 0; r < p->size; r++) {
		coll_plan_free(p->logical[r]);
		coll_plan_free(p->fused[r]);
	}
	memset(p, 0, sizeof(*p));
}

size_t sim_plans_tile(const struct sim_plans *p, size_t elem_bytes, size_t slot_bytes)
{
	size_t least = SIZE_MAX;

	for (int r = 0; r < p->size; r++) {
		size_t tile = coll_run_tile(p->logical[r], elem_bytes, slot_bytes);

		least = tile < least ? tile : least;
	}
	return least;
}
