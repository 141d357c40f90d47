/*
 * The tables of kernels, one per ISA level, shared inside src/reduce. An empty
 * entry means: use the next lower level's.
 */
#ifndef COLL_REDUCE_INTERNAL_H
#define COLL_REDUCE_INTERNAL_H

#include "reduce/reduce.h"

/* Rows: the public operations, then the premultiplied sum. */
enum { COLL_REDUCE_PREMUL = COLL_OP_COUNT, COLL_REDUCE_OPS };

extern const coll_reduce_fn coll_reduce_scalar[COLL_REDUCE_OPS][COLL_DTYPE_COUNT];
extern const coll_reduce_fn coll_reduce_avx2[COLL_REDUCE_OPS][COLL_DTYPE_COUNT];
extern const coll_reduce_fn coll_reduce_avx512[COLL_REDUCE_OPS][COLL_DTYPE_COUNT];

/* To several places. Empty: the block way. */
extern const coll_reduce_spread_fn coll_reduce_avx2_spread[COLL_REDUCE_OPS][COLL_DTYPE_COUNT];
extern const coll_reduce_spread_fn coll_reduce_avx512_spread[COLL_REDUCE_OPS][COLL_DTYPE_COUNT];

#endif
