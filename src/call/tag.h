/*
 * Calls of tagged messages: between the API, requests (src/inflight/) and what moves messages (src/match/).
 */
#ifndef COLL_CALL_TAG_H
#define COLL_CALL_TAG_H

#include "core/comm.h"

/* After the argument checks of api/. */
coll_status coll_comm_send_tag(struct coll_comm *comm, const void *buf, size_t count, coll_dtype type, int peer,
                               int tag, struct coll_stream *stream);
coll_status coll_comm_irecv(struct coll_comm *comm, void *buf, size_t max_count, coll_dtype type, int source, int tag,
                            coll_request **req);
coll_status coll_comm_recv_tag(struct coll_comm *comm, void *buf, size_t max_count, coll_dtype type, int source,
                               int tag, coll_message_info *info);
/* Make what a communicator needs for tagged messages. */
coll_status coll_tag_need(struct coll_comm *comm, const char *kind);

/* Wait for a message without receiving it. info may be NULL. */
coll_status coll_comm_probe(struct coll_comm *comm, int source, int tag, coll_message_info *info);

/* The end of a communicator. First: receives that have no message, and messages of this rank to itself that have no
 * receive, end with COLL_ERR_CANCELLED. Then, with nothing pending: messages that have come go to the device, and
 * drivers leave it alone. */
void coll_tag_cancel_all(struct coll_comm *comm);
void coll_tag_bring_all(struct coll_comm *comm);
void coll_tag_end(struct coll_comm *comm);

#endif
