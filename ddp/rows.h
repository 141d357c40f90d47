/*
 * Lookups in a table.
 */
#ifndef COLL_DDP_ROWS_H
#define COLL_DDP_ROWS_H

#include "ddp/ddp_inner.h"

/* rows.c */
coll_status ddp_rows_start(coll_ddp *d);

/* Let the exchange go on; never waits. */
coll_status ddp_rows_poll(coll_ddp *d);

/* Until the rows are added to the arena. */
coll_status ddp_rows_wait(coll_ddp *d);
bool ddp_rows_pending(const coll_ddp *d, const struct bucket *b);

#endif
