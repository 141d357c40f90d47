/*
 * The end of communicators: destroy and abort.
 */
#ifndef COLL_COMM_CLOSING_H
#define COLL_COMM_CLOSING_H

#include "context/context.h"
#include "core/comm.h"

/* The hook coll_context_hooks.end: the last user of a context has left. Waits for all communicators
 * that are closing. Logs their errors that no call has reported yet. */
void coll_comm_end_context(struct coll_context *ctx);

/* Allocates, at creation, what the last barrier needs. coll_comm_free() frees it. */
coll_status coll_comm_prepare_end(struct coll_comm *comm);

/* Advance the last barriers of destroyed communicators for which some ranks have not called destroy
 * yet. Any thread may call this. It returns at once if another thread is doing it. */
void coll_comm_progress_closing(struct coll_context *ctx);

#endif
