/*
 * The plans of all ranks of one collective, and the agreed facts that go with
 * them. For tests and the seeded scheduler.
 */
#ifndef COLL_SIM_PLANS_H
#define COLL_SIM_PLANS_H

#include "algos/algos.h"

struct sim_plans {
	int size;
	struct coll_plan *logical[64];
	struct coll_plan *fused[64];
};

/* UNSUPPORTED when the algorithm does not do this size. hosts: rows that read the layout get one of uneven
 * hosts; those that need one get it in any case. */
coll_status sim_plans_make(struct sim_plans *p, const struct coll_algo *algo, int size, int root, bool ordered,
                           bool uniform, bool hosts);
void sim_plans_free(struct sim_plans *p);

/* The largest tile that suits every rank. */
size_t sim_plans_tile(const struct sim_plans *p, size_t elem_bytes, size_t slot_bytes);

#endif
