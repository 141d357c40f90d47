/*
 * What COLL_VERIFY asks for: the plans of one collective, built and proved. Programs that are linked with this file
 * have it as coll_plan_proof before main().
 */
#ifndef COLL_PROOF_PROVE_H
#define COLL_PROOF_PROVE_H

#include "plan/cache.h"

/* A coll_plan_proof_fn: logical and fused plans, each alone and followed by itself, in place and not, of at most 64
 * ranks. More are not proved. */
coll_status coll_plan_prove(const struct coll_shape *shape, const char *algo, coll_algo_fn generate, char *why,
                            size_t why_bytes);

#endif
