/*
 * The kernels of pairs, a value and an index.
 */
#ifndef COLL_REDUCE_PAIR_H
#define COLL_REDUCE_PAIR_H

#include "reduce/reduce.h"

/* NULL: type is no pair, or op is neither COLL_MIN nor COLL_MAX. */
coll_reduce_fn coll_reduce_pair_find(coll_dtype type, coll_op op);

#endif
