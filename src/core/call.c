/*
 * What a collective call is to others: its name, its signature, and whether it synchronises. Pure: made from the call
 * alone.
 */
#include "core/call.h"

#include "base/hash.h"
#include "record/record.h"

uint8_t coll_call_kind(const struct coll_call *c)
{
	return c->record_kind ? c->record_kind : (uint8_t)c->kind;
}

const char *coll_call_name(const struct coll_call *c)
{
	return coll_record_kind_name(coll_call_kind(c));
}

uint32_t coll_call_signature(const struct coll_call *c, int size)
{
	uint64_t h = ((uint64_t)coll_call_kind(c) << 56) ^ ((uint64_t)c->type << 48) ^
	             ((uint64_t)(unsigned)c->root << 16) ^ (coll_plan_kind_reduces(c->kind) ? c->op : 0);

	h = coll_mix64(h);
	if (!c->pairwise)
		h = coll_mix64(h ^ c->count);
	if (c->ragged) {
		const size_t *counts = c->out_counts ? c->out_counts : c->in_counts;

		for (int r = 0; counts && r < size; r++)
			h = coll_mix64(h ^ counts[r]);
	}
	return (uint32_t)(h ^ (h >> 32));
}

bool coll_call_synchronises(const struct coll_call *c)
{
	switch (c->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_ALL_TO_ALL:
	case COLL_KIND_BARRIER: return c->count > 0 && !c->ragged && !c->pairwise;
	default: return false;
	}
}
