/*
 * The life of a link: found or made, up, ended by the peer's BYE or broken, and
 * swept. Invariant: status (for outsiders) changes from AGAIN to OK to an error
 * only; link_down is called once, by sweep, with no lock held, for links that
 * have a handle out. Connections are made in service.c.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tcp.h"

void coll_tcp_kick(struct tcp_inst *in)
{
	const uint64_t one = 1;

	if (write(in->kick_fd, &one, sizeof(one)) < 0)
		return; /* only when the counter is full: then it is readable already */
}

void coll_tcp_wake(struct tcp_inst *in)
{
	const uint64_t one = 1;

	if (in->env.wake_fd >= 0 && write(in->env.wake_fd, &one, sizeof(one)) < 0)
		return;
}

static bool same(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

/* ---- table ------------------------------------------------------------- */

struct tcp_link *coll_tcp_link_find(struct tcp_inst *in, const struct coll_process_id *peer)
{
	for (uint32_t i = 0; i < in->link_count; i++) {
		struct tcp_link *l = in->links[i];
		bool usable;

		if (!same(&l->peer, peer))
			continue;
		pthread_mutex_lock(&l->lock);
		usable = (l->state == LINK_CONNECTING || l->state == LINK_UP) && !l->lingering;
		pthread_mutex_unlock(&l->lock);
		if (usable)
			return l;
	}
	return NULL;
}

static bool grow_table(struct tcp_inst *in)
{
	const uint32_t cap = in->link_cap ? 2 * in->link_cap : 16;
	struct tcp_link **links = realloc(in->links, cap * sizeof(struct tcp_link *));
	struct tcp_link **up;

	if (links == NULL)
		return false;
	in->links = links;
	up = realloc(in->up, cap * sizeof(struct tcp_link *));
	if (up == NULL)
		return false;
	in->up = up;
	in->link_cap = cap;
	return true;
}

static struct tcp_link *take_slot(struct tcp_inst *in)
{
	struct tcp_link *l;

	for (uint32_t i = 0; i < in->link_count; i++) {
		l = in->links[i];
		pthread_mutex_lock(&l->lock);
		const bool free_one = l->state == LINK_FREE;
		pthread_mutex_unlock(&l->lock);
		if (free_one)
			return l;
	}
	if (in->link_count == in->link_cap && !grow_table(in))
		return NULL;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return NULL;
	l->inst = in;
	l->slot = in->link_count;
	l->fd = -1;
	l->attempt.fd = -1;
	pthread_mutex_init(&l->lock, NULL);
	in->links[in->link_count++] = l;
	return l;
}

struct tcp_link *coll_tcp_link_new(struct tcp_inst *in, const struct coll_process_id *peer)
{
	struct tcp_link *l = take_slot(in);

	if (l == NULL)
		return NULL;
	pthread_mutex_lock(&l->lock);
	l->stage = malloc(TCP_STAGE_BYTES);
	if (l->stage != NULL && coll_tcp_tx_reserve(l, 16) == COLL_OK) {
		l->peer = *peer;
		l->state = LINK_CONNECTING;
		l->status = COLL_AGAIN;
		atomic_fetch_add(&in->connecting, 1);
		pthread_mutex_unlock(&l->lock);
		return l;
	}
	free(l->stage);
	l->stage = NULL;
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

/* ---- open, close ---------------------------------------------------------- */

coll_status coll_tcp_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                               void **link)
{
	struct tcp_inst *in = inst;
	struct coll_tcp_address target;
	struct tcp_link *l;

	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	if (!coll_tcp_address_decode(&target, address, len_bytes) || !same(&target.id, peer)) {
		tcp_log(in, COLL_LOG_ERROR,
		        "[COLL-6107] tcp: the address of a peer (%zu bytes) is not one of this transport", len_bytes);
		return COLL_ERR_ARGUMENT;
	}
	coll_tcp_address_order(&in->address, &target);
	if (target.count == 0) {
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6103] tcp: no route to any address of the peer");
		return COLL_ERR_PEER_DEAD;
	}
	pthread_mutex_lock(&in->lock);
	l = coll_tcp_link_find(in, peer);
	if (l == NULL)
		l = coll_tcp_link_new(in, peer);
	if (l == NULL) {
		pthread_mutex_unlock(&in->lock);
		return COLL_ERR_MEMORY;
	}
	pthread_mutex_lock(&l->lock);
	if (l->opens++ == 0) {
		l->target = target;
		l->target_next = 0;
		l->round = 0;
		l->deadline_ns = coll_clock_ns() + in->timeout_ns;
	}
	pthread_mutex_unlock(&l->lock);
	pthread_mutex_unlock(&in->lock);
	coll_tcp_kick(in);
	*link = l;
	return COLL_OK;
}

coll_status coll_tcp_link_status(void *link)
{
	struct tcp_link *l = link;

	return (coll_status)atomic_load_explicit(&l->status, memory_order_acquire);
}

void coll_tcp_link_close(void *link)
{
	struct tcp_link *l = link;
	struct tcp_inst *in = l->inst;
	struct coll_tcp_head bye = {.type = COLL_TCP_BYE};

	pthread_mutex_lock(&l->lock);
	assert(l->opens > 0);
	if (--l->opens > 0) {
		pthread_mutex_unlock(&l->lock);
		return;
	}
	l->lingering = true;
	if (l->state == LINK_UP) {
		coll_tcp_tx_control(l, &bye);
		coll_tcp_tx_flush(l);
		/* The rest of the flush, and the peer's end, are service()'s. */
	}
	atomic_fetch_add(&in->stale, 1);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->lock);
	coll_tcp_kick(in);
}

/* ---- up -------------------------------------------------------------------- */

static void set_option(int fd, int level, int name, int value)
{
	/* Tuning only: a kernel that refuses one of these still moves bytes. */
	if (setsockopt(fd, level, name, &value, sizeof(value)) != 0)
		return;
}

/*
 * An unreachable host shows as data without acknowledgement, which service.c
 * watches by itself. TCP_USER_TIMEOUT would do the same and more: it also ends
 * a connection whose peer, alive, has not read for so long (a zero window), and
 * a late peer is no dead peer. Keepalive is the second line, for processes that
 * run without a service thread.
 */
static void tune(struct tcp_inst *in, int fd, bool near, bool same_machine)
{
	char used[32] = "?";
	socklen_t len = sizeof(used) - 1;
	const char *want = in->congestion;

	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	if (!near) {
		set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
		set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
		set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
		set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	}
	/* A paced control (bbr, the default of some systems) halves the rate of a
	 * loopback or a veth pair: 32 MiB each way 17 ms instead of 8.5. */
	if (want[0] != '\0') {
		if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, want, (socklen_t)strlen(want)) != 0)
			tcp_log(in, COLL_LOG_WARN, "[COLL-6102] tcp: COLL_TCP_CONGESTION=%s: %s", want,
			        strerror(errno));
	} else if (same_machine && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4) != 0) {
		tcp_log(in, COLL_LOG_DEBUG, "tcp: congestion control reno: %s", strerror(errno));
	}
	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, used, &len) == 0)
		tcp_log(in, COLL_LOG_INFO, "tcp: connected %s, congestion control %s",
		        same_machine ? "on this machine" : "to another host", used);
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

static bool watch(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct epoll_event data = {.events = EPOLLIN, .data.u64 = tcp_link_tag(l)};
	/* Edge-triggered and without EPOLLIN: no wakeup per frame, one at the end. */
	struct epoll_event death = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = tcp_link_tag(l)};

	return epoll_ctl(in->data_epoll, EPOLL_CTL_ADD, l->fd, &data) == 0 &&
	       epoll_ctl(in->service_epoll, EPOLL_CTL_ADD, l->fd, &death) == 0;
}

coll_status coll_tcp_link_up(struct tcp_link *l, int fd, uint64_t seed, bool same_machine)
{
	struct tcp_inst *in = l->inst;

	assert(l->state == LINK_CONNECTING);
	l->fd = fd;
	l->seed = seed;
	l->near = both_ends_here(fd);
	tune(in, fd, l->near, same_machine);
	if (!watch(l)) {
		coll_tcp_link_fail(l, COLL_ERR_SYSTEM, "epoll: %s", strerror(errno));
		return COLL_ERR_SYSTEM;
	}
	l->state = LINK_UP;
	atomic_fetch_sub(&in->connecting, 1);
	atomic_store_explicit(&l->status, COLL_OK, memory_order_release);
	in->up[in->up_count++] = l;
	in->remote_count += !l->near;
	for (uint32_t i = 0; i < l->queue_count; i++)
		coll_tcp_tx_seal(l, &l->queue[(l->queue_first + i) & (l->queue_cap - 1)].head);
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
static void fail_cookies(struct tcp_link *l)
{
	while (l->queue_count > 0) {
		struct tcp_entry *e = &l->queue[l->queue_first & (l->queue_cap - 1)];

		l->queue_first++;
		l->queue_count--;
		coll_tcp_channel_sent(l, e);
	}
	l->sent = 0;
	l->into = NULL;
	l->into_ptr = NULL;
	l->into_left = 0;
	for (uint32_t i = 0; i < l->receivers_cap; i++) {
		struct tcp_receiver *r = l->receivers[i];

		if (r != NULL && r->into.cookie != NULL && !r->into.finished) {
			r->into.finished = true;
			r->into.status = COLL_ERR_PEER_DEAD;
			coll_tcp_channel_event(&r->base);
		}
	}
}

static void stop(struct tcp_link *l, enum tcp_state state, coll_status status)
{
	struct tcp_inst *in = l->inst;

	leave_connecting(l);
	l->state = state;
	atomic_store_explicit(&l->status, status, memory_order_release);
	if (l->fd >= 0)
		close(l->fd); /* leaves both epoll sets: the descriptor has no duplicate */
	l->fd = -1;
	fail_cookies(l);
	atomic_fetch_add(&in->notices, 1);
	atomic_fetch_add(&in->stale, 1);
	coll_tcp_kick(in);
	coll_tcp_wake(in);
}

void coll_tcp_link_fail(struct tcp_link *l, coll_status why, const char *format, ...)
{
	va_list ap;

	if (l->state != LINK_UP && l->state != LINK_CONNECTING)
		return;
	va_start(ap, format);
	vsnprintf(l->cause, sizeof(l->cause), format, ap);
	va_end(ap);
	l->why = why;
	l->notice = !l->lingering;
	stop(l, LINK_DOWN, why == COLL_ERR_PEER_SILENT ? COLL_ERR_PEER_DEAD : why);
}

void coll_tcp_link_ended(struct tcp_link *l)
{
	if (l->state != LINK_UP)
		return;
	snprintf(l->cause, sizeof(l->cause), "the peer has closed the link");
	stop(l, LINK_ENDED, COLL_ERR_PEER_DEAD);
}

/* link->lock held. Channels that the user has not closed keep the link. */
static bool unused(const struct tcp_link *l)
{
	if (l->state == LINK_FREE || l->opens > 0)
		return false;
	if (l->state == LINK_UP)
		return false;
	return l->state != LINK_CONNECTING || l->lingering;
}

void coll_tcp_link_free(struct tcp_link *l)
{
	leave_connecting(l);
	if (l->work)
		atomic_fetch_sub(&l->inst->working, 1);
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	for (uint32_t i = 0; i < l->queue_count; i++)
		free(l->queue[(l->queue_first + i) & (l->queue_cap - 1)].owned);
	free(l->queue);
	free(l->stage);
	while (l->senders != NULL)
		coll_tcp_channel_free_sender(l->senders);
	for (uint32_t i = 0; i < l->receivers_cap; i++)
		if (l->receivers[i] != NULL)
			coll_tcp_channel_free_receiver(l->receivers[i]);
	for (uint32_t i = 0; i < l->grants_cap; i++)
		free(l->grants[i]);
	free(l->receivers);
	free(l->grants);
	/* What stays: inst, slot, lock, and the generation, one further. */
	const uint32_t generation = l->generation + 1;
	const uint32_t attempt_generation = l->attempt.generation;
	const size_t from = offsetof(struct tcp_link, state);

	memset((char *)l + from, 0, sizeof(*l) - from);
	l->generation = generation;
	l->attempt.generation = attempt_generation;
	l->fd = -1;
	l->attempt.fd = -1;
}

struct notice {
	struct coll_process_id peer;
	coll_status why;
	char cause[160];
};

/* One link that owes a link_down; false if none. */
static bool next_notice(struct tcp_inst *in, struct notice *n)
{
	bool found = false;

	pthread_mutex_lock(&in->lock);
	for (uint32_t i = 0; i < in->link_count && !found; i++) {
		struct tcp_link *l = in->links[i];

		pthread_mutex_lock(&l->lock);
		if (l->notice && l->opens > 0) {
			n->peer = l->peer;
			n->why = l->why;
			memcpy(n->cause, l->cause, sizeof(n->cause));
			l->notice = false;
			found = true;
		}
		pthread_mutex_unlock(&l->lock);
	}
	pthread_mutex_unlock(&in->lock);
	return found;
}

void coll_tcp_link_notify(struct tcp_inst *in)
{
	struct notice n;

	if (atomic_load_explicit(&in->notices, memory_order_relaxed) == 0)
		return;
	atomic_store(&in->notices, 0);
	while (next_notice(in, &n)) {
		tcp_log(in, COLL_LOG_INFO, "tcp: link down: %s", n.cause);
		in->env.link_down(in->env.ctx, &n.peer, n.why, n.cause);
	}
}

void coll_tcp_link_compact(struct tcp_inst *in)
{
	uint32_t kept = 0;

	if (atomic_exchange(&in->stale, 0) == 0)
		return;
	pthread_mutex_lock(&in->lock);
	for (uint32_t i = 0; i < in->link_count; i++) {
		struct tcp_link *l = in->links[i];

		pthread_mutex_lock(&l->lock);
		if (l->state != LINK_CONNECTING && l->attempt.fd >= 0) {
			close(l->attempt.fd);
			l->attempt.fd = -1;
			l->attempt.generation++;
		}
		if (unused(l))
			coll_tcp_link_free(l);
		pthread_mutex_unlock(&l->lock);
	}
	for (uint32_t i = 0; i < in->up_count; i++) {
		struct tcp_link *l = in->up[i];

		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP)
			in->up[kept++] = l;
		pthread_mutex_unlock(&l->lock);
	}
	in->up_count = kept;
	pthread_mutex_unlock(&in->lock);
}

/*
 * Who goes to sleep counts itself in armed and then looks at what it waits for once
 * more, under this lock or at its cookies; who brings news changes these and then looks
 * at armed. Both are sequentially consistent, so one of the two sees the other.
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
	const uint32_t index = (uint32_t)tag;
	struct tcp_link *l;

	pthread_mutex_lock(&in->lock);
	l = index < in->link_count ? in->links[index] : NULL;
	pthread_mutex_unlock(&in->lock);
	if (l == NULL)
		return NULL;
	pthread_mutex_lock(&l->lock);
	if (tcp_link_tag(l) == tag)
		return l;
	pthread_mutex_unlock(&l->lock);
	return NULL;
}
