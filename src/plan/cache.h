/*
 * The plan cache of one communicator: fused (or logical) plans, least recently used, bounded
 * by bytes.
 *
 * A plan is found by (collective, algorithm, rank, size, root, ordered, uniform,
 * layout); rank and size are in the key although a communicator has one of
 * each, so that a cache may be shared by tests. An obtained plan is pinned: it
 * stays where it is until it is released as often as it was obtained. Pinned
 * plans count against the bound but are never dropped for it, so a cache can
 * exceed its bound by what is pinned. One thread at a time, like the
 * communicator.
 */
#ifndef COLL_PLAN_CACHE_H
#define COLL_PLAN_CACHE_H

#include "plan/build.h"

struct coll_plan_cache;

coll_status coll_plan_cache_create(size_t max_bytes, struct coll_plan_cache **cache);
/* Every plan must have been released, or must never be used again. Sets *cache to
 * NULL; NULL inside is accepted. */
void coll_plan_cache_destroy(struct coll_plan_cache **cache);

/* Plans are kept as they are built, without fused steps: for transports that take what is sent from where it lies
 * and bring what is received to where it goes, one pass over the bytes for each. Before the first plan. */
void coll_plan_cache_keep_logical(struct coll_plan_cache *cache);

/* Builds the plans of all ranks of the collective that shape is a part of, and proves them together. COLL_ERR_INTERNAL
 * with the reason in why: they are wrong. Set before main() by src/proof/prove.c where that is linked, else NULL. */
typedef coll_status coll_plan_proof_fn(const struct coll_shape *shape, const char *algo, coll_algo_fn generate,
                                       char *why, size_t why_bytes);
extern coll_plan_proof_fn *coll_plan_proof;

/* The plan that `generate`, which is called algo, makes of shape: from the cache,
 * else built and lowered. verify: a new plan is proved by coll_plan_proof first
 * (COLL_ERR_UNSUPPORTED: there is none); a plan that fails is not kept
 * (COLL_ERR_INTERNAL, see coll_plan_cache_why()). Pinned on success. */
coll_status coll_plan_cache_obtain(struct coll_plan_cache *cache, const struct coll_shape *shape, const char *algo,
                                   coll_algo_fn generate, bool verify, const struct coll_plan **plan);
/* Pin once more what is pinned already; NULL is accepted. */
void coll_plan_cache_pin(struct coll_plan_cache *cache, const struct coll_plan *plan);
/* Unpin; NULL is accepted. */
void coll_plan_cache_release(struct coll_plan_cache *cache, const struct coll_plan *plan);

/* Why the last obtain failed, one line; "" if it did not. */
const char *coll_plan_cache_why(const struct coll_plan_cache *cache);

struct coll_plan_cache_stats {
	size_t bytes;
	size_t plans;
	size_t pinned;
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
};
void coll_plan_cache_stats(const struct coll_plan_cache *cache, struct coll_plan_cache_stats *stats);

#endif
