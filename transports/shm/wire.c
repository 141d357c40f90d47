/*
 * shm: messages on the Unix socket. They have one size and one header, so
 * that foreign bytes are recognised by length, magic and version before
 * anything else is read; descriptors are accepted only where one is expected.
 *
 * The handshake is mutual: each side proves the job's key over both nonces, both
 * identities and its role, so that no proof can be played back or reflected.
 */
#include "transports/shm/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/proof.h"
#include "transports/shm/link.h"
#include "transports/shm/shm.h"

enum { MESSAGE_MAGIC = 0x6d68736c, MESSAGE_VERSION = 3 };

struct shm_message coll_shm_message(enum shm_message_type type)
{
	struct shm_message m;

	memset(&m, 0, sizeof(m));
	m.magic = MESSAGE_MAGIC;
	m.version = MESSAGE_VERSION;
	m.type = (uint16_t)type;
	return m;
}

struct coll_proof coll_shm_proof(const struct shm_inst *in, char who, const struct coll_process_id *connecting,
                                 const struct coll_process_id *accepting, const uint64_t nonce[2][2])
{
	const uint64_t role = (uint64_t)who;

	return COLL_PROOF(in->env.job_key, COLL_SAID(role), COLL_SAID(*connecting), COLL_SAID(*accepting),
	                  {nonce, 2 * sizeof(*nonce)});
}

int coll_shm_transmit(int fd, const struct shm_message *m, const int fds[2])
{
	const int count = (fds[0] >= 0) + (fds[0] >= 0 && fds[1] >= 0);
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct iovec iov = {(void *)m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (count) {
		struct cmsghdr *c;

		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
	}
	do
		n = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n == (ssize_t)sizeof(*m))
		return 1;
	/* ETOOMANYREFS: too many descriptors of this user are in flight; they will land. */
	return n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) ? 0 : -1;
}

static void take_fds(struct msghdr *msg, int fds[2])
{
	int got = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (got < 2)
				fds[got++] = COLL_FD(fd);
			else
				coll_fd_close(fd);
		}
	}
}

static bool well_formed(const struct shm_message *m, ssize_t n)
{
	return n == (ssize_t)sizeof(*m) && m->magic == MESSAGE_MAGIC && m->version == MESSAGE_VERSION;
}

int coll_shm_receive(int fd, struct shm_message *m, int fds[2], bool accept_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec iov = {m, sizeof(*m)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	bool lacking;
	ssize_t n;

	fds[0] = fds[1] = -1;
	if (accept_fds) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
	}
	/* A reset is reported ahead of messages that came before it: ask again. */
	do
		n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n < 0 && coll_errno_is_shortage(errno)) {
		coll_errno_keep("recvmsg");
		return -2;
	}
	if (n < 0)
		return errno == EAGAIN ? 0 : -1;
	if (accept_fds)
		take_fds(&msg, fds);
	if (well_formed(m, n) && !(msg.msg_flags & MSG_TRUNC) && !(accept_fds && (msg.msg_flags & MSG_CTRUNC)))
		return 1;
	/* No message has more than two. */
	lacking = well_formed(m, n) && accept_fds && (msg.msg_flags & MSG_CTRUNC) && fds[1] < 0;
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			coll_fd_close(fds[i]);
		fds[i] = -1;
	}
	if (!lacking)
		return -1;
	errno = EMFILE;
	coll_errno_keep("recvmsg");
	return -2;
}

/* ---- The queue of a link ------------------------------------------------------ */

static void outgoing_free(struct shm_outgoing *o)
{
	if (o->own_fd)
		coll_fd_close(o->fds[0]);
	free(o);
}

void coll_shm_drop_queue(struct shm_link *l)
{
	while (l->out) {
		struct shm_outgoing *o = l->out;

		l->out = o->next;
		outgoing_free(o);
	}
	l->out_tail = &l->out;
}

void coll_shm_flush(struct shm_link *l)
{
	while (l->out && l->conn && l->conn->state == SHM_JOINED) {
		struct shm_outgoing *o = l->out;
		const int sent = coll_shm_transmit(l->conn->source.fd, &o->message, o->fds);

		if (sent == 0) {
			coll_shm_timer(l->inst, COLL_DELAY_SHM_TICK_MS);
			return;
		}
		/* A broken socket also becomes readable, and is dealt with there. */
		l->out = o->next;
		if (!l->out)
			l->out_tail = &l->out;
		outgoing_free(o);
	}
}

coll_status coll_shm_enqueue(struct shm_link *l, const struct shm_message *m, int fd, bool own_fd)
{
	struct shm_outgoing *o = calloc(1, sizeof(*o));

	if (!o)
		return COLL_ERR_MEMORY;
	o->message = *m;
	o->fds[0] = fd;
	o->fds[1] = -1;
	o->own_fd = own_fd && fd >= 0;
	*l->out_tail = o;
	l->out_tail = &o->next;
	coll_shm_flush(l);
	return COLL_OK;
}
