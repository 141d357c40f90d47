/*
 * The way in.
 */
#ifndef COLL_TRANSPORTS_RDMA_RX_H
#define COLL_TRANSPORTS_RDMA_RX_H

#include "transports/rdma/rdma.h"

int coll_rdma_rx_poll(struct rdma_link *l);
bool coll_rdma_rx_post_all(struct rdma_link *l);

/* Take the next frame from its slot if it is there, whole, before its completion. */
void coll_rdma_rx_look(struct rdma_receiver *r);

#endif
