/*
 * Reductions by a function of the user.
 */
#ifndef COLL_REDUCE_USER_H
#define COLL_REDUCE_USER_H

#include "reduce/internal.h"

/* User-defined operations (user.c). */
void coll_reduce_user(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw, bool last,
                      size_t count);

#endif
