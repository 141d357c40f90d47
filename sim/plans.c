/*
 * See plans.h.
 */
#include "sim/plans.h"
#include "engine/range.h"
#include "plan/lower.h"

#include <string.h>

#include "engine/engine.h"

/* Two to four uneven hosts; ranks are assigned to them in turn. */
static coll_status make_layout(int size, struct coll_layout **layout)
{
	uint32_t host_of[64];
	const struct coll_layout_split hosts = {"host", true, false, host_of};

	for (int r = 0; r < size; r++)
		host_of[r] = (uint32_t)(r * r) % (2 + (uint32_t)size % 3);
	return coll_layout_create(size, &hosts, 1, layout);
}

coll_status sim_plans_make(struct sim_plans *p, const struct coll_algo *algo, int size, int root, bool ordered,
                           bool uniform, bool hosts)
{
	struct coll_layout *layout = NULL;
	coll_status status = COLL_OK;

	assert(size <= 64);
	memset(p, 0, sizeof(*p));
	if (algo->max_size && size > algo->max_size)
		return COLL_ERR_UNSUPPORTED;
	if (algo->split && (!algo->cost || hosts))
		status = make_layout(size, &layout);
	if (status != COLL_OK || (!algo->cost && !layout))
		return status != COLL_OK ? status : COLL_ERR_UNSUPPORTED;
	p->size = size;
	for (int r = 0; r < size && status == COLL_OK; r++) {
		const struct coll_shape shape = {.kind = algo->kind,
		                                 .rank = r,
		                                 .size = size,
		                                 .root = root,
		                                 .ordered = ordered,
		                                 .uniform = uniform,
		                                 .layout = layout};

		status = coll_build_plan(&shape, algo->name, algo->generate, &p->logical[r]);
		if (status == COLL_OK)
			status = coll_plan_lower(p->logical[r], &p->fused[r]);
	}
	coll_layout_destroy(&layout);
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
