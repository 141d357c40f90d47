/*
 * The life of a link: found or made, up, ended by the peer's BYE or broken, and
 * swept. Invariant: status (for outsiders) changes from AGAIN to OK to an error
 * only; link_down is called once, by sweep, with no lock held, for links that
 * have a handle out. Connections are made in service.c.
 */
#include "transports/tcp/link.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/retransmit.h"
#include "base/round_trip.h"
#include "tcp.h"
#include "transports/tcp/address.h"
#include "transports/tcp/channel.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/kept.h"
#include "transports/tcp/pairs.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/tx.h"

/* As many links can be up as there are. */
static bool grow_up(struct tcp_inst *in)
{
	struct tcp_link **up;

	if (in->up_cap >= in->links.cap)
		return true;
	up = realloc(in->up, in->links.cap * sizeof(struct tcp_link *));
	if (up == NULL)
		return false;
	in->up = up;
	in->up_cap = in->links.cap;
	return true;
}

bool coll_tcp_link_begin(void *inst, struct coll_peer_link *base)
{
	struct tcp_inst *in = inst;
	struct tcp_link *l = (struct tcp_link *)base;

	l->inst = in;
	l->fd = -1;
	l->attempt.fd = -1;
	l->stage = malloc(TCP_STAGE_BYTES);
	if (l->stage == NULL || !grow_up(in) || coll_tcp_tx_reserve(l, 16) != COLL_OK) {
		free(l->stage);
		l->stage = NULL;
		return false;
	}
	l->state = LINK_CONNECTING;
	atomic_fetch_add(&in->connecting, 1);
	return true;
}

/* ---- open, close ---------------------------------------------------------- */

coll_status coll_tcp_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                               void **link)
{
	struct tcp_inst *in = inst;
	struct coll_tcp_address target;
	struct coll_peer_link *l;
	coll_status status;

	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	if (!coll_tcp_address_decode(&target, address, len_bytes) || !coll_same_process(&target.id, peer)) {
		tcp_log(in, COLL_LOG_ERROR,
		        "[COLL-6107] tcp: the address of a peer (%zu bytes) is not one of this transport", len_bytes);
		return COLL_ERR_ARGUMENT;
	}
	coll_tcp_address_apart(&in->env, &in->address, &target);
	status = coll_tcp_rails_open(in, peer, &target, &l);
	if (status != COLL_OK)
		return status;
	coll_reactor_kick(&in->service);
	*link = l;
	return COLL_OK;
}

/* ---- up -------------------------------------------------------------------- */

static void set_option(int fd, int level, int name, int value)
{
	/* Tuning only: a kernel that refuses one of these still moves bytes. */
	if (setsockopt(fd, level, name, &value, sizeof(value)) != 0)
		return;
}

/* Before the connection is made: the window's scale is agreed then. Not at all by default: the
 * kernel grows both with the path, up to the limits of tcp_rmem and tcp_wmem, and a fixed size
 * ends that. */
void coll_tcp_link_prepare(const struct tcp_inst *in, int fd)
{
	set_option(fd, IPPROTO_TCP, COLL_TCP_RTO_MAX, coll_retransmit_ms((int)(in->unreachable_ns / COLL_NS_PER_MS)));
	if (in->buffer_bytes == 0)
		return;
	set_option(fd, SOL_SOCKET, SO_SNDBUF, in->buffer_bytes);
	set_option(fd, SOL_SOCKET, SO_RCVBUF, in->buffer_bytes);
}

/* Turns on the pacing of a socket when its connection is made. */
static bool paces(const char *control)
{
	return strncmp(control, "bbr", 3) == 0;
}

/* "": what the socket has by itself. */
static const char *control_for(const struct tcp_inst *in, enum tcp_path path)
{
	if (in->congestion[0] != '\0')
		return in->congestion;
	if (path == TCP_PATH_HERE)
		return "reno";
	if (!paces(in->system_control))
		return "";
	return path == TCP_PATH_AWAY ? in->system_control : "reno";
}

/*
 * A congestion control with pacing (bbr, the default of some systems) halves the rate of a loopback or a veth
 * pair: 32 MiB each way take 17 ms instead of 8.5. So processes of one machine use a control without pacing,
 * and from the beginning. bbr turns on the pacing of a socket when it is connected, and choosing another control
 * later does not turn it off. The socket is then limited to some multiple of its window per round trip time,
 * which grows if the peer is late once: 64 KiB took 220 us instead of 20.
 * So the control is set before connect() and listen(), whose connections inherit it, and again when the handshake
 * has shown where the peer is. The opposite change is harmless: bbr takes over a connection whenever it is chosen.
 * Other controls do not: dctcp acts as reno on a connection that was made without its marks, and a listener with
 * another control does not ask for marks. So if the control of the system does not pace, listeners and paths to other
 * machines keep theirs, which may be that of a route.
 */
bool coll_tcp_link_control(const struct tcp_inst *in, int fd, enum tcp_path path)
{
	const char *want = control_for(in, path);

	return want[0] == '\0' || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, want, (socklen_t)strlen(want)) == 0;
}

/* Over a long path bbr goes on at its rate where others take a lost packet for a crowded network. A system without it,
 * or that forbids it, keeps what it has. */
static void choose_long(const struct tcp_link *l, int fd)
{
	static const char bbr[] = "bbr";
	const struct tcp_inst *in = l->inst;
	const uint32_t us = coll_round_trip_us(fd), mbps = coll_tcp_address_mbps(&in->address, fd);

	if (in->congestion[0] != '\0' || !coll_tcp_is_long(mbps, us))
		return;
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, bbr, sizeof(bbr) - 1) != 0)
		tcp_log(in, COLL_LOG_DEBUG, "tcp: the system does not offer bbr: %s", coll_errno_text(errno).text);
}

/*
 * An unreachable host shows as data without acknowledgement, which service.c
 * watches by itself. TCP_USER_TIMEOUT would do the same and more: it also ends
 * a connection whose peer, alive, has not read for so long (a zero window), and
 * a late peer is no dead peer. Keepalive is the second line, for processes that
 * run without a service thread.
 */
static void tune(struct tcp_link *l, int fd, bool same_machine)
{
	struct tcp_inst *in = l->inst;
	char used[TCP_CONTROL_NAME] = "?";
	socklen_t len = sizeof(used) - 1;
	const int unreachable_ms = (int)(in->unreachable_ns / COLL_NS_PER_MS), probes = unreachable_ms / 1000;

	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (!l->near) {
		set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
		set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
		set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
		set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes < 3 ? 3 : probes > 127 ? 127 : probes);
	}
	coll_tcp_link_control(in, fd, same_machine ? TCP_PATH_HERE : TCP_PATH_AWAY);
	if (!same_machine)
		choose_long(l, fd);
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, used, &len) == 0)
		tcp_log(in, COLL_LOG_INFO, "tcp: connected %s, congestion control %s, socket %u, round trip %u us",
		        same_machine ? "on this machine" : "to another host", used, l->base.part + 1,
		        coll_round_trip_us(fd));
}

/* Whether the socket connects two processes of one network namespace. */
static bool both_ends_here(int fd)
{
	struct sockaddr_storage a, b;
	socklen_t la = sizeof(a), lb = sizeof(b);

	if (getsockname(fd, (struct sockaddr *)&a, &la) != 0 || getpeername(fd, (struct sockaddr *)&b, &lb) != 0)
		return false;
	if (a.ss_family != b.ss_family)
		return false;
	if (a.ss_family == AF_INET6)
		return memcmp(&((struct sockaddr_in6 *)&a)->sin6_addr, &((struct sockaddr_in6 *)&b)->sin6_addr, 16) ==
		       0;
	return ((struct sockaddr_in *)&a)->sin_addr.s_addr == ((struct sockaddr_in *)&b)->sin_addr.s_addr;
}

void coll_tcp_link_watch(struct tcp_link *l)
{
	struct epoll_event data = {.events = EPOLLIN, .data.u64 = tcp_link_tag(l)};

	if (l->watched || epoll_ctl(l->inst->data_epoll, EPOLL_CTL_ADD, l->fd, &data) != 0)
		return;
	l->watched = true;
	l->want_out = false;
	l->unheard = 0;
	atomic_fetch_sub(&l->inst->unwatched, 1);
}

/* Counted before armed is looked at, while who arms looks at the count afterwards: one of
 * the two sees the other, and a sleeper that sees the count waits for the link's lock. */
void coll_tcp_link_unwatch(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;

	if (!l->watched)
		return;
	atomic_fetch_add(&in->unwatched, 1);
	if (atomic_load(&in->armed) > 0 || epoll_ctl(in->data_epoll, EPOLL_CTL_DEL, l->fd, NULL) != 0)
		atomic_fetch_sub(&in->unwatched, 1);
	else
		l->watched = false;
	if (l->watched || l->deaf || epoll_ctl(in->service.epoll_fd, EPOLL_CTL_DEL, l->fd, NULL) != 0)
		return;
	l->deaf = true;
	/* The first one: the service thread sets its timer. */
	if (atomic_fetch_add(&in->deaf, 1) == 0)
		coll_reactor_kick(&in->service);
}

/* Edge-triggered and without EPOLLIN: no wakeup per frame, one at the end. If the end has come
 * meanwhile, the event is reported at once. */
void coll_tcp_link_hear(struct tcp_link *l)
{
	struct epoll_event death = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = tcp_link_tag(l)};

	if (!l->deaf || epoll_ctl(l->inst->service.epoll_fd, EPOLL_CTL_ADD, l->fd, &death) != 0)
		return;
	l->deaf = false;
	atomic_fetch_sub(&l->inst->deaf, 1);
}

static bool watch(struct tcp_link *l)
{
	coll_tcp_link_watch(l);
	l->deaf = true;
	atomic_fetch_add(&l->inst->deaf, 1);
	coll_tcp_link_hear(l);
	return l->watched && !l->deaf;
}

/* For progress. One that goes on may be there still. */
static void list(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;

	for (uint32_t i = 0; l->made > 1 && i < in->up_count; i++)
		if (in->up[i] == l)
			return;
	in->up[in->up_count] = l;
	if (in->up_count < TCP_DIRECT_LINKS)
		atomic_store(&in->direct[in->up_count], l);
	atomic_fetch_add(&in->up_count, 1);
}

coll_status coll_tcp_link_up(struct tcp_link *l, int fd, struct coll_tcp_key key, bool same_machine)
{
	struct tcp_inst *in = l->inst;

	const bool again = l->again;

	assert(l->state == LINK_CONNECTING);
	l->fd = fd;
	l->key = key;
	l->number_out = coll_process_lower(&in->env.self, &l->base.peer) ? 0 : COLL_TCP_NUMBER_HIGH;
	l->number_in = l->number_out ^ COLL_TCP_NUMBER_HIGH;
	/* What was queued meanwhile goes first. */
	for (uint32_t i = 0; i < l->queue_count; i++)
		coll_tcp_tx_seal(l, &tcp_queue_at(l, i)->head);
	if (l->line == 0)
		l->line = coll_tcp_hello_line(&key);
	l->again = l->stranded = false;
	l->near = both_ends_here(fd);
	l->where[0] = '\0';
	if (!l->near)
		coll_tcp_address_where(&in->address, fd, l->where, sizeof(l->where));
	tune(l, fd, same_machine);
	atomic_fetch_add(&in->unwatched, 1);
	if (!watch(l)) {
		coll_tcp_link_fail(l, COLL_ERR_SYSTEM, "epoll: %s", coll_errno_text(errno).text);
		return COLL_ERR_SYSTEM;
	}
	l->state = LINK_UP;
	atomic_fetch_sub(&in->connecting, 1);
	coll_peer_link_up(&l->base);
	list(l);
	in->remote_count += !l->near;
	if (again)
		coll_tcp_kept_resume(l);
	coll_tcp_tx_flush(l);
	coll_tcp_wake(in);
	return COLL_OK;
}

/* ---- end --------------------------------------------------------------------- */

static void leave_connecting(struct tcp_link *l)
{
	if (l->state == LINK_CONNECTING)
		atomic_fetch_sub(&l->inst->connecting, 1);
}

/* Whatever waits on a channel of this link learns of its end. */
static void fail_completions(struct tcp_link *l)
{
	while (l->queue_count > 0) {
		struct tcp_entry *e = tcp_queue_at(l, 0);

		l->queue_first++;
		l->queue_count--;
		coll_tcp_channel_sent(l, e);
	}
	l->sent = l->check_count = 0;
	l->into = NULL;
	l->into_ptr = NULL;
	l->taking = false;
	l->into_left = l->piece_left = l->skip = 0;
	l->trailer = false;
	for (struct tcp_sender *s = l->senders, *next; s != NULL; s = next) {
		next = s->next;
		if (s->kept != NULL)
			coll_tcp_kept_release(s);
	}
	for (uint32_t i = 0; i < l->receivers.cap; i++) {
		struct tcp_receiver *r = l->receivers.at[i];

		if (r != NULL && r->into.completion != NULL && !r->into.finished) {
			r->into.finished = true;
			r->into.status = COLL_ERR_PEER_DEAD;
			coll_tcp_channel_event(&r->base);
		}
	}
}

/* The socket is in neither epoll set any more, or leaves them as it is closed. */
static void uncount(struct tcp_link *l)
{
	if (l->fd >= 0 && !l->watched)
		atomic_fetch_sub(&l->inst->unwatched, 1);
	l->watched = false;
	if (l->deaf)
		atomic_fetch_sub(&l->inst->deaf, 1);
	l->deaf = false;
}

int coll_tcp_link_detach(struct tcp_link *l)
{
	const int fd = l->fd;

	if (l->watched)
		epoll_ctl(l->inst->data_epoll, EPOLL_CTL_DEL, fd, NULL);
	if (!l->deaf)
		epoll_ctl(l->inst->service.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	uncount(l);
	l->fd = -1;
	return fd;
}

/*
 * What outsiders see of it has ended. Any thread delivers a notice once this link's lock is free, but the cause of a
 * link of several rails is known only after all of them have been looked at. So its notice is withheld under the same
 * lock, until coll_tcp_rails_tear() has judged and raises it again.
 */
static void stop(struct tcp_link *l, enum tcp_state state)
{
	struct tcp_inst *in = l->inst;

	leave_connecting(l);
	l->state = state;
	if (l->fd >= 0 && l->base.rails <= 1 && coll_peer_link_tells_first(&l->base)) {
		l->base.closes = 1 + coll_tcp_link_detach(l);
	} else {
		uncount(l);
		if (l->fd >= 0)
			coll_fd_close(l->fd); /* leaves both epoll sets: the descriptor has no duplicate */
		l->fd = -1;
	}
	fail_completions(l);
	if (l->base.rails > 1 && l->base.notice) {
		l->base.notice = false;
		l->unjudged = true;
	}
	if (l->base.rails > 1 || l->base.part > 0)
		atomic_store(&in->links.torn, true);
	coll_reactor_kick(&in->service);
	coll_tcp_wake(in);
}

void coll_tcp_link_tear(struct tcp_link *l, coll_status why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (coll_peer_link_fail(&l->inst->links, &l->base, why, format, ap))
		stop(l, LINK_DOWN);
	va_end(ap);
}

void coll_tcp_link_fail(struct tcp_link *l, coll_status why, const char *format, ...)
{
	const bool named = l->state == LINK_UP && l->where[0] != '\0';
	char cause[160];
	va_list ap;

	va_start(ap, format);
	vsnprintf(cause, sizeof(cause), format, ap);
	va_end(ap);
	coll_tcp_link_tear(l, why, "%s%s%s", named ? l->where : "", named ? ": " : "", cause);
}

void coll_tcp_link_ended(struct tcp_link *l)
{
	if (l->state != LINK_UP && (l->state != LINK_CONNECTING || !l->stranded))
		return;
	coll_peer_link_ended(&l->inst->links, &l->base);
	stop(l, LINK_ENDED);
}

/* The link's lock held. One that connects, though closed, is ended first, by
 * coll_tcp_connect_retry(): so its attempt is over. What this process lacks is told first, though it has not opened
 * the link. */
static bool unused(const struct tcp_link *l)
{
	return l->base.opens == 0 && (l->state == LINK_DOWN || l->state == LINK_ENDED) &&
	       !coll_peer_link_tells_first(&l->base);
}

void coll_tcp_link_free(struct tcp_link *l)
{
	leave_connecting(l);
	if (l->work)
		atomic_fetch_sub(&l->inst->working, 1);
	if (l->fd >= 0)
		coll_fd_close(l->fd);
	l->fd = -1;
	for (uint32_t i = 0; i < l->queue_count; i++)
		free(tcp_queue_at(l, i)->owned);
	free(l->queue);
	free(l->stage);
	free(l->bulk);
	while (l->senders != NULL)
		coll_tcp_channel_free_sender(l->senders);
	for (uint32_t i = 0; i < l->receivers.cap; i++)
		if (l->receivers.at[i] != NULL)
			coll_tcp_channel_free_receiver(l->receivers.at[i]);
	for (uint32_t i = 0; i < l->grants.cap; i++)
		free(l->grants.at[i]);
	coll_id_table_fini(&l->receivers);
	coll_id_table_fini(&l->grants);
	/* The generation stays, one further. */
	const uint32_t generation = l->generation + 1;
	const uint32_t attempt_generation = l->attempt.generation;
	const size_t from = offsetof(struct tcp_link, state);

	memset((char *)l + from, 0, sizeof(*l) - from);
	l->generation = generation;
	l->attempt.generation = attempt_generation;
	l->fd = -1;
	l->attempt.fd = -1;
	coll_peer_link_forget(&l->base);
}

void coll_tcp_link_compact(struct tcp_inst *in)
{
	uint32_t kept = 0;

	if (atomic_exchange(&in->links.stale, 0) == 0)
		return;
	pthread_mutex_lock(&in->links.lock);
	for (uint32_t i = 0; i < in->links.count; i++) {
		struct tcp_link *l = (struct tcp_link *)in->links.at[i];

		pthread_mutex_lock(&l->base.lock);
		if (l->state != LINK_CONNECTING && l->attempt.fd >= 0) {
			coll_fd_close(l->attempt.fd);
			l->attempt.fd = -1;
			l->attempt.generation++;
		}
		if (unused(l))
			coll_tcp_link_free(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	for (uint32_t i = 0; i < in->up_count; i++) {
		struct tcp_link *l = in->up[i];

		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP)
			in->up[kept++] = l;
		pthread_mutex_unlock(&l->base.lock);
	}
	for (uint32_t i = 0; i < TCP_DIRECT_LINKS; i++)
		atomic_store(&in->direct[i], i < kept ? in->up[i] : NULL);
	atomic_store(&in->up_count, kept);
	pthread_mutex_unlock(&in->links.lock);
}

/*
 * A thread that goes to sleep increments armed and then reads once more the state that it waits
 * for, under this lock or at its completions. A thread with new events changes that state and then reads
 * armed. Both are sequentially consistent, so at least one of the two sees the other.
 */
void coll_tcp_link_work(struct tcp_link *l)
{
	const bool work = l->state == LINK_UP && (l->due > 0 || l->queue_count > 0);

	if (l->news && atomic_load(&l->inst->armed) > 0)
		coll_tcp_wake(l->inst);
	l->news = false;
	if (work == l->work)
		return;
	l->work = work;
	if (work)
		atomic_fetch_add(&l->inst->working, 1);
	else
		atomic_fetch_sub(&l->inst->working, 1);
}

struct tcp_link *coll_tcp_link_lock(struct tcp_inst *in, uint64_t tag)
{
	struct tcp_link *l = tcp_link_at(in, (uint32_t)tag);

	if (l == NULL)
		return NULL;
	pthread_mutex_lock(&l->base.lock);
	if (tcp_link_tag(l) == tag)
		return l;
	pthread_mutex_unlock(&l->base.lock);
	return NULL;
}
