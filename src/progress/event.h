/*
 * Events.
 */
#ifndef COLL_PROGRESS_EVENT_H
#define COLL_PROGRESS_EVENT_H

#include "progress/async.h"

/* The stream goes: its events keep what they know. The lock is held. */
void coll_event_detach(struct coll_stream *s);

/* Note the time in those of the stream's events that have been reached; the lock is held. */
void coll_event_stamp(struct coll_stream *s);

#endif
