/*
 * The way in of a link.
 */
#ifndef COLL_TRANSPORTS_TCP_RX_H
#define COLL_TRANSPORTS_TCP_RX_H

#include "transports/tcp/tcp.h"

/* Read what is there, at most about budget bytes; number of things that happened. */
int coll_tcp_rx(struct tcp_link *l, size_t budget);

/* The taker of the DATA under way gets what has come, but for an odd rest. */
void coll_tcp_rx_give(struct tcp_link *l);

/* Before a sleep: the rest of a large payload need not wake anybody piece by piece. */
void coll_tcp_rx_settle(struct tcp_link *l, uint32_t most_bytes);

#endif
