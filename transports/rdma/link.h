/*
 * The life of a link.
 */
#ifndef COLL_TRANSPORTS_RDMA_LINK_H
#define COLL_TRANSPORTS_RDMA_LINK_H

#include "transports/rdma/rdma.h"

coll_status coll_rdma_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                void **link);

/* For the table: l connects from now on. */
bool coll_rdma_link_begin(void *inst, struct coll_peer_link *l);

/* The link's lock held for these four. */
void coll_rdma_link_up(struct rdma_link *l);
void coll_rdma_link_fail(struct rdma_link *l, coll_status why, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* The connection broke, but the peer may still exist: fail the link if it cannot be reconnected. */
void coll_rdma_link_torn(struct rdma_link *l, coll_status why, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
void coll_rdma_link_ended(struct rdma_link *l);

/* More waits to be sent than open channels account for: answers to a peer that asks, and takes none. */
bool coll_rdma_link_swamped(const struct rdma_link *l);

/* Before the lock is released: wake sleepers if there is news, and send what is left. */
void coll_rdma_link_leave(struct rdma_link *l);

/* Into the log: what it has carried. */
void coll_rdma_link_report(const struct rdma_link *l);

/* Bury and forget what is over. service.lock held. */
void coll_rdma_link_compact(struct rdma_inst *in);
void coll_rdma_link_free(struct rdma_link *l);

#endif
