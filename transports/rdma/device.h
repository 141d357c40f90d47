/*
 * Which device, port and address an instance uses, and how they are called in messages.
 */
#ifndef COLL_TRANSPORTS_RDMA_DEVICE_H
#define COLL_TRANSPORTS_RDMA_DEVICE_H

#include "transports/rdma/rdma.h"

/* Opens the listener, which binds the instance to a device; fills the peer info. */
coll_status coll_rdma_device_open(struct rdma_inst *in, char *why, size_t why_bytes);
bool coll_rdma_device_active(struct rdma_inst *in);
const char *coll_rdma_gid_text(const uint8_t gid[16], char *buf, size_t cap);

/* "rxe0 port 1 GID a to b GID c" */
void coll_rdma_path_text(const struct rdma_link *l, char *buf, size_t cap);
bool coll_rdma_peer_info_valid(const void *address, size_t len_bytes, struct coll_rdma_peer_info *info);

#endif
