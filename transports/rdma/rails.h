/*
 * A link of several connections.
 */
#ifndef COLL_TRANSPORTS_RDMA_RAILS_H
#define COLL_TRANSPORTS_RDMA_RAILS_H

#include "transports/common/rails.h"
#include "transports/rdma/rdma.h"

/* Find or make the link to a peer with all of its rails, and count one handle more. */
coll_status coll_rdma_rails_open(struct rdma_inst *in, const struct coll_rdma_peer_info *peer,
                                 struct coll_peer_link **link);
/* The entry link_close. */
void coll_rdma_link_close(void *link);

/* A rail that is not connected tries the pair of ports of another one. service.lock held for these two, no other. */
void coll_rdma_rails_pursue(struct rdma_link *r, uint64_t now_ns);
/* One that is up is not acknowledged, and another is: its connection is made again. */
void coll_rdma_rails_listen(struct rdma_link *r, uint64_t now_ns);

/* The peer has lost this rail of the link. The lock of l, which is one of the others, is held. */
void coll_rdma_rails_lost(struct rdma_link *l, uint32_t number);

/* Where a rail has broken the link is over, for its users and for the peer. No lock held. */
void coll_rdma_rails_tear(struct rdma_inst *in);

#endif
