/*
 * Do all ranks describe the same parameters? Rank 0's description goes out as text, one line per parameter.
 */
#ifndef COLL_DDP_CHECK_H
#define COLL_DDP_CHECK_H

#include "ddp/ddp_inner.h"

/* check.c: COLL_ERR_MISMATCH if ranks differ. */
coll_status ddp_compare(coll_ddp *d, coll_comm *comm);

#endif
