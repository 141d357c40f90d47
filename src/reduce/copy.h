/*
 * Copies for the data path.
 */
#ifndef COLL_REDUCE_COPY_H
#define COLL_REDUCE_COPY_H

#include "reduce/reduce.h"

/* Copies for the data path: plain, and with non-temporal stores. */
void coll_reduce_copy(void *dst, const void *src, size_t len_bytes);
void coll_reduce_copy_nt(void *dst, const void *src, size_t len_bytes);

/* Non-temporal stores are weakly ordered: what they wrote is behind what is stored later, a
 * release store included, only after a fence. copy_nt has one; stream leaves it to the caller,
 * who streams many blocks: each fence waits for memory. */
void coll_reduce_stream(void *dst, const void *src, size_t len_bytes);
void coll_reduce_fence(void);

#endif
