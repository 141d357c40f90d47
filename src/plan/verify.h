/*
 * The verifier with its model exposed, for tests that break the model.
 */
#ifndef COLL_PLAN_VERIFY_H
#define COLL_PLAN_VERIFY_H

#include "plan/plan.h"
#include "plan/replay.h"

coll_status coll_plan_verify_model(const struct coll_plan *const *plans, int size,
                                   const struct coll_verify_options *opt, const struct coll_model *model, char *why,
                                   size_t why_bytes);

/* Prove the plans of all ranks together. On failure returns
 * COLL_ERR_INTERNAL and writes one line to why. */
coll_status coll_plan_verify(const struct coll_plan *const *plans, int size, const struct coll_verify_options *opt,
                             char *why, size_t why_bytes);

#endif
