/*
 * Which requests for a connection are new.
 */
#ifndef COLL_TRANSPORTS_RDMA_REQUESTS_H
#define COLL_TRANSPORTS_RDMA_REQUESTS_H

#include "transports/rdma/rdma.h"

/* first: above all numbers that an earlier instance of this process has used. */
void coll_rdma_requests_init(struct rdma_requests *r, uint64_t first);
void coll_rdma_requests_fini(struct rdma_requests *r);

/* NULL: a request of a peer, read into m, whose number is higher than all before of this peer and rail. Else what is
 * wrong with it. Without memory for a peer that is new it is wrong as well: who asks does so again. */
const char *coll_rdma_requests_read(struct rdma_inst *in, const void *data, size_t len_bytes,
                                    struct coll_rdma_hello *m);

/* The nonce of this end's next request for l. It answers the challenge that has come, if one has. */
void coll_rdma_requests_nonce(struct rdma_link *l);

/* What follows with the lock of l held. */

/* A challenge for the connection that is now up; no other connection has it. */
void coll_rdma_requests_draw(struct rdma_link *l);
/* Whether the request m of id answers it. Otherwise it is refused with the challenge, and id is gone. */
bool coll_rdma_requests_proved(const struct rdma_link *l, struct rdma_cm_id *id, const struct coll_rdma_hello *m);
/* A refusal came with these bytes: true if it is a challenge of the peer. */
bool coll_rdma_requests_challenged(struct rdma_link *l, const void *data, size_t len_bytes);

#endif
