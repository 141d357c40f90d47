/*
 * One asynchronous operation.
 */
#ifndef COLL_PROGRESS_REQUEST_H
#define COLL_PROGRESS_REQUEST_H

#include "progress/async.h"

/* Make a request for a call, without submitting it. On failure the call is refused. */
coll_status coll_request_call(struct coll_comm *comm, const struct coll_call *call, struct coll_request **req);
coll_status coll_request_pair(struct coll_comm *comm, const struct coll_pair *pair, struct coll_request **req);

/* A request to fill, used before or new; NULL: out of memory. */
struct coll_request *coll_request_take(struct coll_comm *comm);

/* Fill a new or used request for a call. Pins the plan. */
coll_status coll_request_bind(struct coll_request *r, const struct coll_call *call);

/* Room for packed data. */
coll_status coll_request_need_pack(struct coll_request *r, size_t bytes);

/* Submit a request that is in no group, and put what a device has to do for it into its stream. */
coll_status coll_request_launch(struct coll_request *r, struct coll_stream *stream);

/* Inside a group: note the request. With a stream: submit it. Else submit it and wait for it. */
coll_status coll_request_dispatch(struct coll_request *r, struct coll_stream *stream);

/* Submit a request, at a position of the stream (0: the next). An error means that the communicator
 * has failed. */
coll_status coll_request_submit(struct coll_request *r, struct coll_stream *stream, uint64_t position);

/* Begin the call: make its record and the signature of its frames. */
void coll_request_sign(struct coll_request *r);

/* Wait for a held request. */
coll_status coll_request_await(struct coll_request *r, int timeout_ms);

/* Return a request for reuse. Only the communicator's thread may call this. */
void coll_request_recycle(struct coll_request *r);
void coll_request_init(struct coll_request *r, struct coll_comm *comm);
void coll_request_fini(struct coll_request *r);

#endif
