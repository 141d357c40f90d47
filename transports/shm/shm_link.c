/*
 * shm: links, and what the service thread does for them.
 *
 * The process with the lower id connects to the other's listening socket; so two
 * simultaneous opens are one connection. An accepted connection that has proved the
 * job's key is parked until our side opens the link. A peer's death shows as the end
 * of its socket or, if a child of it holds a copy of that, as the end of the process
 * itself (pidfd). Strangers cost one descriptor each for at most two seconds.
 *
 * Invariant: every function here but the table's own entries runs under inst->lock;
 * connections are only marked dead by their handlers and freed at the end of a step;
 * link_down is called without the lock.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "transports/shm/shm.h"

enum { EVENTS = 32, MESSAGES = 64, ACCEPTS = 32, PAGE_BYTES = 4096 };

/* An earlier appointment stands, or a flood of events would put it off for ever. */
void coll_shm_timer(struct shm_inst *in, long ms)
{
	const struct itimerspec t = {.it_value = {ms / 1000, ms % 1000 * 1000000 + 1}};

	if (ms > 0 && in->timer_set)
		return;
	in->timer_set = true;
	timerfd_settime(in->timer.fd, 0, &t, NULL);
}

static bool watch(struct shm_inst *in, struct shm_source *source, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.ptr = source};

	return epoll_ctl(in->epoll_fd, EPOLL_CTL_ADD, source->fd, &e) == 0;
}

static bool we_connect(const struct shm_link *l)
{
	const struct coll_process_id *a = &l->inst->env.self, *b = &l->peer;

	return a->word[0] != b->word[0] ? a->word[0] < b->word[0] : a->word[1] < b->word[1];
}

static coll_status status_of(const struct shm_link *l)
{
	return (coll_status)atomic_load(&l->status);
}

/* ---- Breaking and freeing ------------------------------------------------------ */

static void conn_end(struct shm_inst *in, struct shm_conn *c)
{
	if (c->state == SHM_DEAD)
		return;
	if (c->state != SHM_JOINED)
		in->strangers--;
	if (c->link) {
		c->link->conn = NULL;
		c->link->since_ns = coll_clock_ns();
	}
	c->link = NULL;
	c->state = SHM_DEAD;
	close(c->source.fd);
	c->source.fd = -1;
}

void coll_shm_link_break(struct shm_link *l, coll_status why, const char *cause)
{
	struct shm_inst *in = l->inst;

	if (status_of(l) > COLL_AGAIN)
		return;
	atomic_store(&l->status, (int)why);
	l->cause = cause;
	in->changed = true;
	if (l->opened && !l->bye) {
		l->untold = true;
		in->untold++;
		coll_shm_timer(in, 0); /* whoever steps next tells it */
	}
	if (l->conn)
		conn_end(in, l->conn);
	if (l->pid.fd >= 0)
		epoll_ctl(in->epoll_fd, EPOLL_CTL_DEL, l->pid.fd, NULL);
	coll_shm_drop_queue(l);
}

/* Out of the list already. */
void coll_shm_link_free(struct shm_link *l)
{
	const struct shm_page *page = atomic_load(&l->peer_page);

	assert(!l->channels);
	coll_shm_drop_queue(l);
	coll_shm_segments_free(&l->own);
	coll_shm_segments_free(&l->theirs);
	while (l->rings) {
		struct shm_ring *r = l->rings;

		l->rings = r->next;
		free(r);
	}
	while (l->grants) {
		struct shm_pending_grant *g = l->grants;

		l->grants = g->next;
		free(g);
	}
	if (page)
		munmap((void *)(uintptr_t)page, PAGE_BYTES);
	if (l->peer_wake_fd >= 0)
		close(l->peer_wake_fd);
	if (l->pid.fd >= 0)
		close(l->pid.fd);
	free(l);
}

static void unlist(struct shm_link *l)
{
	struct shm_link **at = &l->inst->links;

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
}

static struct shm_link *link_new(struct shm_inst *in, const struct coll_process_id *peer)
{
	struct shm_link *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->inst = in;
	l->peer = *peer;
	l->pid = (struct shm_source){SHM_PID, -1};
	l->peer_wake_fd = -1;
	l->out_tail = &l->out;
	atomic_store(&l->status, COLL_AGAIN);
	l->next = in->links;
	in->links = l;
	return l;
}

/* A link to this process that has not broken. */
static struct shm_link *link_find(struct shm_inst *in, const struct coll_process_id *peer)
{
	for (struct shm_link *l = in->links; l; l = l->next) {
		if (coll_shm_same_process(&l->peer, peer) && status_of(l) <= COLL_AGAIN)
			return l;
	}
	return NULL;
}

/* ---- Death by process ------------------------------------------------------------ */

/* False: no such process. */
static bool watch_process(struct shm_link *l, uint32_t pid)
{
	if (l->pid.fd >= 0 || pid == 0 || pid == (uint32_t)getpid())
		return true;
	l->pid.fd = (int)syscall(__NR_pidfd_open, (pid_t)pid, 0);
	if (l->pid.fd < 0)
		return errno != ESRCH;
	watch(l->inst, &l->pid, EPOLLIN);
	return true;
}

/* ---- Joining --------------------------------------------------------------------- */

static struct shm_message introduction(struct shm_inst *in, enum shm_message_type type, uint64_t proof)
{
	struct shm_message m = coll_shm_message(type);

	m.intro = (struct shm_introduction){.proof = proof,
	                                    .probe_address = (uint64_t)(uintptr_t)&in->probe,
	                                    .probe_value = in->probe,
	                                    .pid = (uint32_t)getpid(),
	                                    .barrier = in->barrier};
	return m;
}

static bool introduce(struct shm_conn *c, struct shm_inst *in, enum shm_message_type type, uint64_t proof)
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
	const char *page = fds[0] >= 0 ? coll_shm_map(fds[0], PAGE_BYTES, false) : NULL;

	if (!page)
		return false;
	close(fds[0]);
	l->peer_wake_fd = fds[1];
	l->told_pid = intro->pid;
	l->peer_pid = process_behind(c->source.fd);
	atomic_store(&l->fenced, !in->barrier || !intro->barrier);
	atomic_store(&l->peer_page, (const struct shm_page *)(const void *)page);
	watch_process(l, l->peer_pid);
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

	if (coll_shm_probe(l->peer_pid, intro->probe_address, intro->probe_value))
		coll_shm_transmit(l->conn->source.fd, &pulls, none);
	else
		l->inst->env.log(l->inst->env.ctx, 2, "shm: the memory of process %u cannot be read directly",
		                 l->told_pid);
	coll_shm_flush(l);
}

/* ---- The handshake: each handler returns false to end the connection ------------------ */

static bool on_hello(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m)
{
	struct shm_message reply = coll_shm_message(SHM_CHALLENGE);
	const int none[2] = {-1, -1};

	if (m->type != SHM_HELLO || !coll_shm_same_process(&m->hello.peer, &in->env.self) ||
	    !coll_shm_random(&c->nonce[1], sizeof(c->nonce[1])))
		return false;
	c->peer = m->hello.self;
	c->nonce[0] = m->hello.nonce;
	reply.hello.self = in->env.self;
	reply.hello.peer = c->peer;
	reply.hello.nonce = c->nonce[1];
	reply.hello.proof = coll_shm_proof(in, 'a', &c->peer, &in->env.self, c->nonce);
	c->state = SHM_WAIT_AUTH;
	return coll_shm_transmit(c->source.fd, &reply, none) == 1;
}

static bool on_challenge(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m)
{
	c->nonce[1] = m->hello.nonce;
	if (m->type != SHM_CHALLENGE || !coll_shm_same_process(&m->hello.self, &c->peer) ||
	    m->hello.proof != coll_shm_proof(in, 'a', &in->env.self, &c->peer, c->nonce))
		return false;
	c->state = SHM_WAIT_READY;
	return introduce(c, in, SHM_AUTH, coll_shm_proof(in, 'c', &in->env.self, &c->peer, c->nonce));
}

static bool on_auth(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m, const int fds[2])
{
	struct shm_link *l;

	if (m->type != SHM_AUTH || m->intro.proof != coll_shm_proof(in, 'c', &c->peer, &in->env.self, c->nonce))
		return false;
	l = link_find(in, &c->peer);
	if (!l)
		l = link_new(in, &c->peer);
	if (!l || l->conn || status_of(l) != COLL_AGAIN || !join(l, c, &m->intro, fds))
		return false;
	/* READY goes first: the queue is flushed behind it. */
	if (!introduce(c, in, SHM_READY, 0))
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

	switch (m->type) {
	case SHM_PULLS: atomic_store(&l->they_pull, true); break;
	case SHM_GRANT: status = coll_shm_on_grant(l, &m->grant, fds[0]); break;
	case SHM_CLOSE: coll_shm_on_close(l, m->ring); break;
	case SHM_BYE: l->bye = true; break;
	default: status = COLL_ERR_CORRUPT; break;
	}
	if (status != COLL_OK)
		coll_shm_link_break(l, status, "a message on the socket makes no sense");
}

static void close_fds(const int fds[2])
{
	for (int i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
	}
}

/* True: go on reading. */
static bool on_message(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m, const int fds[2])
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

static void conn_lost(struct shm_inst *in, struct shm_conn *c)
{
	struct shm_link *l = c->link;

	if (c->state == SHM_JOINED && l)
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, l->bye ? "it closed the link" : "its socket closed");
	conn_end(in, c);
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
		if (got < 0 || !on_message(in, c, &m, fds)) {
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
	if (!watch(in, &c->source, EPOLLIN | EPOLLRDHUP)) {
		free(c);
		return NULL;
	}
	c->next = in->conns;
	in->conns = c;
	in->strangers++;
	return c;
}

static void sweep(struct shm_inst *in)
{
	struct shm_conn **at = &in->conns;

	while (*at) {
		struct shm_conn *c = *at;

		if (c->state != SHM_DEAD) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
}

static bool same_user(int fd)
{
	struct ucred cred = {0};
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == geteuid();
}

/* Room for one more: the oldest stranger goes. Our own attempts are retried anyway. */
static void evict(struct shm_inst *in)
{
	struct shm_conn *oldest = NULL;

	for (struct shm_conn *c = in->conns; c; c = c->next) {
		if (c->state != SHM_JOINED && c->state != SHM_DEAD && (!oldest || c->since_ns < oldest->since_ns))
			oldest = c;
	}
	if (oldest)
		conn_lost(in, oldest);
}

static void on_listener(struct shm_inst *in)
{
	for (int i = 0; i < ACCEPTS; i++) {
		const int fd = accept4(in->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0)
			break;
		if (in->strangers >= SHM_CONNS_MAX)
			evict(in);
		if (atomic_load(&in->closed) || !same_user(fd) || !conn_new(in, fd, SHM_WAIT_HELLO))
			close(fd);
	}
	coll_shm_timer(in, SHM_TICK_MS);
}

static void say_hello(struct shm_link *l, int fd)
{
	struct shm_inst *in = l->inst;
	struct shm_conn *c = conn_new(in, fd, SHM_SENT_HELLO);
	struct shm_message m = coll_shm_message(SHM_HELLO);
	const int none[2] = {-1, -1};

	if (!c) {
		close(fd);
		return;
	}
	c->link = l;
	c->peer = l->peer;
	l->conn = c;
	m.hello.self = in->env.self;
	m.hello.peer = l->peer;
	if (!coll_shm_random(&c->nonce[0], sizeof(c->nonce[0])))
		c->nonce[0] = coll_clock_ns();
	m.hello.nonce = c->nonce[0];
	if (coll_shm_transmit(fd, &m, none) != 1)
		conn_lost(in, c);
}

static void try_connect(struct shm_link *l)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	const socklen_t len = offsetof(struct sockaddr_un, sun_path) + 1 + SHM_NAME_BYTES;
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	l->since_ns = coll_clock_ns();
	if (fd < 0) {
		l->inst->env.log(l->inst->env.ctx, 1, "shm: no socket to connect with: %m; trying again");
		return;
	}
	memcpy(at.sun_path + 1, l->address.name, SHM_NAME_BYTES);
	if (connect(fd, (struct sockaddr *)&at, len) == 0) {
		say_hello(l, fd);
		return;
	}
	if (errno == ECONNREFUSED || errno == ENOENT)
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, "its listening socket is gone");
	close(fd);
}

/* Connects what waits for it, ends what has taken too long. */
static void on_timer(struct shm_inst *in)
{
	const uint64_t now = coll_clock_ns();
	uint64_t ticks;

	in->timer_set = false;
	if (read(in->timer.fd, &ticks, sizeof(ticks)) < 0) {
		/* Rearmed meanwhile. */
	}
	for (struct shm_conn *c = in->conns; c; c = c->next) {
		if (c->state != SHM_JOINED && c->state != SHM_DEAD && now > c->since_ns + SHM_HANDSHAKE_MS * 1000000ull)
			conn_lost(in, c);
	}
	for (struct shm_link *l = in->links; l; l = l->next) {
		if (l->opened && status_of(l) == COLL_AGAIN && !l->conn && we_connect(l) &&
		    now >= l->since_ns + SHM_TICK_MS * 1000000ull)
			try_connect(l);
	}
}

static bool unfinished(const struct shm_inst *in)
{
	if (in->strangers)
		return true;
	for (const struct shm_link *l = in->links; l; l = l->next) {
		if (l->opened && status_of(l) == COLL_AGAIN && we_connect(l))
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

static void drop_dead_parked(struct shm_inst *in)
{
	struct shm_link **at = &in->links;

	while (*at) {
		struct shm_link *l = *at;

		if (l->opened || status_of(l) <= COLL_AGAIN) {
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
	sweep(in);
	drop_dead_parked(in);
	if (n > 0 && unfinished(in))
		coll_shm_timer(in, SHM_TICK_MS);
	if (in->changed)
		coll_shm_wake_self(in);
	in->changed = false;
	while ((l = next_untold(in))) {
		const struct coll_process_id peer = l->peer;
		const coll_status why = status_of(l);
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

/* ---- The table's entries --------------------------------------------------------------- */

coll_status coll_shm_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                               void **link)
{
	struct shm_inst *in = inst;
	struct shm_link *l;

	if (len_bytes != sizeof(struct shm_address))
		return COLL_ERR_ARGUMENT;
	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	pthread_mutex_lock(&in->lock);
	l = link_find(in, peer);
	if (!l || l->opened)
		l = link_new(in, peer);
	if (!l) {
		pthread_mutex_unlock(&in->lock);
		return COLL_ERR_MEMORY;
	}
	l->opened = true;
	memcpy(&l->address, address, sizeof(l->address));
	if (l->address.pids == in->self.pids && !watch_process(l, l->address.pid))
		coll_shm_link_break(l, COLL_ERR_PEER_DEAD, "the process has ended");
	if (status_of(l) == COLL_AGAIN && we_connect(l))
		coll_shm_timer(in, 0);
	pthread_mutex_unlock(&in->lock);
	*link = l;
	return COLL_OK;
}

void coll_shm_link_close(void *link)
{
	struct shm_link *l = link;
	struct shm_inst *in = l->inst;
	const struct shm_message bye = coll_shm_message(SHM_BYE);
	const int none[2] = {-1, -1};

	pthread_mutex_lock(&in->lock);
	if (l->untold)
		in->untold--;
	if (l->conn) {
		struct shm_conn *c = l->conn;

		coll_shm_flush(l);
		if (c->state == SHM_JOINED)
			coll_shm_transmit(c->source.fd, &bye, none);
		conn_end(in, c);
		sweep(in);
	}
	unlist(l);
	coll_shm_link_free(l);
	pthread_mutex_unlock(&in->lock);
}

coll_status coll_shm_link_status(void *link)
{
	struct shm_link *l = link;
	coll_status status;

	if (status_of(l) == COLL_AGAIN)
		atomic_store(&l->wanted, true);
	status = status_of(l);
	if (status != COLL_AGAIN)
		atomic_store(&l->wanted, false);
	return status;
}
