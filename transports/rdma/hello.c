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

static const uint64_t no_nonce[2];

static struct coll_proof seal(const struct rdma_inst *in, const struct coll_rdma_hello *m,
                              const struct coll_process_id *to, const uint64_t other[2])
{
	struct coll_rdma_hello said = *m;

	said.proof = (struct coll_proof){{0}};
	return COLL_PROOF(in->env.job_key, COLL_SAID(said), COLL_SAID(*to), {other, 2 * sizeof(*other)});
}

/* As it travels, and back: nobody without the key learns who asks whom. The nonce is drawn for one message. */
static void mask(const struct rdma_inst *in, struct coll_rdma_hello *m)
{
	const uint64_t as[2] = {0x6b73616d, m->type};
	const struct coll_proof pad = COLL_PROOF(in->env.job_key, COLL_SAID(as), COLL_SAID(m->nonce));

	m->from.word[0] ^= pad.word[0];
	m->from.word[1] ^= pad.word[1];
}

static bool asks(const struct coll_rdma_hello *m)
{
	return m->type == COLL_RDMA_ASK || m->type == COLL_RDMA_ASK_AGAIN;
}

size_t coll_rdma_hello_bytes(const struct coll_rdma_hello *m)
{
	return asks(m) ? COLL_RDMA_ASK_BYTES : sizeof(*m);
}

void coll_rdma_hello_make(struct coll_rdma_hello *m, const struct rdma_inst *in, enum coll_rdma_hello_type type,
                          const struct coll_process_id *to, const uint64_t nonce[2], const uint64_t other[2],
                          const struct rdma_link *l)
{
	*m = (struct coll_rdma_hello){.magic = (uint16_t)COLL_RDMA_MAGIC,
	                              .version = COLL_RDMA_VERSION,
	                              .type = (uint8_t)type,
	                              .recvs = RDMA_RECVS,
	                              .rail = (uint8_t)l->base.part,
	                              .way = (uint8_t)l->at,
	                              .from = in->env.self,
	                              .nonce = {nonce[0], nonce[1]}};
	if (!asks(m))
		m->items = l->items_in;
	m->proof = seal(in, m, to, other ? other : no_nonce);
	mask(in, m);
}

const char *coll_rdma_hello_check(const void *data, size_t len_bytes, const struct rdma_inst *in,
                                  enum coll_rdma_hello_type type, const struct coll_process_id *from,
                                  const uint64_t other[2], struct coll_rdma_hello *m)
{
	struct coll_proof want;

	*m = (struct coll_rdma_hello){0};
	if (!data || len_bytes < COLL_RDMA_ASK_BYTES)
		return "no greeting";
	memcpy(m, data, COLL_RDMA_ASK_BYTES);
	if (m->magic != (uint16_t)COLL_RDMA_MAGIC ||
	    (m->type != type && !(type == COLL_RDMA_ASK && m->type == COLL_RDMA_ASK_AGAIN)))
		return "not a handshake of this library";
	if (m->version != COLL_RDMA_VERSION)
		return "another version of this library";
	if (len_bytes < coll_rdma_hello_bytes(m))
		return "no greeting";
	memcpy(m, data, coll_rdma_hello_bytes(m));
	mask(in, m);
	want = seal(in, m, &in->env.self, other ? other : no_nonce);
	if (from && !coll_same_process(from, &m->from))
		return "another process";
	if (!coll_proof_same(&m->proof, &want))
		return "it does not have the key of the job";
	if (m->rail >= RDMA_RAILS_MAX || m->way >= RDMA_RAILS_MAX)
		return "a rail that no link has";
	if (m->recvs <= RDMA_RECVS_SPARE || m->recvs > RDMA_RECVS)
		return "a number of receives that nobody posts";
	return NULL;
}

struct coll_proof coll_rdma_hello_proof(const struct rdma_inst *in, const struct coll_process_id *client,
                                        const uint64_t nonce[2], const uint64_t other[2], uint64_t items)
{
	const struct coll_rdma_hello m = {.magic = (uint16_t)COLL_RDMA_MAGIC,
	                                  .version = COLL_RDMA_VERSION,
	                                  .type = COLL_RDMA_PROOF,
	                                  .from = *client,
	                                  .nonce = {nonce[0], nonce[1]},
	                                  .items = items};

	return seal(in, &m, client, other);
}
