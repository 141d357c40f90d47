/*
 * The end of communicators.
 */
#ifndef COLL_COMM_CLOSING_H
#define COLL_COMM_CLOSING_H

#include "context/context.h"
#include "core/comm.h"

/* One user more; one less, and the last one closes, when all that parts has parted. What
 * those ends met that nobody has told yet is logged. */
void coll_context_retain(struct coll_context *ctx);
void coll_context_release(struct coll_context **ctx);

/* At creation: what the last barrier needs. Freed by coll_comm_free(). */
coll_status coll_comm_prepare_end(struct coll_comm *comm);

/* Advance the last barriers of communicators that were destroyed while some of their
 * ranks had not come yet. Any thread; returns at once when another one does it. */
void coll_comm_progress_closing(struct coll_context *ctx);

#endif
