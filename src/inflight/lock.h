/*
 * The async lock of a context.
 */
#ifndef COLL_INFLIGHT_LOCK_H
#define COLL_INFLIGHT_LOCK_H

struct coll_context;

/* Take the async lock in a thread that does not drive. A driver would take the lock again at once,
 * so drivers yield to threads that wait here. A driver that can come back later uses trylock. */
void coll_async_lock(struct coll_context *ctx);

/* Release the lock and wake sleepers if any request completed. */
void coll_async_unlock(struct coll_context *ctx);

#endif
