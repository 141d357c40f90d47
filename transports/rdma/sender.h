/*
 * The sending end of a channel, and its view of the receiving end that the peer has opened (the grant).
 */
#ifndef COLL_TRANSPORTS_RDMA_SENDER_H
#define COLL_TRANSPORTS_RDMA_SENDER_H

#include "transports/rdma/rdma.h"

coll_status coll_rdma_slot(void *channel, size_t len_bytes, void **p);
coll_status coll_rdma_post(void *channel, const struct coll_frame *frame);
coll_status coll_rdma_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                               const struct coll_frame *frame, struct coll_completion *completion);

/* The link's lock held for the rest. */
coll_status coll_rdma_sender_open(const struct rdma_channel *base, void **channel);
void coll_rdma_sender_close(struct rdma_sender *s);
void coll_rdma_sender_free(struct rdma_sender *s);
void coll_rdma_sender_meet_grant(struct rdma_link *l, struct rdma_grant *g);

/* Where a frame may go before there is a sender: room for it; false: the link has failed. */
bool coll_rdma_sender_early_target(struct rdma_link *l, struct rdma_grant *g, uint64_t at);
void coll_rdma_sender_free_grant(struct rdma_grant *g);

/* What waited, and need not wait any more, goes to the queue. */
void coll_rdma_sender_release(struct rdma_sender *s);

/* What the receiver says about frames by reference from a number on. */
void coll_rdma_sender_manner(struct rdma_sender *s, enum rdma_manner manner, uint32_t number);
void coll_rdma_sender_drop_waiting(struct rdma_sender *s, coll_status status);

/* An entry has left the queue unsent. */
void coll_rdma_sender_unqueued(const struct rdma_entry *e);
void coll_rdma_sender_drop_queued(struct rdma_link *l, struct rdma_sender *s);
void coll_rdma_sender_sweep(struct rdma_link *l);

#endif
