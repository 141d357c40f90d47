/*
 * The receiving end of a channel.
 */
#ifndef COLL_TRANSPORTS_RDMA_RECEIVER_H
#define COLL_TRANSPORTS_RDMA_RECEIVER_H

#include "transports/rdma/rdma.h"

coll_status coll_rdma_view(void *channel, const void **p, struct coll_frame *frame);
coll_status coll_rdma_done(void *channel);
coll_status coll_rdma_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect, struct coll_completion *completion);

/* The link's lock held for the rest. */
coll_status coll_rdma_receiver_open(const struct rdma_channel *base, void **channel);
void coll_rdma_receiver_close(struct rdma_receiver *r);
void coll_rdma_receiver_free(struct rdma_receiver *r);
/* Where the peer was told that it may write the next frame, if it is this one; else NULL. */
const char *coll_rdma_receiver_told(const struct rdma_receiver *r, const struct coll_frame *frame);
/* into: there. */
void coll_rdma_receiver_arrived(struct rdma_receiver *r, const struct coll_frame *frame, bool into);

/* A frame by reference waits at the sender. */
void coll_rdma_receiver_asked(struct rdma_receiver *r);
void coll_rdma_receiver_forget_owed(struct rdma_receiver *r);

/* The key of its ring for the link's port; all are told to the peer first on a connection that is made again. */
uint32_t coll_rdma_receiver_key(const struct rdma_link *l, uint32_t id);
void coll_rdma_receiver_tell_keys(struct rdma_link *l);

/* What is announced ends so. */
void coll_rdma_receiver_settle(struct rdma_receiver *r, coll_status status);

/* Announcements that were not sent to the peer, or that it has dropped. */
void coll_rdma_receiver_announce_all(struct rdma_link *l);
void coll_rdma_receiver_forget_announcements(struct rdma_link *l);

#endif
