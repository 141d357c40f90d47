/*
 * shm: reading a peer's memory with process_vm_readv (cross-memory attach), and whether that is allowed.
 */
#ifndef COLL_TRANSPORTS_SHM_CMA_H
#define COLL_TRANSPORTS_SHM_CMA_H

#include "transport/transport_shared.h"
#include "transports/shm/shm.h"

/* cma.c */
bool coll_shm_cma(const struct shm_link *l, uint32_t pid, uint64_t address, void *to, size_t len_bytes);
coll_status coll_shm_cma_from(void *link, uint64_t address, void *to, size_t len_bytes);
bool coll_shm_alive(const struct shm_link *l);
bool coll_shm_probe(uint32_t pid, uint64_t address, uint64_t value);

#endif
