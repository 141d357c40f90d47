/*
 * What the two ends of a channel have in common.
 */
#ifndef COLL_TRANSPORTS_RDMA_CHANNEL_H
#define COLL_TRANSPORTS_RDMA_CHANNEL_H

#include "transports/rdma/rdma.h"

coll_status coll_rdma_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                   size_t slot_bytes, uint32_t slots, void **channel);
void coll_rdma_channel_close(void *channel);

/* What a verb says when it has nothing: an error if it never will have. */
coll_status coll_rdma_channel_nothing(const struct rdma_channel *ch);
void coll_rdma_channel_enter(struct rdma_channel *ch);

/* The channel may be gone. */
void coll_rdma_channel_leave(struct rdma_link *l);

/* The link's lock held for the rest. */
coll_status coll_rdma_channel_make_ring(struct rdma_channel *ch);
/* Registered with the port of its rail; all: every ring of the link. False: refused. */
bool coll_rdma_channel_pin_ring(struct rdma_channel *ch);
bool coll_rdma_channel_pin_all(struct rdma_link *l);
void coll_rdma_channel_free_ring(struct rdma_channel *ch);

/* Until done is true or the link is not up any more; false: not within ms. The lock is let go in between. */
bool coll_rdma_channel_await(struct rdma_link *l, bool (*done)(struct rdma_link *l, const void *arg), const void *arg,
                             unsigned ms);

/* The device lets go of everything at once: it has no queue pair any more. The lock is let go in between. */
void coll_rdma_channel_bury(struct rdma_link *l);

#endif
