/*
 * Receives of tagged messages. See tags.h.
 */
#ifndef COLL_MATCH_RECEIVE_H
#define COLL_MATCH_RECEIVE_H

#include "match/tags.h"

void coll_tag_op_receive(struct coll_tag_op *op, void *buf, size_t max_count, coll_dtype type, int source, int tag);

void coll_tag_op_probe(struct coll_tag_op *op, int source, int tag);

/* Look for the message of a probe, once. COLL_AGAIN: it is not here. COLL_ERR_PEER_DEAD: of op->source. */
coll_status coll_tags_look(struct coll_comm *comm, struct coll_tag_op *op);

/* Receive a message whose payload is here. False: nothing has happened. */
bool coll_tags_receive_now(struct coll_comm *comm, struct coll_tag_op *op);
/* Start a receive. */
void coll_tags_receive(struct coll_comm *comm, struct coll_tag_op *op);
/* Take back a receive that has no message. False: it has one, or is done. */
bool coll_tags_cancel(struct coll_comm *comm, struct coll_tag_op *op);

/* ---- For src/match/ alone; the lock is held ---- */

/* A message has arrived: to its receive, or into the pool. */
void coll_tag_arrived(struct coll_comm *comm, struct coll_tag_peer *p, const struct coll_message_head *head,
                      const void *payload);
/* A message has come into the pool: probes see it. */
void coll_tag_show(struct coll_tags *t, const struct coll_message_head *head);
/* A receive gets a message of this process. */
void coll_tag_hand_over(struct coll_tags *t, struct coll_tag_op *receive, struct coll_tag_op *send);

#endif
