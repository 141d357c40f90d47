/*
 * Events.
 */
#ifndef COLL_INFLIGHT_EVENT_H
#define COLL_INFLIGHT_EVENT_H

#include "inflight/async.h"

/* As coll_event_query(). The lock is held. */
coll_status coll_event_state(const struct coll_event *e);

/* The stream is being destroyed. Its events keep their status. The lock is held. */
void coll_event_detach(struct coll_stream *s);

/* Store the time in those events of the stream that have been reached. The lock is held. */
void coll_event_stamp(struct coll_stream *s);

#endif
