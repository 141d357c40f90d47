/*
 * Errors, the clock, counting.
 */
#ifndef COLL_DDP_BASE_H
#define COLL_DDP_BASE_H

#include "ddp/ddp_inner.h"

/* base.c */
double ddp_now_s(void);
__attribute__((format(printf, 3, 4))) coll_status ddp_fail(coll_ddp *d, coll_status status, const char *format, ...);

/* Pass on a status of a call on comm, noting its story. */
coll_status ddp_pass(coll_ddp *d, coll_comm *comm, coll_status status);

/* Count a collective: payload handed in, and the bytes this rank sends by its formula. */
void ddp_count(coll_ddp *d, size_t payload_bytes, double sent_bytes);

#endif
