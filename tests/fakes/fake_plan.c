/*
 * The plans of tests: see fake_plan.h.
 */
#include "tests/fakes/fake_plan.h"

struct fake_plan fake_plan;

void fake_plan_reset(void)
{
	fake_plan = (struct fake_plan){.plan = {.size = 4, .chunks = 4, .max_run = 1}, .peer = -1};
}

coll_status coll_plan_cache_obtain(struct coll_plan_cache *cache, const struct coll_shape *shape, const char *algo,
                                   coll_algo_fn generate, bool verify, const struct coll_plan **plan)
{
	fake_plan.obtained++;
	fake_plan.shape = *shape;
	fake_plan.algo = algo;
	fake_plan.generate = generate;
	if (fake_plan.refuse)
		return fake_plan.refuse;
	fake_plan.plan.kind = shape->kind;
	fake_plan.plan.size = shape->size;
	fake_plan.pins++;
	*plan = &fake_plan.plan;
	return COLL_OK;
}

void coll_plan_cache_pin(struct coll_plan_cache *cache, const struct coll_plan *plan)
{
	fake_plan.pins += plan != NULL;
}

void coll_plan_cache_release(struct coll_plan_cache *cache, const struct coll_plan *plan)
{
	fake_plan.pins -= plan != NULL;
}

const char *coll_plan_cache_why(const struct coll_plan_cache *cache)
{
	return "the fake cache says so";
}

void coll_build_chunks(struct coll_builder *b, uint32_t chunks)
{
}

void coll_build_send(struct coll_builder *b, int peer, struct coll_at src)
{
	fake_plan.sends++;
	fake_plan.peer = peer;
}

void coll_build_recv(struct coll_builder *b, int peer, struct coll_at dst)
{
	fake_plan.recvs++;
	fake_plan.peer = peer;
}

coll_status coll_build_status(const struct coll_builder *b)
{
	return COLL_OK;
}
