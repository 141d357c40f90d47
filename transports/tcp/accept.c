/*
 * Accepting: the listener, and the handshakes of incoming connections. A foreign connection costs
 * some microseconds and a place among TCP_PENDING_MAX, and never reaches a link.
 * The number of accepts per call is bounded, each connection has a deadline, and the
 * oldest silent one is closed first when places or descriptors run out. Everything
 * runs under service.lock.
 */
#include "transports/tcp/accept.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/proof.h"
#include "tcp.h"
#include "transports/tcp/check.h"
#include "transports/tcp/connect.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/kept.h"
#include "transports/tcp/link.h"
#include "transports/tcp/rx.h"

void coll_tcp_accept_refuse(struct tcp_inst *in, struct tcp_handshake *h)
{
	coll_tcp_hang_up(h);
	in->pending_count--;
	atomic_fetch_add(&in->refused, 1);
}

/* The oldest that has not said anything, else the oldest. */
static struct tcp_handshake *least_promising(struct tcp_inst *in)
{
	struct tcp_handshake *worst = NULL;
	bool worst_spoke = false;

	for (int i = 0; i < TCP_PENDING_MAX; i++) {
		struct tcp_handshake *h = &in->pending[i];
		const bool spoke = h->got > 0 || h->stage != HANDSHAKE_HELLO;

		if (h->fd < 0)
			continue;
		if (worst == NULL || (worst_spoke && !spoke) ||
		    (spoke == worst_spoke && h->started_ns < worst->started_ns)) {
			worst = h;
			worst_spoke = spoke;
		}
	}
	return worst;
}

static struct tcp_handshake *free_place(struct tcp_inst *in)
{
	if (in->pending_count == TCP_PENDING_MAX)
		coll_tcp_accept_refuse(in, least_promising(in));
	for (int i = 0; i < TCP_PENDING_MAX; i++)
		if (in->pending[i].fd < 0)
			return &in->pending[i];
	return NULL;
}

/* The rail that goes on over a new socket, locked; NULL: it is not here, or this end knows a later socket. Of two
 * connections made at the same time that of the lower id stays. */
static struct tcp_link *welcome_back(struct tcp_inst *in, const struct coll_tcp_hello *h, unsigned rail)
{
	struct tcp_link *l = (struct tcp_link *)coll_link_table_find(&in->links, &h->from, rail);

	if (l == NULL)
		return NULL;
	pthread_mutex_lock(&l->base.lock);
	while (l->state == LINK_UP && coll_tcp_rx(l, 1 << 20) > 0)
		;
	if (l->state == LINK_UP && l->several && l->line == h->line && h->made >= l->made)
		coll_tcp_kept_strand(l, "the peer no longer reaches this host");
	if (l->state == LINK_CONNECTING && l->again && l->line == h->line &&
	    (l->attempt.fd < 0 || coll_process_lower(&h->from, &in->env.self))) {
		coll_tcp_hang_up(&l->attempt);
		return l;
	}
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->base.lock);
	return NULL;
}

/* The link or rail that takes a proven connection of the peer, both locks held; NULL:
 * busy. Of two connections made at the same time that of the lower id stays. */
static struct tcp_link *welcome(struct tcp_inst *in, const struct coll_tcp_hello *h)
{
	const struct coll_process_id *peer = &h->from;
	const unsigned rail = h->verdict % COLL_TCP_SEVERAL;
	struct tcp_link *l;

	if (coll_tcp_connect_closing(in, peer, rail))
		return NULL;
	if (h->line != 0)
		return welcome_back(in, h, rail);
	l = (struct tcp_link *)coll_link_table_find(&in->links, peer, rail);
	if (l != NULL) {
		pthread_mutex_lock(&l->base.lock);
		/* Perhaps the peer has closed this one and opens the next. */
		while (l->state == LINK_UP && coll_tcp_rx(l, 1 << 20) > 0)
			;
		/* The peer never knew the socket that is lost. */
		if (l->again && !l->heard)
			l->line = 0;
		if (l->state == LINK_CONNECTING && l->again == (l->line == 0 && l->made > 0) &&
		    (l->attempt.fd < 0 || coll_process_lower(peer, &in->env.self))) {
			coll_tcp_hang_up(&l->attempt);
			return l;
		}
		const bool over = l->state != LINK_UP && l->state != LINK_CONNECTING;

		coll_tcp_link_work(l);
		pthread_mutex_unlock(&l->base.lock);
		if (!over)
			return NULL;
	}
	l = (struct tcp_link *)coll_link_table_new(&in->links, peer, rail);
	if (l != NULL)
		pthread_mutex_lock(&l->base.lock);
	return l;
}

static void admit(struct tcp_inst *in, struct tcp_handshake *h)
{
	const struct coll_process_id peer = h->peer.from;
	const bool same_machine = h->peer.host == in->address.machine;
	const struct coll_tcp_key key = coll_tcp_hello_key(in->env.job_key, h->peer.nonce, h->nonce);
	struct coll_tcp_hello m;
	struct tcp_link *l;
	const int fd = h->fd;

	coll_tcp_hello_make(&m, in, COLL_TCP_VERDICT, &peer, h->nonce, h->peer.nonce);
	pthread_mutex_lock(&in->links.lock);
	l = welcome(in, &h->in);
	m.verdict = l != NULL ? COLL_TCP_ACCEPT : COLL_TCP_BUSY;
	if (l != NULL) {
		l->several |= h->in.verdict >= COLL_TCP_SEVERAL;
		l->made = 1 + (l->made > h->in.made ? l->made : h->in.made);
		m.made = l->made;
	}
	coll_tcp_hello_seal(&m, in->env.job_key, h->peer.nonce);
	if (!coll_tcp_say(in, fd, &m) || l == NULL) {
		/* A link left behind in LINK_CONNECTING goes on by its own means. */
		coll_tcp_hang_up(h);
	} else {
		epoll_ctl(in->service.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		h->fd = -1;
		coll_tcp_hang_up(h);
		l->check = coll_tcp_check_between(in, &h->in);
		coll_tcp_link_up(l, fd, key, same_machine);
	}
	in->pending_count--;
	if (l != NULL) {
		if (l->state == LINK_CONNECTING && l->base.opens == 0 && !l->again)
			coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "the peer left during the handshake");
		coll_tcp_link_work(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	pthread_mutex_unlock(&in->links.lock);
}

void coll_tcp_accept_read(struct tcp_inst *in, struct tcp_handshake *h)
{
	const int complete = coll_tcp_hear(in, h);
	const char *wrong;
	struct coll_tcp_hello m;

	if (complete < 0 || (h->got >= sizeof(h->in.magic) && h->in.magic != COLL_TCP_MAGIC)) {
		coll_tcp_accept_refuse(in, h);
		return;
	}
	if (complete == 0)
		return;
	if (h->stage == HANDSHAKE_HELLO) {
		wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_HELLO, NULL, coll_tcp_no_nonce);
		h->peer = h->in;
		coll_tcp_hello_make(&m, in, COLL_TCP_CHALLENGE, &h->peer.from, h->nonce, h->peer.nonce);
		h->stage = HANDSHAKE_PROOF;
		if (wrong == NULL && !coll_tcp_say(in, h->fd, &m))
			wrong = "it left";
	} else {
		wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_PROOF, &h->peer.from, h->nonce);
		if (wrong == NULL && memcmp(h->in.nonce, h->peer.nonce, 16) != 0)
			wrong = "its nonce has changed";
		if (wrong == NULL && h->in.verdict % COLL_TCP_SEVERAL >= TCP_RAILS_MAX)
			wrong = "no link has so many sockets";
		if (wrong == NULL) {
			admit(in, h);
			return;
		}
	}
	if (wrong != NULL) {
		tcp_log(in, COLL_LOG_DEBUG, "tcp: a connection was refused: %s", wrong);
		coll_tcp_accept_refuse(in, h);
	}
}

/* Out of descriptors: pending handshakes are closed first. Then the next connection is accepted with
 * the reserve descriptor and closed, and the listener is ignored until the next tick. */
static bool no_descriptors(struct tcp_inst *in, int listener)
{
	int fd;

	if (in->pending_count > 0) {
		coll_tcp_accept_refuse(in, least_promising(in));
		return true;
	}
	if (in->reserve_fd >= 0) {
		coll_fd_close(in->reserve_fd);
		fd = COLL_FD(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
		if (fd >= 0)
			coll_fd_close(fd);
		in->reserve_fd = COLL_FD(open("/dev/null", O_RDONLY | O_CLOEXEC));
	}
	tcp_log(in, COLL_LOG_WARN, "[COLL-6101] tcp: out of descriptors, a connection was refused");
	in->accept_off = coll_tcp_accept_watch(in, 0, EPOLL_CTL_MOD);
	return false;
}

static bool open_door(struct tcp_inst *in, int listener)
{
	const int fd = COLL_FD(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	struct tcp_handshake *h;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return no_descriptors(in, listener);
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR;
	h = free_place(in);
	h->fd = fd;
	h->stage = HANDSHAKE_HELLO;
	h->got = 0;
	h->started_ns = coll_clock_ns();
	h->deadline_ns = h->started_ns + COLL_DELAY_NS(TCP_HANDSHAKE);
	coll_nonce(&in->nonces, h->nonce);
	in->pending_count++;
	if (!coll_reactor_watch(&in->service, fd, EPOLLIN,
	                        tcp_tag(TAG_PENDING, h->generation, (uint32_t)(h - in->pending)), EPOLL_CTL_ADD))
		coll_tcp_accept_refuse(in, h);
	else
		coll_tcp_accept_read(in, h);
	return true;
}

/* Who comes after the close is refused at once: a closed link only ends, by a connection that it has already. */
static void shut(struct tcp_inst *in)
{
	for (int i = 0; i < in->listeners.count; i++) {
		epoll_ctl(in->service.epoll_fd, EPOLL_CTL_DEL, in->listeners.fd[i], NULL);
		shutdown(in->listeners.fd[i], SHUT_RDWR);
	}
	in->accept_off = false;
}

void coll_tcp_accept_new(struct tcp_inst *in, uint32_t listener)
{
	if (atomic_load(&in->closed)) {
		shut(in);
		return;
	}
	for (int i = 0; i < TCP_ACCEPTS_PER_CALL && listener < (uint32_t)in->listeners.count; i++)
		if (!open_door(in, in->listeners.fd[listener]))
			break;
}

bool coll_tcp_accept_watch(struct tcp_inst *in, uint32_t events, int how)
{
	bool watched = true;

	for (int i = 0; i < in->listeners.count; i++)
		watched = coll_reactor_watch(&in->service, in->listeners.fd[i], events,
		                             tcp_tag(TAG_LISTEN, 0, (uint32_t)i), how) &&
		          watched;
	return watched;
}
