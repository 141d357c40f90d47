/*
 * Streams.
 */
#ifndef COLL_INFLIGHT_STREAM_H
#define COLL_INFLIGHT_STREAM_H

#include "inflight/async.h"

/* Append a request at a position (0: the next). Adds a blocker unless the request may start at
 * once. */
void coll_stream_append(struct coll_stream *s, struct coll_request *r, uint64_t position);

/* The error of the stream up to a position that it has reached. The lock is held. */
static inline coll_status coll_stream_failure(const struct coll_stream *s, uint64_t position)
{
	return s->status != COLL_OK && s->failed_at <= position ? s->status : COLL_OK;
}
void coll_stream_pop(struct coll_stream *s, struct coll_request *r, coll_status status);

#endif
