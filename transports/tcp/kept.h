/*
 * What a rail keeps of what it has sent, so that it can go on over another socket.
 */
#ifndef COLL_TRANSPORTS_TCP_KEPT_H
#define COLL_TRANSPORTS_TCP_KEPT_H

#include "transports/tcp/tcp.h"

/* All with the link's lock held, of links of several rails only. */

/* Keep a frame, and send it unless the channel waits for what the peer has got. */
void coll_tcp_kept_send(struct tcp_sender *s, const struct tcp_entry *e);
/* Let go of what the peer has taken, or never will. s may be gone: a closed sender is freed with its last frame. */
void coll_tcp_kept_release(struct tcp_sender *s);
/* A frame in user memory becomes a copy: the sender closes. False: no memory. */
bool coll_tcp_kept_copy(struct tcp_sender *s);

/* The socket is lost. The link connects again once coll_tcp_rails_tear() has found a way, and goes on. */
void coll_tcp_kept_strand(struct tcp_link *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* On the next socket: tell the peer which channels are open, and what each has got. */
void coll_tcp_kept_resume(struct tcp_link *l);
/* The peer tells that of a channel; NULL, or what is wrong. */
const char *coll_tcp_kept_state(struct tcp_link *l, const struct coll_tcp_head *head);

#endif
