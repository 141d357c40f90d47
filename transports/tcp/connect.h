/*
 * Connecting.
 */
#ifndef COLL_TRANSPORTS_TCP_CONNECT_H
#define COLL_TRANSPORTS_TCP_CONNECT_H

#include "transports/tcp/tcp.h"

void coll_tcp_connect_event(struct tcp_inst *in, uint64_t tag);

/* Whether a rail to the peer that was closed here has still to say so: no other is made meanwhile, which
 * the peer could not tell from it. links.lock held. */
bool coll_tcp_connect_closing(struct tcp_inst *in, const struct coll_process_id *peer, uint32_t part);

/* What a connecting link needs now. */
void coll_tcp_connect_retry(struct tcp_link *l, uint64_t now_ns);

#endif
