/*
 * Driving.
 */
#ifndef COLL_PROGRESS_DRIVE_H
#define COLL_PROGRESS_DRIVE_H

#include "core/comm.h"
#include "progress/async.h"

/* Whether the communicator has failed, whoever may be driving it. */
coll_status coll_comm_status(const struct coll_comm *comm);

/* The same at the beginning of a call named kind; heeds what was told. */
coll_status coll_comm_usable(struct coll_comm *comm, const char *kind);

/* The communicator is lost, as its thread finds outside of calls: coll_comm_fail(), and all
 * that is pending ends. */
coll_status coll_comm_lose(struct coll_comm *comm, coll_status status, int culprit, const char *cause);

/* Wait until nothing of the communicator is pending: it is this thread's alone. */
void coll_comm_drain(struct coll_comm *comm);

/* The lock, for threads that do not drive: drivers, who would take it again at once, let them
 * in. A driver that may come back later takes it by trylock. */
void coll_async_lock(struct coll_context *ctx);

/* Give the lock back; whoever sleeps hears of what was completed. */
void coll_async_unlock(struct coll_context *ctx);

/* One look at everything pending; true if anything moved. The lock is held. */
bool coll_drive(struct coll_context *ctx);

/* The same if the lock is free. */
bool coll_drive_try(struct coll_context *ctx);

/* The same in any case: whoever goes to sleep must have looked. */
bool coll_drive_last(struct coll_context *ctx);

/* Drive these contexts until done(arg), at most timeout_ms (< 0: no limit): OK or AGAIN. */
coll_status coll_async_await(struct coll_context **ctxs, int n, bool (*done)(void *arg), void *arg, int timeout_ms);

#endif
