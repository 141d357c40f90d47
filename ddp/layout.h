/*
 * Where buckets end.
 */
#ifndef COLL_DDP_LAYOUT_H
#define COLL_DDP_LAYOUT_H

#include "ddp/ddp_inner.h"

/* With the exact wire buckets and slices end at multiples of this. */
#define DDP_EXACT_BLOCK ((size_t)4096)

/* layout.c */
coll_status ddp_lay_out(coll_ddp *d, coll_comm *comm);

/* Limits for what has been measured: COLL_DDP_AUTO's choice, from nothing else. */
void ddp_limits(coll_ddp_config *config, double latency_s, double bytes_per_s);

/* Part r of the elements first .. first + count. */
void ddp_slice(const coll_ddp *d, size_t first, size_t count, int r, size_t *slice_first, size_t *slice_count);

#endif
