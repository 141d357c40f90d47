/*
 * The way out.
 */
#ifndef COLL_TRANSPORTS_RDMA_TX_H
#define COLL_TRANSPORTS_RDMA_TX_H

#include "transports/rdma/rdma.h"

void coll_rdma_tx(struct rdma_link *l, const struct rdma_entry *e);
void coll_rdma_tx_note(struct rdma_link *l, const struct coll_rdma_note *note);
/* The same before all that is queued. */
void coll_rdma_tx_first(struct rdma_link *l, const struct coll_rdma_note *note);

/* Not in the queue: first on a new connection. */
bool coll_rdma_tx_proof(struct rdma_link *l, const struct coll_proof *p);
int coll_rdma_tx_push(struct rdma_link *l);

/* Tell the slots and receives that are due, alone. */
int coll_rdma_tx_credits(struct rdma_link *l);
coll_status coll_rdma_tx_reserve(struct rdma_link *l, uint32_t entries);

/* On a new connection: what the peer has not got goes first. */
void coll_rdma_tx_resume(struct rdma_link *l);

/* Release the memory that was loaned for frames in the log. */
void coll_rdma_tx_drop_log(struct rdma_link *l, uint64_t items, coll_status status);

/* A sign of life is asked for. */
void coll_rdma_tx_ping(struct rdma_link *l);

/* Work requests up to seq are complete. */
void coll_rdma_tx_completed(struct rdma_link *l, uint64_t seq);

#endif
