/*
 * Issuing requests: submission, and the wait for their end.
 */
#ifndef COLL_CALL_ISSUE_H
#define COLL_CALL_ISSUE_H

#include "inflight/async.h"
#include "inflight/request.h"

/* Submit a request that is in no group, and put what a device has to do for it into its stream. *submitted: it is; else
 * a graph has it now. */
coll_status coll_request_launch(struct coll_request *r, struct coll_stream *stream, bool *submitted);

/* Inside a group: note the request. With a stream: submit it. Else submit it and wait for it. */
coll_status coll_request_dispatch(struct coll_request *r, struct coll_stream *stream);

/* Submit a request, at a position of the stream (0: the next). An error means that the communicator
 * has failed. */
coll_status coll_request_submit(struct coll_request *r, struct coll_stream *stream, uint64_t position);

/* The thread that waits for it has come so far. */
static inline void coll_request_attend(struct coll_request *r, enum coll_attend at)
{
	if (r->kind->attend)
		r->kind->attend(r, at);
}

/* Wait for a held request. */
coll_status coll_request_await(struct coll_request *r, int timeout_ms);

/* Find out which requests have to do with devices, before their submission: one by one, and then all together. */
coll_status coll_batch_add(struct coll_batch *b, struct coll_request *r, const struct coll_stream *stream);
coll_status coll_batch_assign(const struct coll_batch *b);
/* And after it. */
void coll_batch_enqueue(const struct coll_batch *b);

#endif
