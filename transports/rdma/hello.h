/*
 * The proof that both ends of a connection know the job's key.
 */
#ifndef COLL_TRANSPORTS_RDMA_HELLO_H
#define COLL_TRANSPORTS_RDMA_HELLO_H

#include "transports/rdma/rdma.h"

/* For the rail l. */
void coll_rdma_hello_make(struct coll_rdma_hello *m, const struct rdma_inst *in, enum coll_rdma_hello_type type,
                          const struct coll_process_id *to, uint64_t nonce, uint64_t other, const struct rdma_link *l);

/* type ASK: also ASK_AGAIN. NULL when good, else what is wrong with it. from may be NULL: anybody. */
const char *coll_rdma_hello_check(const void *data, size_t len_bytes, const struct rdma_inst *in,
                                  enum coll_rdma_hello_type type, const struct coll_process_id *from, uint64_t other,
                                  struct coll_rdma_hello *m);
uint64_t coll_rdma_hello_proof(const struct rdma_inst *in, const struct coll_process_id *client, uint64_t nonce,
                               uint64_t other);

#endif
