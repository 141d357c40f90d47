/*
 * Weights.
 */
#ifndef COLL_DDP_WEIGHTS_H
#define COLL_DDP_WEIGHTS_H

#include "ddp/ddp_inner.h"

/* weights.c: may slices of buckets be slices of the weights? */
coll_status ddp_check_weights(coll_ddp *d);

#endif
