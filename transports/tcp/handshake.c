/*
 * Handshake messages: made, checked, sent and received here; accept.c and connect.c decide
 * what follows. Both sides
 * prove that they have the job's key by a keyed hash over the message and the
 * other side's fresh nonce, so a recorded handshake cannot be replayed. This keeps
 * other programs and other jobs out, and tells them nothing; it does not encrypt the
 * frames that follow.
 */
#include "transports/tcp/handshake.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "base/proof.h"
#include "base/siphash.h"
#include "tcp.h"

static struct coll_proof seal(const struct coll_tcp_hello *m, const uint64_t key[2], const uint64_t other[2])
{
	struct coll_tcp_hello said = *m;

	said.proof = (struct coll_proof){{0}};
	return COLL_PROOF(key, COLL_SAID(said), {other, 2 * sizeof(*other)});
}

void coll_tcp_hello_seal(struct coll_tcp_hello *m, const uint64_t key[2], const uint64_t other[2])
{
	m->proof = seal(m, key, other);
}

void coll_tcp_hello_make(struct coll_tcp_hello *m, const struct tcp_inst *in, enum coll_tcp_hello_type type,
                         const struct coll_process_id *to, const uint64_t nonce[2], const uint64_t other[2])
{
	*m = (struct coll_tcp_hello){
	        .magic = COLL_TCP_MAGIC,
	        .version = COLL_TCP_VERSION,
	        .type = (uint8_t)type,
	        .from = in->env.self,
	        .to = *to,
	        .nonce = {nonce[0], nonce[1]},
	        .host = in->address.machine,
	        .place = in->place,
	};
	coll_tcp_hello_seal(m, in->env.job_key, other);
}

const char *coll_tcp_hello_check(const struct coll_tcp_hello *m, const struct tcp_inst *in,
                                 enum coll_tcp_hello_type type, const struct coll_process_id *from,
                                 const uint64_t other[2])
{
	const struct coll_proof want = seal(m, in->env.job_key, other);

	if (m->magic != COLL_TCP_MAGIC)
		return "it does not use this protocol";
	if (m->version != COLL_TCP_VERSION)
		return "it uses another version of the protocol";
	if (m->type != type)
		return "its messages are out of order";
	if (!coll_proof_same(&m->proof, &want))
		return "it does not have the key of this job";
	if (!coll_same_process(&m->to, &in->env.self))
		return "it expects another process";
	if (from != NULL && !coll_same_process(&m->from, from))
		return "it is another process";
	return NULL;
}

struct coll_tcp_key coll_tcp_hello_key(const uint64_t key[2], const uint64_t client[2], const uint64_t server[2])
{
	const uint64_t as = 0x79656b6b6e696c; /* "linkkey": no message of the handshake is so short */
	const struct coll_proof p =
	        COLL_PROOF(key, {client, 2 * sizeof(*client)}, {server, 2 * sizeof(*server)}, COLL_SAID(as));

	return (struct coll_tcp_key){{p.word[0], p.word[1]}};
}

uint64_t coll_tcp_hello_line(const struct coll_tcp_key *key)
{
	return coll_siphash24(key->word, "line", 4) | 1;
}

/* The nonce is drawn for one connection, and its speaker says each type of message once. */
void coll_tcp_hello_mask(struct coll_tcp_hello *m, const uint64_t key[2])
{
	const size_t begin = offsetof(struct coll_tcp_hello, from), end = offsetof(struct coll_tcp_hello, proof);
	unsigned char *bytes = (unsigned char *)m;

	for (uint64_t i = 0; begin + 16 * i < end; i++) {
		const uint64_t as[2] = {0x6b73616d, (uint64_t)m->type << 32 | i};
		const struct coll_proof pad = COLL_PROOF(key, COLL_SAID(as), COLL_SAID(m->nonce));

		for (size_t k = 0; k < sizeof(pad) && begin + 16 * i + k < end; k++)
			bytes[begin + 16 * i + k] ^= ((const unsigned char *)&pad)[k];
	}
}

/* ---- carried by a socket --------------------------------------------- */

const uint64_t coll_tcp_no_nonce[2];

bool coll_tcp_say(const struct tcp_inst *in, int fd, const struct coll_tcp_hello *m)
{
	struct coll_tcp_hello out = *m;

	coll_tcp_hello_mask(&out, in->env.job_key);
	return send(fd, &out, sizeof(out), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(out);
}

/* More of a message; 1: complete, 0: not yet, -1: the other side is gone. */
int coll_tcp_hear(const struct tcp_inst *in, struct tcp_handshake *h)
{
	const ssize_t n = recv(h->fd, (char *)&h->in + h->got, sizeof(h->in) - h->got, MSG_DONTWAIT);

	/* A shortage here passes, and what was sent is there still: closed, the other side would take an accepted
	 * connection for one whose peer has ended. */
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || coll_errno_is_shortage(errno)))
		return 0;
	if (n <= 0)
		return -1;
	h->got += (size_t)n;
	if (h->got < sizeof(h->in))
		return 0;
	h->got = 0;
	coll_tcp_hello_mask(&h->in, in->env.job_key);
	return 1;
}

void coll_tcp_hang_up(struct tcp_handshake *h)
{
	if (h->fd >= 0)
		coll_fd_close(h->fd);
	h->fd = -1;
	h->generation++;
	h->stage = HANDSHAKE_IDLE;
	h->got = 0;
}
