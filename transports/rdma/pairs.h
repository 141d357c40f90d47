/*
 * Which ports two processes use together.
 */
#ifndef COLL_TRANSPORTS_RDMA_PAIRS_H
#define COLL_TRANSPORTS_RDMA_PAIRS_H

#include "transports/common/paths.h"
#include "transports/rdma/wire.h"

/* What a link between two processes is made of: a rail over each pair of ports, and shares of equal size, each of
 * which belongs to one rail. */
struct coll_rdma_route {
	unsigned rails; /* 0: no port of one reaches one of the other */
	struct {
		unsigned here, there; /* numbers of ports */
	} rail[COLL_RDMA_PORTS];
	unsigned shares;
	uint8_t rail_of[COLL_PATHS_SHARES_MAX];
	bool alike;    /* all rails are equally near */
	uint32_t mbps; /* of all together; 0: unknown */
};

/* The peer finds the same, turned round. */
void coll_rdma_route_find(const struct coll_rdma_peer_info *self, const struct coll_rdma_peer_info *peer,
                          struct coll_rdma_route *route);

#endif
