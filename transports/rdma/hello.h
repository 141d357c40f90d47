/*
 * The proof that both ends of a connection know the job's key.
 */
#ifndef COLL_TRANSPORTS_RDMA_HELLO_H
#define COLL_TRANSPORTS_RDMA_HELLO_H

#include "transports/rdma/rdma.h"

/* For the rail l. other: the nonce it answers, NULL: it is the first. */
void coll_rdma_hello_make(struct coll_rdma_hello *m, const struct rdma_inst *in, enum coll_rdma_hello_type type,
                          const struct coll_process_id *to, const uint64_t nonce[2], const uint64_t other[2],
                          const struct rdma_link *l);
/* What of it travels. */
size_t coll_rdma_hello_bytes(const struct coll_rdma_hello *m);

/* type ASK: also ASK_AGAIN. NULL when good, else what is wrong with it. from may be NULL: anybody. */
const char *coll_rdma_hello_check(const void *data, size_t len_bytes, const struct rdma_inst *in,
                                  enum coll_rdma_hello_type type, const struct coll_process_id *from,
                                  const uint64_t other[2], struct coll_rdma_hello *m);
struct coll_proof coll_rdma_hello_proof(const struct rdma_inst *in, const struct coll_process_id *client,
                                        const uint64_t nonce[2], const uint64_t other[2], uint64_t items);

#endif
