/*
 * Which requests for a connection are new. An end numbers its requests, for whichever peer they are. The other end
 * keeps the highest number of each peer and rail as long as its instance lives. So a recorded request is never taken
 * again, also after its link has gone. The number is the second word of the request's nonce, and is sealed with it.
 *
 * A request that somebody held back may have a number that is new. So a request that would end a connection also has to
 * answer a challenge: a random word of this one connection, which the refusal of a request without it tells to the
 * peer. The answer is the first word of the nonce, which is random otherwise.
 *
 * Invariant: a number of a peer and rail is taken once, and in rising order. All of it runs under service.lock. It does
 * not check seals: hello.c does so before.
 */
#include "transports/rdma/requests.h"

#include <stdlib.h>

#include "base/proof.h"
#include "transports/rdma/hello.h"

enum { MARKS_FIRST = 16 };

/* Of a peer's rail. */
struct rdma_mark {
	struct coll_process_id peer;
	uint64_t highest; /* 0: the place is free */
	uint32_t rail;
};

void coll_rdma_requests_init(struct rdma_requests *r, uint64_t first)
{
	*r = (struct rdma_requests){.last = first};
}

void coll_rdma_requests_fini(struct rdma_requests *r)
{
	free(r->mark);
	*r = (struct rdma_requests){0};
}

/* Its place in a table of a power of two, or the free one where it belongs. */
static struct rdma_mark *place(struct rdma_mark *table, uint32_t cap, const struct coll_process_id *peer, uint32_t rail)
{
	uint64_t at = ((peer->word[0] ^ peer->word[1]) + rail) * 0x9e3779b97f4a7c15u >> 32;

	for (;; at++) {
		struct rdma_mark *m = &table[at & (cap - 1)];

		if (m->highest == 0 || (m->rail == rail && coll_same_process(&m->peer, peer)))
			return m;
	}
}

static bool grow(struct rdma_requests *r)
{
	const uint32_t cap = r->cap ? 2 * r->cap : MARKS_FIRST;
	struct rdma_mark *more;

	if (r->count < r->cap - r->cap / 4)
		return true;
	more = calloc(cap, sizeof(*more));
	if (!more)
		return false;
	for (uint32_t i = 0; i < r->cap; i++)
		if (r->mark[i].highest > 0)
			*place(more, cap, &r->mark[i].peer, r->mark[i].rail) = r->mark[i];
	free(r->mark);
	r->mark = more;
	r->cap = cap;
	return true;
}

static bool is_new(struct rdma_requests *r, const struct coll_process_id *peer, uint32_t rail, uint64_t number)
{
	struct rdma_mark *m;

	if (!grow(r))
		return false;
	m = place(r->mark, r->cap, peer, rail);
	if (number <= m->highest)
		return false;
	r->count += m->highest == 0;
	*m = (struct rdma_mark){*peer, number, rail};
	return true;
}

const char *coll_rdma_requests_read(struct rdma_inst *in, const void *data, size_t len_bytes, struct coll_rdma_hello *m)
{
	const char *wrong = coll_rdma_hello_check(data, len_bytes, in, COLL_RDMA_ASK, NULL, NULL, m);

	if (wrong)
		return wrong;
	return is_new(&in->requests, &m->from, m->rail, m->nonce[1]) ? NULL : "it has come before, or one behind it";
}

void coll_rdma_requests_nonce(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;

	coll_nonce(&in->nonces, l->nonce);
	if (l->challenged)
		l->nonce[0] = l->answer;
	l->challenged = false;
	l->nonce[1] = ++in->requests.last;
}

/* ---- the challenge ------------------------------------------------------------------ */

void coll_rdma_requests_draw(struct rdma_link *l)
{
	uint64_t word[2];

	coll_nonce(&l->inst->nonces, word);
	l->challenge = word[0];
}

bool coll_rdma_requests_proved(const struct rdma_link *l, struct rdma_cm_id *id, const struct coll_rdma_hello *m)
{
	const uint64_t nonce[2] = {l->challenge, m->nonce[1]};
	const struct rdma_inst *in = l->inst;
	struct coll_rdma_hello c;

	if (m->nonce[0] == l->challenge)
		return true;
	coll_rdma_hello_make(&c, in, COLL_RDMA_CHALLENGE, &m->from, nonce, m->nonce, l);
	rdma_log(in, COLL_LOG_DEBUG, "rdma: a request for a link that is up has to prove that it is of now");
	in->v.rdma_reject(id, &c, (uint8_t)coll_rdma_hello_bytes(&c));
	in->v.rdma_destroy_id(id);
	return false;
}

bool coll_rdma_requests_challenged(struct rdma_link *l, const void *data, size_t len_bytes)
{
	struct coll_rdma_hello m;

	if (coll_rdma_hello_check(data, len_bytes, l->inst, COLL_RDMA_CHALLENGE, &l->base.peer, l->nonce, &m))
		return false;
	l->answer = m.nonce[0];
	l->challenged = true;
	return true;
}
