/*
 * The proof behind COLL_VERIFY: see prove.h. It keeps nothing; the verifier decides (verify.h).
 */
#include "proof/prove.h"

#include "plan/lower.h"
#include "proof/verify.h"

enum { RANKS_MAX = 64 };

static void free_all(struct coll_plan **plans, int size)
{
	for (int r = 0; r < size; r++)
		coll_plan_free(plans[r]);
}

coll_status coll_plan_prove(const struct coll_shape *shape, const char *algo, coll_algo_fn generate, char *why,
                            size_t why_bytes)
{
	struct coll_plan *logical[RANKS_MAX] = {0}, *fused[RANKS_MAX] = {0};
	const struct coll_plan *const *views[] = {(const struct coll_plan *const *)logical,
	                                          (const struct coll_plan *const *)fused};
	struct coll_verify_options opt = {.windows = 2, .ordered = shape->ordered, .uniform = shape->uniform};
	struct coll_shape s = *shape;
	coll_status status = COLL_OK;

	if (s.size > RANKS_MAX)
		return COLL_OK;
	for (s.rank = 0; s.rank < s.size && !status; s.rank++) {
		status = coll_build_plan(&s, algo, generate, &logical[s.rank]);
		if (!status)
			status = coll_plan_lower(logical[s.rank], &fused[s.rank]);
	}
	for (int i = 0; i < 4 && !status; i++) {
		opt.depth = i < 2 ? 0 : 2;
		opt.in_place = i % 2 ? 0xaaaaaaaaaaaaaaaau : 0x5555555555555555u;
		opt.then = views[i / 2];
		status = coll_plan_verify(views[i / 2], s.size, &opt, why, why_bytes);
	}
	free_all(logical, s.size);
	free_all(fused, s.size);
	return status;
}

__attribute__((constructor)) static void offer(void)
{
	coll_plan_proof = coll_plan_prove;
}
