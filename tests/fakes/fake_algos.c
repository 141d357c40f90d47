/*
 * The algorithms of tests: see fake_algos.h.
 */
#include "tests/fakes/fake_algos.h"

#include <string.h>

static coll_status generate(const struct coll_shape *s, struct coll_builder *b)
{
	return COLL_OK;
}

static void price(struct coll_algo_cost *c, double rounds, double sent)
{
	*c = (struct coll_algo_cost){
	        .rounds = rounds, .frames = 2 * rounds, .sent = sent, .received = sent, .frame = 1, .scratch = 1};
}

static void quick(int n, struct coll_algo_cost *c)
{
	price(c, 1, 4);
}

static void lean(int n, struct coll_algo_cost *c)
{
	price(c, 2, 1);
}

static void one(int n, struct coll_algo_cost *c)
{
	price(c, 1, 1);
}

static void half(int n, struct coll_algo_cost *c)
{
	price(c, 1, 0.5);
}

const struct coll_algo coll_algos[] = {
        [FAKE_QUICK] = {COLL_KIND_ALL_REDUCE, "quick", 0, 0, generate, quick},
        [FAKE_LEAN] = {COLL_KIND_ALL_REDUCE, "lean", 0, 0, generate, lean},
        [FAKE_FEW] = {COLL_KIND_ALL_REDUCE, "few", COLL_ALGO_ORDERED, 4, generate, quick},
        [FAKE_UNIFORM] = {COLL_KIND_ALL_GATHER, "uniform", 0, 0, generate, one},
        [FAKE_RAGGED] = {COLL_KIND_ALL_GATHER, "ragged", COLL_ALGO_RAGGED, 0, generate, lean},
        [FAKE_LINKS] = {COLL_KIND_ALL_GATHER, "links", COLL_ALGO_LINKS, 0, generate, half},
};
const size_t coll_algos_count = FAKE_ALGOS;

void coll_algo_cost(const struct coll_algo *algo, int n, const struct coll_layout *layout, struct coll_algo_cost *cost)
{
	algo->cost(n, cost);
}

const struct coll_algo *coll_algo_find(enum coll_kind kind, const char *name)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (coll_algos[i].kind == kind && strcmp(coll_algos[i].name, name) == 0)
			return &coll_algos[i];
	return NULL;
}
