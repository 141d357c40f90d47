/*
 * Connections.
 */
#ifndef COLL_TRANSPORTS_RDMA_CM_H
#define COLL_TRANSPORTS_RDMA_CM_H

#include "transports/rdma/rdma.h"

void coll_rdma_cm_events(struct rdma_inst *in);

/* Identifiers that wait for the port; all: whether it is active or not. */
void coll_rdma_cm_corpses(struct rdma_inst *in, bool all);

/* From now on it tries this way. lock held, too. False: its rings cannot be registered there, and the link fails. */
bool coll_rdma_cm_aim(struct rdma_link *l, unsigned way);

/* What a connecting link needs now. */
void coll_rdma_cm_pursue(struct rdma_link *l, uint64_t now_ns);

/* Queue pair, queues, identifier: gone; completion words settled. lock held, too. */
void coll_rdma_cm_bury(struct rdma_link *l);

/* The queue pair of a torn link: gone, and connecting begins again. lock held, too. */
void coll_rdma_cm_tear(struct rdma_link *l);

#endif
