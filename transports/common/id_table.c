/*
 * The table grows by doubling and never shrinks: a number is used again before a higher one
 * is given out. Invariant: places that were never used are NULL.
 */
#include "transports/common/id_table.h"

#include <stdlib.h>
#include <string.h>

static bool grow(struct coll_id_table *t, uint32_t cap)
{
	void **at = realloc(t->at, cap * sizeof(*at));

	if (!at)
		return false;
	memset(at + t->cap, 0, (cap - t->cap) * sizeof(*at));
	t->at = at;
	t->cap = cap;
	return true;
}

bool coll_id_table_put(struct coll_id_table *t, uint32_t id, void *p)
{
	uint32_t cap = t->cap ? t->cap : 16;

	while (cap <= id)
		cap *= 2;
	if (cap > t->cap && !grow(t, cap))
		return false;
	t->at[id] = p;
	return true;
}

bool coll_id_table_free_id(struct coll_id_table *t, uint32_t max, uint32_t *id)
{
	const uint32_t cap = t->cap ? 2 * t->cap : 16;

	for (*id = 0; *id < t->cap; ++*id)
		if (!t->at[*id])
			return true;
	return cap <= max && grow(t, cap);
}

void coll_id_table_drop(struct coll_id_table *t, uint32_t id, const void *p)
{
	if (coll_id_table_get(t, id) == p && p)
		t->at[id] = NULL;
}

void coll_id_table_fini(struct coll_id_table *t)
{
	free(t->at);
	*t = (struct coll_id_table){0};
}
