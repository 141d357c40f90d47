/*
 * What cost.c finds out about one row for one call. Inside tune/ only.
 */
#ifndef COLL_SELECT_PRICE_H
#define COLL_SELECT_PRICE_H

#include "select/select.h"

struct coll_select_price {
	struct coll_algo_cost cost;
	double ns;
	uint32_t windows;  /* tiles worth having in flight, with scratch for all of them */
	size_t tile_bytes; /* no longer tiles; 0: as long as slots allow */
	bool fits;         /* scratch of one tile is within the limit */
	bool lean;         /* see cost.c: no row that is not lean beats one that is */
};

#endif
