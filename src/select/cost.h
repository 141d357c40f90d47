/*
 * The price of an algorithm.
 */
#ifndef COLL_SELECT_COST_H
#define COLL_SELECT_COST_H

#include "select/price.h"
#include "select/select.h"

void coll_select_price(const struct coll_select_facts *facts, const struct coll_select_call *call,
                       const struct coll_algo *algo, struct coll_select_price *price);

/* Price of one row, ns. */
double coll_select_cost(const struct coll_select_facts *facts, const struct coll_select_call *call,
                        const struct coll_algo *algo);

#endif
