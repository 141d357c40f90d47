/*
 * Sends of tagged messages. See tags.h.
 */
#ifndef COLL_MATCH_SEND_H
#define COLL_MATCH_SEND_H

#include "match/tags.h"

void coll_tag_op_send(struct coll_tag_op *op, const void *buf, size_t count, coll_dtype type, int peer, int tag);

/* Send at once if nothing stands in the way. False: nothing has happened. */
bool coll_tags_send_now(struct coll_comm *comm, struct coll_tag_op *op);
/* Start a send. It is done when it is in the list of those that are. */
void coll_tags_send(struct coll_comm *comm, struct coll_tag_op *op);
/* Take back a send to this rank itself that no receive has taken. False: it is done. */
bool coll_tags_take_back(struct coll_comm *comm, struct coll_tag_op *op);

/* ---- For src/match/ alone; the lock is held ---- */

/* Send what waits to be sent to a peer. True: something was. */
bool coll_tag_flush(struct coll_comm *comm, struct coll_tag_peer *p);
/* Cells alone, if so many are owed that the peer may wait for them. */
void coll_tag_give_back(struct coll_comm *comm, struct coll_tag_peer *p);
/* The same as the first to this rank itself. */
bool coll_tag_flush_self(struct coll_comm *comm);

#endif
