/*
 * Groups.
 */
#ifndef COLL_CALL_GROUP_H
#define COLL_CALL_GROUP_H

#include "inflight/async.h"

void coll_group_add(struct coll_request *r, struct coll_stream *stream);

/* End this thread's group, the inner ones too, without its calls: none is made. */
void coll_group_cancel(void);

/* Whether this thread's group has noted calls on a communicator or for a stream. Either may be
 * NULL. */
bool coll_group_has(const struct coll_comm *comm, const struct coll_stream *stream);

/* Give the parts of a merged call their places in the streams of the original calls. The lock is
 * held. */
void coll_group_join(struct coll_request *whole);

#endif
