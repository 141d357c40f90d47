/*
 * Sockets that outlive their link until the peer has read their last words.
 */
#ifndef COLL_TRANSPORTS_TCP_CLOSING_H
#define COLL_TRANSPORTS_TCP_CLOSING_H

#include "transports/tcp/tcp.h"

/* Take the socket of a link that is up and is torn next, and send `last` behind what is queued. links.lock and the
 * link's held. Without memory the socket stays with the link. */
void coll_tcp_closing_begin(struct tcp_link *l, const struct coll_tcp_head *last);

/* Send, discard what comes, close what is over. Whether the kernel still has bytes to take or to deliver. No lock
 * held. */
bool coll_tcp_closing_serve(struct tcp_inst *in);

/* Close all of them. */
void coll_tcp_closing_fini(struct tcp_inst *in);

#endif
