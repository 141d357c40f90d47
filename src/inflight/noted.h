/*
 * The group of a thread: the calls that it has noted between begin and end. group.c submits them.
 */
#ifndef COLL_INFLIGHT_NOTED_H
#define COLL_INFLIGHT_NOTED_H

#include <stdbool.h>

struct coll_comm;
struct coll_request;
struct coll_stream;

/* Its nesting depth and the calls noted in it. While a function of coll_event_notify() runs the depth is negative, so
 * no call takes a fast path: see notify.h. The address also names the thread. */
struct coll_group {
	int depth;
	int calls;
	struct coll_request *first, *last;
};
extern _Thread_local struct coll_group coll_group __attribute__((tls_model("initial-exec")));

/* Note a call. */
void coll_noted_add(struct coll_request *r, struct coll_stream *stream);

/* Whether this thread's group has noted calls on a communicator or for a stream. Either may be
 * NULL. */
bool coll_noted_has(const struct coll_comm *comm, const struct coll_stream *stream);

#endif
