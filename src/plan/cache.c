/*
 * See cache.h. An entry and its plan are one block, so that release finds the
 * entry from the plan. Entries are in a hash table by key and, while they are not
 * pinned, in a list by age.
 */
#include "plan/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "plan/lower.h"
#include "plan/pack.h"

enum { BUCKETS = 256 };

coll_plan_proof_fn *coll_plan_proof;

struct key {
	enum coll_kind kind;
	char algo[28];
	int rank, size, root;
	bool ordered, uniform;
	uint64_t layout; /* its hash, 0: none */
};

struct entry {
	struct entry *chain;         /* next in the bucket */
	struct entry *older, *newer; /* while pins == 0 */
	struct key key;
	uint64_t hash;
	size_t bytes;
	uint32_t pins;
	_Alignas(16) struct coll_plan plan; /* and what follows it */
};

struct coll_plan_cache {
	size_t max_bytes;
	bool logical;
	struct entry *buckets[BUCKETS];
	struct entry *oldest, *newest;
	struct coll_plan_cache_stats stats;
	char why[256];
};

/* ---- Keys ---- */

static struct key key_of(const struct coll_shape *s, const char *algo)
{
	struct key k;

	memset(&k, 0, sizeof(k));
	k.kind = s->kind;
	snprintf(k.algo, sizeof(k.algo), "%s", algo);
	k.rank = s->rank;
	k.size = s->size;
	k.root = s->root;
	k.ordered = s->ordered;
	k.uniform = s->uniform;
	k.layout = s->layout ? s->layout->hash : 0;
	return k;
}

static uint64_t hash_of(const struct key *k)
{
	uint64_t h = coll_hash_bytes(1, k->algo, strlen(k->algo));

	h = coll_hash_combine(h, (uint64_t)k->kind << 8 | (uint64_t)k->ordered << 1 | (uint64_t)k->uniform);
	h = coll_hash_combine(h, (uint64_t)(uint32_t)k->rank << 32 | (uint32_t)k->root);
	h = coll_hash_combine(h, (uint64_t)(uint32_t)k->size);
	return coll_hash_combine(h, k->layout);
}

static bool same_key(const struct key *a, const struct key *b)
{
	return a->kind == b->kind && strcmp(a->algo, b->algo) == 0 && a->rank == b->rank && a->size == b->size &&
	       a->root == b->root && a->ordered == b->ordered && a->uniform == b->uniform && a->layout == b->layout;
}

/* ---- The list by age: entries that are not pinned ---- */

static void enlist(struct coll_plan_cache *c, struct entry *e)
{
	e->older = c->newest;
	e->newer = NULL;
	if (c->newest)
		c->newest->newer = e;
	else
		c->oldest = e;
	c->newest = e;
}

static void delist(struct coll_plan_cache *c, struct entry *e)
{
	if (e->older)
		e->older->newer = e->newer;
	else
		c->oldest = e->newer;
	if (e->newer)
		e->newer->older = e->older;
	else
		c->newest = e->older;
}

/* ---- Entries ---- */

static struct entry *find(struct coll_plan_cache *c, const struct key *k, uint64_t hash)
{
	struct entry *e = c->buckets[hash % BUCKETS];

	while (e && (e->hash != hash || !same_key(&e->key, k)))
		e = e->chain;
	return e;
}

static void drop(struct coll_plan_cache *c, struct entry *e)
{
	struct entry **at = &c->buckets[e->hash % BUCKETS];

	assert(e->pins == 0);
	while (*at != e)
		at = &(*at)->chain;
	*at = e->chain;
	delist(c, e);
	c->stats.bytes -= e->bytes;
	c->stats.plans--;
	c->stats.evictions++;
	free(e);
}

static void shrink(struct coll_plan_cache *c)
{
	while (c->stats.bytes > c->max_bytes && c->oldest)
		drop(c, c->oldest);
}

static void pin(struct coll_plan_cache *c, struct entry *e)
{
	if (e->pins++ == 0) {
		delist(c, e);
		c->stats.pinned++;
	}
}

/* Keep a copy of plan, unpinned. */
static struct entry *insert(struct coll_plan_cache *c, const struct key *k, uint64_t hash, const struct coll_plan *plan)
{
	size_t bytes = offsetof(struct entry, plan) + plan->bytes;
	struct entry *e = malloc(bytes);

	if (!e)
		return NULL;
	e->key = *k;
	e->hash = hash;
	e->bytes = bytes;
	e->pins = 0;
	coll_plan_copy_to(plan, &e->plan);
	e->chain = c->buckets[hash % BUCKETS];
	c->buckets[hash % BUCKETS] = e;
	enlist(c, e);
	c->stats.bytes += bytes;
	c->stats.plans++;
	return e;
}

/* ---- Building ---- */

static coll_status build(struct coll_plan_cache *c, const struct coll_shape *shape, const char *algo,
                         coll_algo_fn generate, bool verify, struct coll_plan **plan)
{
	struct coll_plan *logical = NULL;
	coll_status status = COLL_OK;

	if (verify && !coll_plan_proof) {
		snprintf(c->why, sizeof(c->why), "COLL_VERIFY needs a library with the proofs of plans: a debug build");
		return COLL_ERR_UNSUPPORTED;
	}
	if (verify && shape->kind != COLL_KIND_SEND_RECV)
		status = coll_plan_proof(shape, algo, generate, c->why, sizeof(c->why));
	if (!status)
		status = coll_build_plan(shape, algo, generate, &logical);
	if (!status && c->logical) {
		*plan = logical;
		return COLL_OK;
	}
	if (!status)
		status = coll_plan_lower(logical, plan);
	coll_plan_free(logical);
	if (status && !c->why[0])
		snprintf(c->why, sizeof(c->why), "%s %s does not build for rank %d of %d: %s",
		         coll_plan_kind_name(shape->kind), algo, shape->rank, shape->size, coll_status_string(status));
	return status;
}

/* ---- Public ---- */

coll_status coll_plan_cache_create(size_t max_bytes, struct coll_plan_cache **cache)
{
	struct coll_plan_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return COLL_ERR_MEMORY;
	c->max_bytes = max_bytes;
	*cache = c;
	return COLL_OK;
}

void coll_plan_cache_destroy(struct coll_plan_cache **cache)
{
	struct coll_plan_cache *c = *cache;

	if (!c)
		return;
	for (int i = 0; i < BUCKETS; i++)
		while (c->buckets[i]) {
			struct entry *e = c->buckets[i];

			c->buckets[i] = e->chain;
			free(e);
		}
	free(c);
	*cache = NULL;
}

void coll_plan_cache_keep_logical(struct coll_plan_cache *c)
{
	c->logical = true;
}

coll_status coll_plan_cache_obtain(struct coll_plan_cache *c, const struct coll_shape *shape, const char *algo,
                                   coll_algo_fn generate, bool verify, const struct coll_plan **plan)
{
	struct key k = key_of(shape, algo);
	uint64_t hash = hash_of(&k);
	struct entry *e = find(c, &k, hash);
	struct coll_plan *built = NULL;
	coll_status status;

	c->why[0] = '\0';
	if (!e) {
		c->stats.misses++;
		status = build(c, shape, algo, generate, verify, &built);
		if (status)
			return status;
		e = insert(c, &k, hash, built);
		coll_plan_free(built);
		if (!e) {
			snprintf(c->why, sizeof(c->why), "out of memory to keep it");
			return COLL_ERR_MEMORY;
		}
	} else {
		c->stats.hits++;
	}
	pin(c, e);
	shrink(c);
	*plan = &e->plan;
	return COLL_OK;
}

static struct entry *entry_of(const struct coll_plan *plan)
{
	return (struct entry *)((char *)(uintptr_t)plan - offsetof(struct entry, plan));
}

void coll_plan_cache_pin(struct coll_plan_cache *c, const struct coll_plan *plan)
{
	if (!plan)
		return;
	assert(entry_of(plan)->pins > 0);
	pin(c, entry_of(plan));
}

void coll_plan_cache_release(struct coll_plan_cache *c, const struct coll_plan *plan)
{
	struct entry *e;

	if (!plan)
		return;
	e = entry_of(plan);
	assert(e->pins > 0);
	if (--e->pins > 0)
		return;
	c->stats.pinned--;
	enlist(c, e);
	shrink(c);
}

const char *coll_plan_cache_why(const struct coll_plan_cache *c)
{
	return c->why;
}

void coll_plan_cache_stats(const struct coll_plan_cache *c, struct coll_plan_cache_stats *stats)
{
	*stats = c->stats;
}
