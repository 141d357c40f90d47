/*
 * Names of ways: see way.h.
 */
#include "record/way.h"

#include <assert.h>
#include <stddef.h>

#include "algos/algos.h"

#define NAME(id, name) name,
static const char *const names[COLL_WAY_PLAN] = {COLL_WAYS(NAME)};
#undef NAME

uint8_t coll_way_of_algo(const struct coll_algo *algo)
{
	const ptrdiff_t row = algo - coll_algos;

	assert(row >= 0 && (size_t)row < coll_algos_count);
	assert(COLL_WAY_PLAN + row <= COLL_WAY_MAX);
	return (uint8_t)(COLL_WAY_PLAN + row);
}

const char *coll_way_name(uint8_t way)
{
	if (way < COLL_WAY_PLAN)
		return names[way];
	return (size_t)(way - COLL_WAY_PLAN) < coll_algos_count ? coll_algos[way - COLL_WAY_PLAN].name
	                                                        : names[COLL_WAY_UNKNOWN];
}
