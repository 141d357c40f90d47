/*
 * One asynchronous operation.
 */
#ifndef COLL_PROGRESS_REQUEST_H
#define COLL_PROGRESS_REQUEST_H

#include "progress/async.h"

/* A request for a call, not handed in. On failure the call is refused. */
coll_status coll_request_call(struct coll_comm *comm, const struct coll_call *call, struct coll_request **req);
coll_status coll_request_pair(struct coll_comm *comm, const struct coll_pair *pair, struct coll_request **req);

/* What a new or used request needs for a call; the plan is pinned. */
coll_status coll_request_bind(struct coll_request *r, const struct coll_call *call);

/* Noted in a group; of a stream: handed in; else handed in and waited for. */
coll_status coll_request_dispatch(struct coll_request *r, struct coll_stream *stream);

/* Hand in, at a position of the stream (0: the next). An error: the communicator has failed. */
coll_status coll_request_submit(struct coll_request *r, struct coll_stream *stream, uint64_t position);

/* Its record, and the signature of its frames: a call begins. */
void coll_request_sign(struct coll_request *r);

/* Wait for a held request. */
coll_status coll_request_await(struct coll_request *r, int timeout_ms);

/* The request of the communicator's thread is to be used again. */
void coll_request_recycle(struct coll_request *r);
void coll_request_init(struct coll_request *r, struct coll_comm *comm);
void coll_request_fini(struct coll_request *r);

#endif
