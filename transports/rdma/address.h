/*
 * What a process announces of its ports.
 */
#ifndef COLL_TRANSPORTS_RDMA_ADDRESS_H
#define COLL_TRANSPORTS_RDMA_ADDRESS_H

#include <sys/socket.h>

#include "transports/rdma/wire.h"

/* As many ports as fit in cap, the first ones; ARGUMENT when none does. */
coll_status coll_rdma_address_encode(const struct coll_rdma_peer_info *info, void *buf, size_t cap, size_t *len_bytes);
/* False: it is none, or of another version of this library. */
bool coll_rdma_address_decode(struct coll_rdma_peer_info *info, const void *buf, size_t len_bytes);

/* service: of the connection manager, 0: any. */
void coll_rdma_spot_sockaddr(const struct coll_rdma_spot *spot, uint16_t service, struct sockaddr_storage *sa);
/* "rxe0 port 1 at 10.77.0.2" */
const char *coll_rdma_spot_text(const struct coll_rdma_spot *spot, char *buf, size_t cap);

#endif
