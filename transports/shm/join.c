/*
 * shm: the handshake, and what is said on a link afterwards. Each handler takes one
 * message and returns whether the connection may go on.
 *
 *   connecting   HELLO ->            AUTH (proof, page, wake) ->
 *   accepting          <- CHALLENGE (proof)                  <- READY (page, wake)
 *
 * Runs under inst->lock.
 */
#include "transports/shm/join.h"
#include "base/proof.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "transports/shm/channel.h"
#include "transports/shm/cma.h"
#include "transports/shm/link.h"
#include "transports/shm/offer.h"
#include "transports/shm/region.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

enum { PAGE_BYTES = 4096 };

/* ---- Joining --------------------------------------------------------------------- */

static struct shm_message introduction(struct shm_inst *in, enum shm_message_type type, struct coll_proof proof)
{
	struct shm_message m = coll_shm_message(type);

	m.intro = (struct shm_introduction){.proof = proof,
	                                    .probe_address = (uint64_t)(uintptr_t)&in->probe,
	                                    .probe_value = in->probe,
	                                    .pid = (uint32_t)getpid(),
	                                    .barrier = in->barrier};
	return m;
}

static bool introduce(struct shm_conn *c, struct shm_inst *in, enum shm_message_type type, struct coll_proof proof)
{
	const struct shm_message m = introduction(in, type, proof);
	const int fds[2] = {in->page_fd, in->env.wake_fd};

	return coll_shm_transmit(c->source.fd, &m, fds) == 1;
}

static uint32_t process_behind(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.pid > 0 ? (uint32_t)cred.pid : 0;
}

/* The peer has proved itself: take what it brought. Consumes fds if it succeeds. */
static bool join(struct shm_link *l, struct shm_conn *c, const struct shm_introduction *intro, const int fds[2])
{
	struct shm_inst *in = l->inst;
	const char *page;

	coll_errno_clear();
	page = fds[0] >= 0 ? coll_shm_map(fds[0], PAGE_BYTES, false) : NULL;
	if (!page && coll_errno_status(COLL_OK) != COLL_OK)
		coll_shm_link_break(l, COLL_ERR_SYSTEM, coll_shm_lack(in, "what it sent cannot be taken"));
	if (!page)
		return false;
	coll_fd_close(fds[0]);
	l->peer_wake_fd = fds[1];
	l->reported_pid = intro->pid;
	l->probe_address = intro->probe_address;
	l->probe_value = intro->probe_value;
	l->peer_pid = process_behind(c->source.fd);
	atomic_store(&l->fenced, !in->barrier || !intro->barrier);
	atomic_store(&l->peer_page, (const struct shm_page *)(const void *)page);
	coll_shm_unwatch_process(l); /* the socket tells its end */
	in->strangers--;
	c->state = SHM_JOINED;
	c->link = l;
	l->conn = c;
	atomic_store(&l->status, COLL_OK);
	in->changed = true;
	return true;
}

/* Joined and told so: queued messages may go. Ahead of them, and so of every grant, the
 * peer learns whether it may lend us memory. */
static void after_join(struct shm_link *l, const struct shm_introduction *intro)
{
	const struct shm_message pulls = coll_shm_message(SHM_PULLS);
	const int none[2] = {-1, -1};

	atomic_store(&l->we_pull, coll_shm_probe(l->peer_pid, intro->probe_address, intro->probe_value));
	if (atomic_load(&l->we_pull))
		coll_shm_transmit(l->conn->source.fd, &pulls, none);
	else
		l->inst->env.log(l->inst->env.ctx, 2, "shm: the memory of process %u cannot be read directly",
		                 l->reported_pid);
	coll_shm_flush(l);
}

/* ---- The handshake: each handler returns false to end the connection ------------------ */

static bool on_hello(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m)
{
	struct shm_message reply = coll_shm_message(SHM_CHALLENGE);
	const int none[2] = {-1, -1};

	if (m->type != SHM_HELLO || !coll_same_process(&m->hello.peer, &in->env.self))
		return false;
	coll_nonce(&in->nonces, c->nonce[1]);
	c->peer = m->hello.self;
	memcpy(c->nonce[0], m->hello.nonce, sizeof(c->nonce[0]));
	reply.hello.self = in->env.self;
	reply.hello.peer = c->peer;
	memcpy(reply.hello.nonce, c->nonce[1], sizeof(c->nonce[1]));
	reply.hello.proof = coll_shm_proof(in, 'a', &c->peer, &in->env.self, c->nonce);
	c->state = SHM_WAIT_AUTH;
	return coll_shm_transmit(c->source.fd, &reply, none) == 1;
}

static bool on_challenge(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m)
{
	struct coll_proof want;

	memcpy(c->nonce[1], m->hello.nonce, sizeof(c->nonce[1]));
	want = coll_shm_proof(in, 'a', &in->env.self, &c->peer, c->nonce);
	if (m->type != SHM_CHALLENGE || !coll_same_process(&m->hello.self, &c->peer) ||
	    !coll_proof_same(&m->hello.proof, &want))
		return false;
	c->state = SHM_WAIT_READY;
	return introduce(c, in, SHM_AUTH, coll_shm_proof(in, 'c', &in->env.self, &c->peer, c->nonce));
}

static bool on_auth(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m, const int fds[2])
{
	const struct coll_proof want = coll_shm_proof(in, 'c', &c->peer, &in->env.self, c->nonce);
	struct shm_link *l;

	if (m->type != SHM_AUTH || !coll_proof_same(&m->intro.proof, &want))
		return false;
	l = coll_shm_link_find(in, &c->peer);
	if (!l)
		l = coll_shm_link_new(in, &c->peer);
	if (!l || l->conn || coll_shm_link_state(l) != COLL_AGAIN || !join(l, c, &m->intro, fds))
		return false;
	/* READY goes first: the queue is flushed behind it. */
	if (!introduce(c, in, SHM_READY, (struct coll_proof){{0}}))
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, "its socket closed during the handshake");
	else
		after_join(l, &m->intro);
	return true;
}

static bool on_ready(struct shm_conn *c, const struct shm_message *m, const int fds[2])
{
	struct shm_link *l = c->link;

	if (m->type != SHM_READY || !l || !join(l, c, &m->intro, fds))
		return false;
	after_join(l, &m->intro);
	return true;
}

static void on_joined(struct shm_link *l, const struct shm_message *m, const int fds[2])
{
	coll_status status = COLL_OK;

	coll_errno_clear();
	switch (m->type) {
	case SHM_PULLS: atomic_store(&l->they_pull, true); break;
	case SHM_GRANT: status = coll_shm_on_grant(l, &m->grant, fds[0]); break;
	case SHM_REGION: status = coll_shm_on_region(l, &m->region, fds[0]); break;
	case SHM_UNREGION: coll_shm_on_unregion(l, &m->region); break;
	case SHM_OFFER: status = coll_shm_on_offer(l, &m->offer, fds[0]); break;
	case SHM_UNOFFER: coll_shm_on_unoffer(l, &m->offer); break;
	case SHM_HAND: status = coll_shm_on_hand(l, &m->offer, fds[0]); break;
	case SHM_CLOSE: coll_shm_on_close(l, m->ring); break;
	case SHM_WITHDRAW: coll_shm_on_withdraw(l, m->ring); break;
	case SHM_BYE: l->bye = true; break;
	default: status = COLL_ERR_CORRUPT; break;
	}
	if (status == COLL_ERR_MEMORY || status == COLL_ERR_SYSTEM)
		coll_shm_link_break(l, status, coll_shm_lack(l->inst, "what it sent cannot be taken"));
	else if (status != COLL_OK)
		coll_shm_link_break(l, status, "an invalid message on the socket");
}

static void close_fds(const int fds[2])
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			coll_fd_close(fds[i]);
	}
}

/* True: go on reading. */
bool coll_shm_on_message(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m, const int fds[2])
{
	bool good = false;

	switch (c->state) {
	case SHM_WAIT_HELLO: good = on_hello(in, c, m); break;
	case SHM_SENT_HELLO: good = on_challenge(in, c, m); break;
	case SHM_WAIT_AUTH:
		good = on_auth(in, c, m, fds);
		if (good)
			return c->state == SHM_JOINED;
		break;
	case SHM_WAIT_READY:
		good = on_ready(c, m, fds);
		if (good)
			return true;
		break;
	case SHM_JOINED:
		on_joined(c->link, m, fds);
		good = c->state == SHM_JOINED;
		break;
	case SHM_DEAD: break;
	}
	close_fds(fds);
	return good;
}
