/*
 * The check of payloads: behind the head of a frame go the CRC-32Cs of its pieces. See sums.c.
 */
#ifndef COLL_TRANSPORTS_RDMA_SUMS_H
#define COLL_TRANSPORTS_RDMA_SUMS_H

#include "transports/rdma/rdma.h"

/* Settings. */
void coll_rdma_sums_open(struct rdma_inst *in);

size_t coll_rdma_sums_bytes(uint32_t len_bytes);

/* Bytes of a frame from its head on: the head alone where nothing is checked. */
static inline size_t coll_rdma_sums_tail(const struct rdma_inst *in, uint32_t len_bytes)
{
	return sizeof(struct coll_rdma_head) + (in->check ? coll_rdma_sums_bytes(len_bytes) : 0);
}

/* ---- of an instance that checks ---- */

/* Behind this head, which is complete and stands in a ring. */
void coll_rdma_sums_put(const struct rdma_inst *in, struct coll_rdma_head *head, const char *payload);

/* Whether the payload of this head, which is a copy, has the sums that stand there; false: *wrong says how, if it is
 * not NULL. */
bool coll_rdma_sums_pass(const struct rdma_inst *in, const struct coll_rdma_head *head, const void *sums,
                         const char *payload, char *wrong, size_t wrong_bytes);

#endif
