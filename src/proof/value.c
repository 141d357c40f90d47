/*
 * See value.h. One entry per reduced chunk: the table only grows.
 */
#include "proof/value.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"

void coll_values_fail(struct coll_values *v, const char *format, ...)
{
	va_list ap;

	if (v->status)
		return;
	v->status = COLL_ERR_INTERNAL;
	va_start(ap, format);
	vsnprintf(v->error, sizeof(v->error), format, ap);
	va_end(ap);
}

coll_status coll_values_init(struct coll_values *v, enum coll_kind kind, int size, uint32_t chunks, bool ordered)
{
	struct coll_rng rng = {0x636f6c6cu};

	*v = (struct coll_values){.size = size, .chunks = chunks, .ordered = ordered, .kind = kind};
	if ((uint64_t)size * chunks >= COLL_VALUE_SCALED)
		return COLL_ERR_UNSUPPORTED;
	v->random = malloc((size_t)size * sizeof(*v->random));
	if (!v->random)
		return COLL_ERR_MEMORY;
	for (int r = 0; r < size; r++)
		for (int i = 0; i < 2; i++) {
			v->random[r][i] = coll_rng_next(&rng);
			v->full[i] += v->random[r][i];
		}
	return COLL_OK;
}

void coll_values_fini(struct coll_values *v)
{
	free(v->list);
	free(v->random);
	v->list = NULL;
	v->random = NULL;
}

uint32_t coll_value_of(struct coll_values *v, const struct coll_expression *x)
{
	if (v->status)
		return COLL_VALUE_UNDEFINED;
	if (v->count == v->capacity) {
		size_t capacity = v->capacity ? 2 * v->capacity : 1024;
		struct coll_expression *list =
		        capacity < COLL_VALUE_SCALED ? realloc(v->list, capacity * sizeof(*list)) : NULL;

		if (!list) {
			v->status = COLL_ERR_MEMORY;
			return COLL_VALUE_UNDEFINED;
		}
		v->list = list;
		v->capacity = capacity;
	}
	v->list[v->count] = *x;
	return COLL_VALUE_EXPRESSION | (uint32_t)v->count++;
}

bool coll_value_expand(struct coll_values *v, uint32_t value, struct coll_expression *x)
{
	const struct coll_expression *known = coll_value_expression(v, value);
	uint32_t rank;

	if (value == COLL_VALUE_UNDEFINED) {
		coll_values_fail(v, "reads a chunk that was never written");
		return false;
	}
	if (known) {
		*x = *known;
		return true;
	}
	rank = (value & ~COLL_VALUE_SCALED) / v->chunks;
	if (!(value & COLL_VALUE_SCALED)) {
		coll_values_fail(v, "combines the contribution of rank %u before pre-scaling", rank);
		return false;
	}
	*x = (struct coll_expression){.set = {v->random[rank][0], v->random[rank][1]},
	                              .tree = coll_mix64(rank + 1),
	                              .chunk = (value & ~COLL_VALUE_SCALED) % v->chunks,
	                              .count = 1,
	                              .low = (int)rank,
	                              .high = (int)rank};
	return true;
}

uint32_t coll_value_scale(struct coll_values *v, int rank, uint32_t value)
{
	if (value == COLL_VALUE_UNDEFINED || value & (COLL_VALUE_EXPRESSION | COLL_VALUE_SCALED) ||
	    value / v->chunks != (uint32_t)rank) {
		coll_values_fail(v, "reads a chunk of in that is no longer the raw contribution");
		return COLL_VALUE_UNDEFINED;
	}
	return value | COLL_VALUE_SCALED;
}

bool coll_value_combine(struct coll_values *v, struct coll_expression *left, const struct coll_expression *right,
                        bool list)
{
	if (left->chunk != right->chunk)
		coll_values_fail(v, "combines chunk %u with chunk %u", left->chunk, right->chunk);
	if (left->posted || right->posted)
		coll_values_fail(v, "combines chunk %u after it was post-scaled", left->chunk);
	left->set[0] += right->set[0];
	left->set[1] += right->set[1];
	left->count += right->count;
	if (left->low <= left->high && right->low <= right->high && left->high + 1 == right->low) {
		left->high = right->high;
	} else {
		left->low = 1;
		left->high = 0;
		if (v->ordered)
			coll_values_fail(v, "chunk %u: operands are not in rank order", left->chunk);
	}
	left->tree = list ? coll_mix64(coll_mix64(left->tree) * 3 + right->tree) : coll_mix64(left->tree + right->tree);
	return !v->status;
}

int coll_value_last(const struct coll_values *v, int rank)
{
	switch (v->kind) {
	case COLL_KIND_SCAN: return rank;
	case COLL_KIND_EXCLUSIVE_SCAN: return rank - 1;
	default: return v->size - 1;
	}
}

bool coll_value_is_complete(const struct coll_values *v, int rank, const struct coll_expression *x)
{
	const int last = coll_value_last(v, rank);
	uint64_t sum[2] = {0, 0};

	if (x->count != (uint32_t)last + 1)
		return false;
	if (last == v->size - 1)
		return x->set[0] == v->full[0] && x->set[1] == v->full[1];
	for (int r = 0; r <= last; r++) {
		sum[0] += v->random[r][0];
		sum[1] += v->random[r][1];
	}
	return x->set[0] == sum[0] && x->set[1] == sum[1];
}

void coll_value_post(struct coll_values *v, int rank, struct coll_expression *x)
{
	if (x->posted)
		coll_values_fail(v, "post-scales chunk %u twice", x->chunk);
	if (!coll_value_is_complete(v, rank, x))
		coll_values_fail(v, "post-scales chunk %u with %u contributions, not the right ones", x->chunk,
		                 x->count);
	x->posted = true;
}
