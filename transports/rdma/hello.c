/*
 * The proof that both ends of a connection know the job's key: a keyed hash over a
 * message, the process it is meant for and the nonce it answers. The client's proof
 * goes over the connection itself, as its first note, because a connection request
 * comes before the server's nonce is known.
 */
#include "transports/rdma/hello.h"

#include <string.h>

#include "base/proof.h"
#include "transports/rdma/rdma.h"

static uint64_t seal(const struct rdma_inst *in, const struct coll_rdma_hello *m, const struct coll_process_id *to,
                     uint64_t other)
{
	struct coll_rdma_hello said = *m;

	said.mac = 0;
	return COLL_PROOF(in->env.job_key, COLL_SAID(said), COLL_SAID(*to), COLL_SAID(other));
}

void coll_rdma_hello_make(struct coll_rdma_hello *m, const struct rdma_inst *in, enum coll_rdma_hello_type type,
                          const struct coll_process_id *to, uint64_t nonce, uint64_t other, const struct rdma_link *l)
{
	*m = (struct coll_rdma_hello){.magic = COLL_RDMA_MAGIC,
	                              .version = COLL_RDMA_VERSION,
	                              .type = (uint8_t)type,
	                              .recvs = RDMA_RECVS,
	                              .from = in->env.self,
	                              .nonce = nonce,
	                              .items = l->items_in,
	                              .rail = l->base.part,
	                              .way = l->at};
	m->mac = seal(in, m, to, other);
}

const char *coll_rdma_hello_check(const void *data, size_t len_bytes, const struct rdma_inst *in,
                                  enum coll_rdma_hello_type type, const struct coll_process_id *from, uint64_t other,
                                  struct coll_rdma_hello *m)
{
	if (!data || len_bytes < sizeof(*m))
		return "no greeting";
	memcpy(m, data, sizeof(*m));
	if (m->magic != COLL_RDMA_MAGIC ||
	    (m->type != type && !(type == COLL_RDMA_ASK && m->type == COLL_RDMA_ASK_AGAIN)))
		return "not a handshake of this library";
	if (m->version != COLL_RDMA_VERSION)
		return "another version of this library";
	if (from && !coll_same_process(from, &m->from))
		return "another process";
	if (m->mac != seal(in, m, &in->env.self, other))
		return "it does not have the key of the job";
	if (m->rail >= RDMA_RAILS_MAX || m->way >= RDMA_RAILS_MAX)
		return "a rail that no link has";
	if (m->recvs <= RDMA_RECVS_SPARE)
		return "too few receives";
	return NULL;
}

uint64_t coll_rdma_hello_proof(const struct rdma_inst *in, const struct coll_process_id *client, uint64_t nonce,
                               uint64_t other)
{
	const struct coll_rdma_hello m = {.magic = COLL_RDMA_MAGIC,
	                                  .version = COLL_RDMA_VERSION,
	                                  .type = COLL_RDMA_PROOF,
	                                  .from = *client,
	                                  .nonce = nonce};

	return seal(in, &m, client, other);
}
