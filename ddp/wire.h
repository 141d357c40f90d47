/*
 * How a bucket's bytes travel.
 */
#ifndef COLL_DDP_WIRE_H
#define COLL_DDP_WIRE_H

#include "ddp/ddp_inner.h"

/* wire.c, int8.c, powersgd.c */
const struct wire *ddp_wire_of(const coll_ddp *d);

/* What an average multiplies the sum by in this step; 1 where the collective did it. */
double ddp_scale(const coll_ddp *d);
void ddp_scale_range(coll_ddp *d, size_t first, size_t count, double by);

#endif
