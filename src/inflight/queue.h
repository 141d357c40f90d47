/*
 * Requests in flight. All functions need the async lock.
 */
#ifndef COLL_INFLIGHT_QUEUE_H
#define COLL_INFLIGHT_QUEUE_H

#include "core/inflight_state.h"

struct coll_async;
struct coll_comm;
struct coll_inflight;

void coll_inflight_init(struct coll_inflight *f);
void coll_inflight_fini(struct coll_comm *comm);

/* Enter a request into the order of its communicator, as its kind does it. It has one blocker more than that. */
void coll_inflight_enter(struct coll_request *r);
/* Enter a collective that already runs, because it was started inline. */
void coll_inflight_adopt(struct coll_request *r);
/* Enter and start a request that has no place in the order of calls. */
void coll_inflight_join(struct coll_request *r);

/* Put a request behind the last one of a queue, as place i of its own; and let what is behind it there start. */
void coll_inflight_queue(struct coll_request *r, int i, struct coll_request **last);
void coll_inflight_pass(struct coll_request *r, int i);
void coll_inflight_unblock(struct coll_request *r);    /* removes one blocker */
void coll_inflight_make_ready(struct coll_request *r); /* which has none */
/* It runs from here on. Again: nothing. */
void coll_inflight_started(struct coll_request *r);

/* Start all requests that nothing blocks any more. False: there is none. */
bool coll_inflight_launch(struct coll_async *a);
void coll_inflight_complete(struct coll_request *r, coll_status status);

/* From here on drivers look at the communicator although nothing may be pending, and until when: graphs may start
 * requests at any time, and streams have work of a communicator that has failed. */
enum { COLL_KEPT_BY_GRAPHS = 1, COLL_KEPT_BY_STREAMS = 2 };
void coll_inflight_keep(struct coll_comm *comm, unsigned by);
void coll_inflight_unkeep(struct coll_comm *comm, unsigned by);

/* The communicator has failed: end all its requests. */
void coll_inflight_lost(struct coll_comm *comm);

/* Publish what this rank is doing: the oldest running request, else the one that has just ended. */
void coll_inflight_publish(struct coll_comm *comm, struct coll_request *ended);

#endif
