/*
 * Pairs of interfaces, and the sockets over each.
 */
#ifndef COLL_TRANSPORTS_TCP_PAIRS_H
#define COLL_TRANSPORTS_TCP_PAIRS_H

#include "transports/tcp/tcp.h"

/* What a link between two processes is made of. */
struct coll_tcp_route {
	unsigned sockets; /* 1 to TCP_RAILS_MAX */
	bool paired;      /* socket i uses pair[i]; else all go by the routes of the kernel */
	uint32_t mbps;    /* of all sockets together when each carries the same; 0: unknown */
	struct coll_tcp_pair pair[TCP_RAILS_MAX];
};

/* set: sockets as the user wants; 0: as many as the rates of the pairs ask for. The peer finds the same, turned
 * round. */
void coll_tcp_route_find(const struct coll_tcp_address *self, const struct coll_tcp_address *peer, unsigned set,
                         struct coll_tcp_route *route);

#endif
