/*
 * The end of communicators.
 */
#ifndef COLL_COMM_CLOSING_H
#define COLL_COMM_CLOSING_H

#include "context/context.h"
#include "core/comm.h"

/* coll_context_hooks.end: the last user of a context has left. Waits for the ends under way; what those met that no
 * call has reported yet is logged. */
void coll_comm_end_context(struct coll_context *ctx);

/* At creation: what the last barrier needs. Freed by coll_comm_free(). */
coll_status coll_comm_prepare_end(struct coll_comm *comm);

/* Advance the last barriers of communicators that were destroyed while some of their
 * ranks had not come yet. Any thread; returns at once when another one does it. */
void coll_comm_progress_closing(struct coll_context *ctx);

#endif
