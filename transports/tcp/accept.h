/*
 * The listener and the handshakes of incoming connections.
 */
#ifndef COLL_TRANSPORTS_TCP_ACCEPT_H
#define COLL_TRANSPORTS_TCP_ACCEPT_H

#include "transports/tcp/tcp.h"

void coll_tcp_accept_new(struct tcp_inst *in, uint32_t listener);
/* epoll_ctl() for each listener. */
bool coll_tcp_accept_watch(struct tcp_inst *in, uint32_t events, int how);

/* Data from a connection that has not completed its handshake. */
void coll_tcp_accept_read(struct tcp_inst *in, struct tcp_handshake *h);
void coll_tcp_accept_refuse(struct tcp_inst *in, struct tcp_handshake *h);

#endif
