/*
 * What a context has of operations in flight, and its progress thread.
 */
#ifndef COLL_INFLIGHT_THREAD_H
#define COLL_INFLIGHT_THREAD_H

#include "inflight/async.h"

coll_status coll_async_open(struct coll_context *ctx, struct coll_error_box *err);
/* No communicator is left. */
void coll_async_close(struct coll_context *ctx);
/* Start the progress thread if the settings ask for one. */
void coll_async_thread(struct coll_context *ctx);

/* The progress thread is to take over unless a thread waits and drives soon. The lock is held. */
void coll_async_call(struct coll_context *ctx);

#endif
