/*
 * Functions that run when an event is reached: coll_event_notify().
 */
#ifndef COLL_INFLIGHT_NOTIFY_H
#define COLL_INFLIGHT_NOTIFY_H

#include "inflight/async.h"

struct coll_notice;

/* For a recording of an event. NULL: out of memory. */
struct coll_notice *coll_notify_make(void (*fn)(void *arg, coll_status status), void *arg);
/* Add it to an event that is in this state. False: it is due. The lock is held. */
bool coll_notify_add(struct coll_notice *n, struct coll_event *e, coll_status state);

/* The stream has advanced: what waits for positions up to `through` becomes due. coll_async_unlock()
 * runs it. The lock is held. */
void coll_notify_reach(struct coll_stream *s, uint64_t through);

/* Take the notices of an event that will never be due: it is destroyed. The lock is held. */
struct coll_notice *coll_notify_take(struct coll_event *e);

/* Run the functions of a list and free it. No lock is held. Inside such a function: when it has
 * returned. NULL: none. */
void coll_notify_run(struct coll_notice *list);

/* Whether this thread is in such a function, where the library must neither wait nor begin calls, or in a child of the
 * process that made ctx. Reports the call `kind` of the program as an error in the log. ctx may be NULL. */
bool coll_notify_forbids(struct coll_context *ctx, const char *kind);

#endif
