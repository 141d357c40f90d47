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
	uint32_t mbps;    /* of the one pair there is, if it is not paired; 0: unknown */
	struct coll_tcp_pair pair[TCP_RAILS_MAX];
};

/* set: sockets as the user wants; 0: one over each pair that is worth it, TCP_LONG_SOCKETS at least over a long path.
 * The peer finds the same, turned round. */
void coll_tcp_route_find(const struct coll_tcp_address *self, const struct coll_tcp_address *peer, unsigned set,
                         uint32_t round_trip_us, struct coll_tcp_route *route);

/* Whether so much is under way on a path that a lost packet costs more than a link of several sockets. mbps 0: unknown.
 */
bool coll_tcp_is_long(uint32_t mbps, uint32_t round_trip_us);

/* Its sockets as rails. */
void coll_tcp_route_path(const struct coll_tcp_route *route, struct coll_transport_path *path);

#endif
