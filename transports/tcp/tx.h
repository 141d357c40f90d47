/*
 * The way out of a link.
 */
#ifndef COLL_TRANSPORTS_TCP_TX_H
#define COLL_TRANSPORTS_TCP_TX_H

#include "transports/tcp/tcp.h"

/* Send or queue; the entry is copied. Completion of what went out at once is
 * left to the caller (*gone). */
void coll_tcp_tx(struct tcp_link *l, const struct tcp_entry *e, bool *gone);

/* A head without payload. */
void coll_tcp_tx_control(struct tcp_link *l, struct coll_tcp_head *head);

/* Room in the queue for so many entries more, until they are released. */
coll_status coll_tcp_tx_reserve(struct tcp_link *l, uint32_t entries);
void coll_tcp_tx_release(struct tcp_link *l, uint32_t entries);

/* Push what is queued; true if bytes moved. */
bool coll_tcp_tx_flush(struct tcp_link *l);

/* Whether a sleeper on poll_fd is woken when the socket takes bytes again. */
void coll_tcp_tx_want(struct tcp_link *l, bool want);

/* Tell the peer about emptied slots that are due. */
bool coll_tcp_tx_credits(struct tcp_link *l);

/* The same at once if a sender waits for one. */
void coll_tcp_tx_asked(struct tcp_link *l);

/* Fill the piggybacked credits and the check value. */
void coll_tcp_tx_seal(struct tcp_link *l, struct coll_tcp_head *head);

#endif
