/*
 * A reduction whose result goes to several places.
 */
#ifndef COLL_REDUCE_SPREAD_H
#define COLL_REDUCE_SPREAD_H

#include "reduce/reduce.h"

/*
 * The same to several places at once, each input read once and each place written once: all
 * inputs raw, the result complete; not for premultiplied sums. dst[d] may equal any src. All places are equally far
 * from a cache line's beginning, or speed is lost. stream: stores that pass the caches; the
 * caller fences.
 */
void coll_reduce_spread(const struct coll_reduction *r, char *const *dst, int ndst, const char *const *src, int nsrc,
                        bool stream, size_t bytes);

#endif
