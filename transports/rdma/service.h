/*
 * The service thread's work.
 */
#ifndef COLL_TRANSPORTS_RDMA_SERVICE_H
#define COLL_TRANSPORTS_RDMA_SERVICE_H

#include "transports/rdma/rdma.h"

void coll_rdma_service(void *inst);

/* Take up the events of completion queues; each is armed for urgent notes again and polled. */
int coll_rdma_service_completions(struct rdma_inst *in);

#endif
