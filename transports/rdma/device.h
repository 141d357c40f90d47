/*
 * Which devices, ports and addresses an instance uses, and how they are called in messages.
 */
#ifndef COLL_TRANSPORTS_RDMA_DEVICE_H
#define COLL_TRANSPORTS_RDMA_DEVICE_H

#include "transports/rdma/rdma.h"

/* Opens the listeners, which bind the instance to ports; fills the peer info. Each port that is
 * not used gets a line that says why. */
coll_status coll_rdma_device_open(struct rdma_inst *in, char *why, size_t why_bytes);
bool coll_rdma_device_active(const struct rdma_port *port);
/* The port of an identifier that is bound; NULL: none of those that are used. */
struct rdma_port *coll_rdma_device_port(struct rdma_inst *in, const struct rdma_cm_id *id);
const char *coll_rdma_gid_text(const uint8_t gid[16], char *buf, size_t cap);

/* "rxe0 port 1 GID a to rxe1 port 1 at b" */
void coll_rdma_path_text(const struct rdma_link *l, char *buf, size_t cap);

#endif
