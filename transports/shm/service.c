/*
 * shm: what the service thread does, or progress() where there is none: accepting,
 * connecting, reading sockets, noticing deaths.
 *
 * A peer's death shows as the end of its socket, of which a forked child closes its copy (base/fork.h). Until there is
 * a connection it shows as the end of the process itself (pidfd). Foreign connections cost one descriptor each for
 * at most two seconds, and belong to the same user.
 *
 * Invariant: handlers run under inst->lock and only mark connections dead; they are
 * freed at the end of a step. link_down is called without the lock.
 */
#include "transports/shm/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/own_user.h"
#include "base/proof.h"
#include "transports/shm/join.h"
#include "transports/shm/link.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

enum { EVENTS = 32, MESSAGES = 64, ACCEPTS = 32 };

/* ---- Reading ----------------------------------------------------------------------- */

static void conn_lost(struct shm_inst *in, struct shm_conn *c)
{
	struct shm_link *l = c->link;

	if (c->state == SHM_JOINED && l)
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, l->bye ? "it closed the link" : "its socket closed");
	coll_shm_conn_end(in, c);
}

/* Attempts are made fifty times a second; it is said once a second. */
static bool worth_a_line(struct shm_inst *in)
{
	const uint64_t now = coll_clock_ns();

	if (in->scarce_ns && now < in->scarce_ns + COLL_DELAY_NS(SHM_SCARCE_LINE))
		return false;
	in->scarce_ns = now;
	return true;
}

/* One whose peer connects may have its descriptor already, and be in the handshake. */
static bool shakes_hands(const struct shm_link *l)
{
	for (const struct shm_conn *c = l->inst->conns; c; c = c->next)
		if (c->state == SHM_WAIT_HELLO || (c->state == SHM_WAIT_AUTH && coll_same_process(&c->peer, &l->peer)))
			return true;
	return false;
}

static uint64_t patience_ns(const struct shm_link *l)
{
	return (COLL_DELAY_SHM_NO_DESCRIPTOR_MS + (shakes_hands(l) ? COLL_DELAY_SHM_HANDSHAKE_MS : 0)) * COLL_NS_PER_MS;
}

/* At the limit of this process. For a moment it may be; then it is what links fail of that have no connection. How
 * often this is called says nothing: the process may be one of many. */
static void no_descriptor(struct shm_inst *in)
{
	const uint64_t now = coll_clock_ns();
	const char *cause = NULL;

	for (struct shm_link *l = in->links; l; l = l->next) {
		if (!l->opened || l->conn || coll_shm_link_state(l) != COLL_AGAIN)
			continue;
		if (l->short_ns <= in->had_ns)
			l->short_ns = now;
		if (now < l->short_ns + patience_ns(l))
			continue;
		cause = cause ? cause : coll_shm_lack(in, "no descriptor is left to connect with");
		coll_shm_link_break(l, COLL_ERR_SYSTEM, cause);
	}
}

/* A peer has connected, and what it sent to join could not be taken. It tries again, and each attempt begins well. */
static void not_taken_in(struct shm_inst *in, const struct coll_process_id *peer)
{
	struct shm_link *l = coll_shm_link_find(in, peer);
	const uint64_t now = coll_clock_ns();

	if (!l || !l->opened || l->conn)
		return;
	if (!l->untaken_ns)
		l->untaken_ns = now;
	else if (now >= l->untaken_ns + COLL_DELAY_NS(SHM_NO_DESCRIPTOR))
		coll_shm_link_break(l, COLL_ERR_SYSTEM, coll_shm_lack(in, "what it sent cannot be taken"));
}

/* The message is lost with what it brought. The peer has joined, or will, and would wait for ever: where there is a
 * link it ends, with the cause; an attempt of the peer's is made again for a while. */
static void cut_short(struct shm_inst *in, struct shm_conn *c)
{
	const struct coll_process_id peer = c->peer;
	struct shm_link *l = c->link;

	if (worth_a_line(in))
		in->env.log(in->env.ctx, 1, "[COLL-6207] shm: no descriptor is left for what a peer sent");
	if (l)
		coll_shm_link_break(l, COLL_ERR_SYSTEM, coll_shm_lack(in, "what it sent cannot be taken"));
	coll_shm_conn_end(in, c);
	if (!l)
		not_taken_in(in, &peer);
}

static void on_conn(struct shm_inst *in, struct shm_conn *c)
{
	for (int i = 0; i < MESSAGES && c->state != SHM_DEAD; i++) {
		struct shm_message m;
		int fds[2];
		const int got = coll_shm_receive(c->source.fd, &m, fds,
		                                 c->state != SHM_WAIT_HELLO && c->state != SHM_SENT_HELLO);

		if (got == 0)
			break;
		if (got == -2) {
			cut_short(in, c);
			return;
		}
		if (got < 0 || !coll_shm_on_message(in, c, &m, fds)) {
			conn_lost(in, c);
			return;
		}
	}
	if (c->state == SHM_JOINED)
		coll_shm_flush(c->link);
}

/* ---- Connections ------------------------------------------------------------------- */

static struct shm_conn *conn_new(struct shm_inst *in, int fd, enum shm_conn_state state)
{
	struct shm_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->source = (struct shm_source){SHM_CONN, fd};
	c->state = state;
	c->since_ns = coll_clock_ns();
	if (!coll_shm_watch(in, &c->source, EPOLLIN | EPOLLRDHUP)) {
		free(c);
		return NULL;
	}
	c->next = in->conns;
	in->conns = c;
	in->strangers++;
	return c;
}

/* One without a number here may be the same, and proves itself as all do. */
static bool same_user(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && coll_user_of(cred.uid) != COLL_USER_OTHER;
}

/* Not an attempt of ours whose proof is sent: its peer, however busy, may join on it at any moment, and would
 * find the link lost. It answers or closes, or ends. */
static bool may_give_up(const struct shm_conn *c)
{
	return c->state != SHM_JOINED && c->state != SHM_DEAD && c->state != SHM_WAIT_READY;
}

/* Peers to which a link is being made are expected: with many ranks all may come before one has proved itself. */
static bool crowded(const struct shm_inst *in)
{
	uint32_t most = SHM_CONNS_MAX;

	if (in->strangers < most)
		return false;
	for (const struct shm_link *l = in->links; l; l = l->next)
		most += l->opened && coll_shm_link_state(l) == COLL_AGAIN;
	return in->strangers >= most;
}

/* Make room for one more: close the oldest connection without a proof. Our own attempts are retried anyway. */
static void evict(struct shm_inst *in)
{
	struct shm_conn *oldest = NULL;

	for (struct shm_conn *c = in->conns; c; c = c->next) {
		if (may_give_up(c) && (!oldest || c->since_ns < oldest->since_ns))
			oldest = c;
	}
	if (oldest)
		conn_lost(in, oldest);
}

/* Pending connections stay in the backlog of the system, which would wake this thread again and again. */
static void listen_for(struct shm_inst *in, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = &in->listener};

	in->deaf = epoll_ctl(in->epoll_fd, EPOLL_CTL_MOD, in->listener.fd, &e) == 0 && events == 0;
}

static void on_listener(struct shm_inst *in)
{
	for (int i = 0; i < ACCEPTS; i++) {
		const int fd = COLL_FD(accept4(in->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			const bool ours = errno == EMFILE;

			if (worth_a_line(in))
				in->env.log(in->env.ctx, 1,
				            "[COLL-6205] shm: peers cannot connect: too many open files; trying again");
			listen_for(in, 0);
			if (ours)
				no_descriptor(in);
		}
		if (fd < 0)
			break;
		in->had_ns = coll_clock_ns();
		if (crowded(in))
			evict(in);
		if (atomic_load(&in->closed) || !same_user(fd) || !conn_new(in, fd, SHM_WAIT_HELLO))
			coll_fd_close(fd);
	}
	coll_shm_timer(in, COLL_DELAY_SHM_TICK_MS);
}

static void say_hello(struct shm_link *l, int fd)
{
	struct shm_inst *in = l->inst;
	struct shm_conn *c = conn_new(in, fd, SHM_SENT_HELLO);
	struct shm_message m = coll_shm_message(SHM_HELLO);
	const int none[2] = {-1, -1};

	if (!c) {
		coll_fd_close(fd);
		return;
	}
	c->link = l;
	c->peer = l->peer;
	l->conn = c;
	m.hello.self = in->env.self;
	m.hello.peer = l->peer;
	coll_nonce(&in->nonces, c->nonce[0]);
	memcpy(m.hello.nonce, c->nonce[0], sizeof(c->nonce[0]));
	if (coll_shm_transmit(fd, &m, none) != 1)
		conn_lost(in, c);
}

static void try_connect(struct shm_link *l)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES;
	const int fd = COLL_FD(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	bool connected;

	l->since_ns = coll_clock_ns();
	if (fd < 0) {
		const int error = errno;

		if (worth_a_line(l->inst))
			l->inst->env.log(l->inst->env.ctx, 1,
			                 "[COLL-6205] shm: no socket to connect with: %s; trying again",
			                 coll_errno_text(error).text);
		if (error == EMFILE)
			no_descriptor(l->inst);
		return;
	}
	l->inst->had_ns = coll_clock_ns();
	memcpy(at.sun_path + 1, l->address.name, SHM_NAME_BYTES);
	connected = connect(fd, (struct sockaddr *)&at, len) == 0;
	if (connected && same_user(fd)) {
		say_hello(l, fd);
		return;
	}
	if (connected)
		coll_shm_link_break(l, COLL_ERR_SYSTEM, "a process of another user listens at its socket");
	else if (errno == ECONNREFUSED || errno == ENOENT)
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, "its listening socket is gone");
	coll_fd_close(fd);
}

/* Connects what waits for it, ends what has taken too long. */
static void on_timer(struct shm_inst *in)
{
	const uint64_t now = coll_clock_ns();
	uint64_t ticks;

	in->timer_set = false;
	if (in->deaf)
		listen_for(in, EPOLLIN);
	if (read(in->timer.fd, &ticks, sizeof(ticks)) < 0) {
		/* Rearmed meanwhile. */
	}
	for (struct shm_conn *c = in->conns; c; c = c->next) {
		if (may_give_up(c) && now > c->since_ns + COLL_DELAY_NS(SHM_HANDSHAKE))
			conn_lost(in, c);
	}
	for (struct shm_link *l = in->links; l; l = l->next) {
		if (l->opened && coll_shm_link_state(l) == COLL_AGAIN && !l->conn && coll_shm_we_connect(l) &&
		    now >= l->since_ns + COLL_DELAY_NS(SHM_TICK))
			try_connect(l);
	}
}

static bool unfinished(const struct shm_inst *in)
{
	if (in->strangers || in->deaf)
		return true;
	for (const struct shm_link *l = in->links; l; l = l->next) {
		if (l->opened && coll_shm_link_state(l) == COLL_AGAIN && coll_shm_we_connect(l))
			return true;
		if (l->out && l->conn && l->conn->state == SHM_JOINED)
			return true;
	}
	return false;
}

static void flush_all(struct shm_inst *in)
{
	for (struct shm_link *l = in->links; l; l = l->next)
		coll_shm_flush(l);
}

static void on_process_end(struct shm_inst *in, struct shm_link *l)
{
	/* Its last words first: it may have closed in order. */
	if (l->conn)
		on_conn(in, l->conn);
	coll_shm_link_break(l, COLL_ERR_PEER_DEAD, "the process ended");
}

/* ---- The service thread -------------------------------------------------------------- */

/* But those that this process itself could not keep: who opens the link is told why. */
static void drop_dead_parked(struct shm_inst *in)
{
	struct shm_link **at = &in->links;

	while (*at) {
		struct shm_link *l = *at;

		if (l->opened || coll_shm_link_state(l) <= COLL_AGAIN || coll_shm_parked_lacks(l)) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		coll_shm_link_free(l);
	}
}

static void dispatch(struct shm_inst *in, struct shm_source *source)
{
	switch (source->kind) {
	case SHM_LISTENER: on_listener(in); break;
	case SHM_TIMER:
		on_timer(in);
		flush_all(in);
		break;
	case SHM_CONN: on_conn(in, (struct shm_conn *)(void *)source); break;
	case SHM_PID:
		on_process_end(in, (struct shm_link *)(void *)((char *)source - offsetof(struct shm_link, pid)));
		break;
	}
}

static struct shm_link *next_untold(struct shm_inst *in)
{
	for (struct shm_link *l = in->untold ? in->links : NULL; l; l = l->next) {
		if (l->untold) {
			l->untold = false;
			in->untold--;
			return l;
		}
	}
	return NULL;
}

void coll_shm_service_step(struct shm_inst *in, bool wait)
{
	struct epoll_event events[EVENTS];
	struct shm_link *l;
	int n;

	if (wait)
		pthread_mutex_lock(&in->lock);
	else if (pthread_mutex_trylock(&in->lock) != 0)
		return;
	/* Under the lock, so that no source is freed between its event and here. */
	n = epoll_wait(in->epoll_fd, events, EVENTS, 0);
	for (int i = 0; i < n; i++)
		dispatch(in, events[i].data.ptr);
	coll_shm_sweep(in);
	drop_dead_parked(in);
	if (n > 0 && unfinished(in))
		coll_shm_timer(in, COLL_DELAY_SHM_TICK_MS);
	if (in->changed)
		coll_shm_wake_self(in);
	in->changed = false;
	while ((l = next_untold(in))) {
		const struct coll_process_id peer = l->peer;
		const coll_status why = coll_shm_link_state(l);
		const char *cause = l->cause;

		pthread_mutex_unlock(&in->lock);
		in->env.link_down(in->env.ctx, &peer, why, cause);
		pthread_mutex_lock(&in->lock);
	}
	pthread_mutex_unlock(&in->lock);
}

void coll_shm_service(void *inst)
{
	struct shm_inst *in = inst;

	atomic_store(&in->serviced, true);
	coll_shm_service_step(in, true);
}
