/*
 * Credits and grants.
 */
#ifndef COLL_TRANSPORTS_TCP_GRANT_H
#define COLL_TRANSPORTS_TCP_GRANT_H

#include "transports/tcp/tcp.h"

/* A slot has been emptied: credit is owed. */
void coll_tcp_channel_owe(struct tcp_receiver *r, bool asks);
void coll_tcp_channel_forget_owed(struct tcp_receiver *r);

/* Join s to the grant of its key, if the peer has given it. */
void coll_tcp_channel_meet(struct tcp_sender *s);

/* One receiver that owes, those that are due first (only those with due_only),
 * with its count, which is then no longer owed; false if none. */
bool coll_tcp_channel_take_credit(struct tcp_link *l, bool due_only, uint32_t *id, uint32_t *count);

/* Messages of the peer; NULL when fine, else what is wrong. */
const char *coll_tcp_channel_granted(struct tcp_link *l, const struct coll_tcp_head *head);
const char *coll_tcp_channel_credited(struct tcp_link *l, uint32_t id, uint32_t count);
const char *coll_tcp_channel_withdrawn(struct tcp_link *l, uint32_t id);
const char *coll_tcp_channel_drained(struct tcp_link *l, uint32_t id);

#endif
