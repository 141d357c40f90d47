/*
 * The names of ways: see way_name.h.
 */
#include "core/way_name.h"

#include <assert.h>
#include <stddef.h>

#include "algos/algos.h"

static const struct {
	const char *name, *text;
} ways[COLL_WAY_PLAN] = {
#define NAME(id, name, text) {name, text},
        COLL_WAYS(NAME)
#undef NAME
};

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
		return ways[way].name;
	return (size_t)(way - COLL_WAY_PLAN) < coll_algos_count ? coll_algos[way - COLL_WAY_PLAN].name
	                                                        : ways[COLL_WAY_UNKNOWN].name;
}

const char *coll_way_text(uint8_t way)
{
	return way < COLL_WAY_PLAN ? ways[way].text : NULL;
}
