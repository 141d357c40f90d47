/*
 * Driving: polling all pending operations of a context.
 */
#ifndef COLL_INFLIGHT_DRIVE_H
#define COLL_INFLIGHT_DRIVE_H

#include "core/comm.h"
#include "inflight/async.h"
#include "inflight/lock.h"

/* Whether the communicator has failed. Works while any thread drives it. */
coll_status coll_comm_status(const struct coll_comm *comm);
/* A member has died, but messages and groups among the living go on. Its thread. */
bool coll_comm_lives_on(const struct coll_comm *comm);

/* Whether the call `kind` may begin: a message or the creation of a group, or a collective. Also reads new gossip
 * notes. */
coll_status coll_comm_usable(struct coll_comm *comm, const char *kind, bool message);

/* A call of the communicator's thread has failed: coll_last_error(NULL) says how. Returns the status. */
coll_status coll_comm_keep(struct coll_comm *comm, coll_status st);

/* Fail the communicator when its thread finds an error outside of a call: coll_comm_fail(), and all
 * pending requests end. */
coll_status coll_comm_lose(struct coll_comm *comm, coll_status status, int culprit, const char *cause);

/* Wait until nothing of the communicator is pending. Then this thread has exclusive use of it. */
void coll_comm_drain(struct coll_comm *comm);

/* Look once at everything pending. True: something moved. The lock is held. */
bool coll_drive(struct coll_context *ctx);

/* The same if the lock is free. */
bool coll_drive_try(struct coll_context *ctx);

/* The same, but waits for the lock: a thread must look before it sleeps. */
bool coll_drive_last(struct coll_context *ctx);

/* Tagged messages may arrive on a communicator: drivers look for them. The lock is held. */
void coll_drive_tagged(struct coll_comm *comm);
/* They do no more, for good. The lock is held. */
void coll_drive_untagged(struct coll_comm *comm);

/* Whether done(arg) holds, which is asked under the lock. If it does not, one look is made first that begins after this
 * call did: "no" never means that another thread held the lock. Waits for the lock, which nobody holds while he waits.
 */
bool coll_drive_ask(struct coll_context *ctx, bool (*done)(void *arg), void *arg);

/* Poll the runs of a request. True: one moved. *waits: not all have ended. A run that fails becomes the fault of the
 * communicator. */
bool coll_drive_runs(struct coll_request *r, bool *waits);
/* A request that ends with its runs. The lock is held. */
bool coll_drive_poll(struct coll_request *r);
/* Whether one of its deadlines has passed. The lock is held. */
coll_status coll_drive_inspect(struct coll_request *r, uint64_t now_ns);

/* Drive these contexts until done(arg), for at most timeout_ms (< 0: no limit). Returns OK or AGAIN. comm: what is
 * waited for belongs to this communicator, and if the program's hook ends the wait, only this one is aborted; NULL:
 * every communicator with pending requests is. */
coll_status coll_async_await(struct coll_context **ctxs, int n, struct coll_comm *comm, bool (*done)(void *arg),
                             void *arg, int timeout_ms);

/* The same for one context. device: for what a device has to do; an error of its driver ends the communicators that
 * have calls there, since nothing else would end the wait. */
coll_status coll_async_await_one(struct coll_context *ctx, struct coll_comm *comm, bool device, bool (*done)(void *arg),
                                 void *arg, int timeout_ms);

/* The program's hook has ended a wait of this communicator: abort it. */
void coll_comm_interrupt(struct coll_comm *comm);

#endif
