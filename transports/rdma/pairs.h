/*
 * Which ports two processes use together.
 */
#ifndef COLL_TRANSPORTS_RDMA_PAIRS_H
#define COLL_TRANSPORTS_RDMA_PAIRS_H

#include "transports/rdma/wire.h"

/* What a link between two processes is made of: a rail over each pair of ports. */
struct coll_rdma_route {
	unsigned rails; /* 0: no port of one reaches one of the other */
	struct {
		unsigned here, there; /* numbers of ports */
	} rail[COLL_RDMA_PORTS];
};

/* The peer finds the same, turned round. */
void coll_rdma_route_find(const struct coll_rdma_peer_info *self, const struct coll_rdma_peer_info *peer,
                          struct coll_rdma_route *route);

/* The same as rails, as the two processes announce them. */
void coll_rdma_route_path(const struct coll_rdma_route *route, const struct coll_rdma_peer_info *self,
                          const struct coll_rdma_peer_info *peer, struct coll_transport_path *path);

#endif
