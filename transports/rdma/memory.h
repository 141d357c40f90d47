/*
 * Registered memory.
 */
#ifndef COLL_TRANSPORTS_RDMA_MEMORY_H
#define COLL_TRANSPORTS_RDMA_MEMORY_H

#include "transports/rdma/rdma.h"

/* With one port. NULL: refused, and logged why. */
struct ibv_mr *coll_rdma_memory_pin(const struct rdma_port *port, void *base, size_t len_bytes, bool remote);

/* Registered memory that covers the range; NULL: none does. */
const struct rdma_region *coll_rdma_memory_find(struct rdma_inst *in, const void *ptr, size_t len_bytes);
coll_status coll_rdma_mem_alloc(void *inst, size_t len_bytes, struct coll_memory *mem);
void coll_rdma_mem_free(void *inst, struct coll_memory *mem);
coll_status coll_rdma_mem_reg(void *inst, struct coll_memory *mem);
void coll_rdma_mem_dereg(void *inst, struct coll_memory *mem);
void coll_rdma_memory_fini(struct rdma_inst *in);

#endif
