/*
 * The names of ways: see way_name.h.
 */
#include "core/way_name.h"

#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>

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
	assert(COLL_WAY_PLAN + row < COLL_WAY_STAGED);
	return (uint8_t)(COLL_WAY_PLAN + row);
}

static const char *plain_name(uint8_t way)
{
	if (way < COLL_WAY_PLAN)
		return ways[way].name;
	return (size_t)(way - COLL_WAY_PLAN) < coll_algos_count ? coll_algos[way - COLL_WAY_PLAN].name
	                                                        : ways[COLL_WAY_UNKNOWN].name;
}

static char staged[COLL_WAY_STAGED][40];

static void name_staged(void)
{
	for (int way = 0; way < COLL_WAY_STAGED; way++)
		snprintf(staged[way], sizeof(staged[way]), "staged-%s", plain_name((uint8_t)way));
}

const char *coll_way_name(uint8_t way)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (way < COLL_WAY_STAGED || way > COLL_WAY_MAX)
		return plain_name(way);
	pthread_once(&once, name_staged);
	return staged[way - COLL_WAY_STAGED];
}

const char *coll_way_text(uint8_t way)
{
	return way < COLL_WAY_PLAN ? ways[way].text : NULL;
}
