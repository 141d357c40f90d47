/*
 * The verifier with its model exposed, for tests that break the model.
 */
#ifndef COLL_PROOF_VERIFY_H
#define COLL_PROOF_VERIFY_H

#include "plan/plan.h"
#include "proof/replay.h"

struct coll_verify_options {
	uint32_t depth;                      /* slots per channel for fused plans; 0: rendezvous (logical) */
	uint32_t tiles;                      /* tile instances to run, default W + 1 */
	uint32_t windows;                    /* W */
	bool ordered;                        /* demand rank order of operands */
	uint64_t in_place;                   /* bit r % 64: rank r runs in place */
	const struct coll_plan *const *then; /* size plans of a second operation run right after, or NULL */
	/* Lengths of the blocks of a block kind. Neither: they differ, and every rank has all of them.
	 * uniform: all equal. pairwise: they differ, and a rank has only those of its
	 * own blocks (gather, scatter: the root has all). An all_to_all that is not
	 * uniform is pairwise. */
	bool uniform;
	bool pairwise;
};

coll_status coll_plan_verify_model(const struct coll_plan *const *plans, int size,
                                   const struct coll_verify_options *opt, const struct coll_model *model, char *why,
                                   size_t why_bytes);

/* Prove the plans of all ranks together. On failure returns
 * COLL_ERR_INTERNAL and writes one line to why. */
coll_status coll_plan_verify(const struct coll_plan *const *plans, int size, const struct coll_verify_options *opt,
                             char *why, size_t why_bytes);

#endif
