/*
 * The door: listens, accepts, shakes hands, connects, and watches for the end of
 * links, all on service_epoll and under service_lock. Every step is bounded: so
 * many accepts per call, so many strangers at once (a silent one is the first to
 * go), a deadline for each. A stranger costs this thread some microseconds and
 * never reaches a link.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tcp.h"

static const uint64_t no_nonce[2];

static void make_nonce(uint64_t nonce[2])
{
	if (getrandom(nonce, 16, 0) != 16) {
		nonce[0] = coll_clock_ns();
		nonce[1] = (uint64_t)getpid() << 32 ^ (uintptr_t)nonce;
	}
}

static bool say(int fd, const struct coll_tcp_hello *m)
{
	return send(fd, m, sizeof(*m), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*m);
}

/* More of a message; 1: complete, 0: not yet, -1: the other side is gone. */
static int hear(struct tcp_handshake *h)
{
	const ssize_t n = recv(h->fd, (char *)&h->in + h->got, sizeof(h->in) - h->got, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return 0;
	if (n <= 0)
		return -1;
	h->got += (size_t)n;
	if (h->got < sizeof(h->in))
		return 0;
	h->got = 0;
	return 1;
}

static void hang_up(struct tcp_handshake *h)
{
	if (h->fd >= 0)
		close(h->fd);
	h->fd = -1;
	h->generation++;
	h->stage = HANDSHAKE_IDLE;
	h->got = 0;
}

static bool listen_for(struct tcp_inst *in, int fd, uint32_t events, uint64_t tag, int how)
{
	struct epoll_event e = {.events = events, .data.u64 = tag};

	return epoll_ctl(in->service_epoll, how, fd, &e) == 0;
}

/* ---- strangers ------------------------------------------------------------- */

static void turn_away(struct tcp_inst *in, struct tcp_handshake *h)
{
	hang_up(h);
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
		turn_away(in, least_promising(in));
	for (int i = 0; i < TCP_PENDING_MAX; i++)
		if (in->pending[i].fd < 0)
			return &in->pending[i];
	return NULL;
}

static bool lower(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return a->word[0] != b->word[0] ? a->word[0] < b->word[0] : a->word[1] < b->word[1];
}

/* The link that takes a proven connection of the peer, both locks held; NULL:
 * busy. Of two connections made at the same time that of the lower id stays. */
static struct tcp_link *welcome(struct tcp_inst *in, const struct coll_process_id *peer)
{
	struct tcp_link *l = coll_tcp_link_find(in, peer);

	if (l != NULL) {
		pthread_mutex_lock(&l->lock);
		/* Perhaps the peer has closed this one and opens the next. */
		while (l->state == LINK_UP && coll_tcp_rx(l, 1 << 20) > 0)
			;
		if (l->state == LINK_CONNECTING && (l->attempt.fd < 0 || lower(peer, &in->env.self))) {
			hang_up(&l->attempt);
			return l;
		}
		const bool over = l->state != LINK_UP && l->state != LINK_CONNECTING;

		coll_tcp_link_work(l);
		pthread_mutex_unlock(&l->lock);
		if (!over)
			return NULL;
	}
	l = coll_tcp_link_new(in, peer);
	if (l != NULL)
		pthread_mutex_lock(&l->lock);
	return l;
}

static void admit(struct tcp_inst *in, struct tcp_handshake *h)
{
	const struct coll_process_id peer = h->peer.from;
	const bool same_machine = h->peer.host == in->address.machine;
	const uint64_t seed = coll_tcp_hello_seed(in->env.job_key, h->peer.nonce, h->nonce);
	struct coll_tcp_hello m;
	struct tcp_link *l;
	const int fd = h->fd;

	coll_tcp_hello_make(&m, in, COLL_TCP_VERDICT, &peer, h->nonce, h->peer.nonce);
	pthread_mutex_lock(&in->lock);
	l = welcome(in, &peer);
	m.verdict = l != NULL ? COLL_TCP_ACCEPT : COLL_TCP_BUSY;
	coll_tcp_hello_seal(&m, in->env.job_key, h->peer.nonce);
	if (!say(fd, &m) || l == NULL) {
		/* A link left behind in LINK_CONNECTING goes on by its own means. */
		hang_up(h);
	} else {
		epoll_ctl(in->service_epoll, EPOLL_CTL_DEL, fd, NULL);
		h->fd = -1;
		hang_up(h);
		coll_tcp_link_up(l, fd, seed, same_machine);
	}
	in->pending_count--;
	if (l != NULL) {
		if (l->state == LINK_CONNECTING && l->opens == 0)
			coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "the peer left during the handshake");
		coll_tcp_link_work(l);
		pthread_mutex_unlock(&l->lock);
	}
	pthread_mutex_unlock(&in->lock);
}

static void stranger(struct tcp_inst *in, struct tcp_handshake *h)
{
	const int complete = hear(h);
	const char *wrong;
	struct coll_tcp_hello m;

	if (complete < 0 || (h->got >= sizeof(h->in.magic) && h->in.magic != COLL_TCP_MAGIC)) {
		turn_away(in, h);
		return;
	}
	if (complete == 0)
		return;
	if (h->stage == HANDSHAKE_HELLO) {
		wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_HELLO, NULL, no_nonce);
		h->peer = h->in;
		coll_tcp_hello_make(&m, in, COLL_TCP_CHALLENGE, &h->peer.from, h->nonce, h->peer.nonce);
		h->stage = HANDSHAKE_PROOF;
		if (wrong == NULL && !say(h->fd, &m))
			wrong = "it left";
	} else {
		wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_PROOF, &h->peer.from, h->nonce);
		if (wrong == NULL && memcmp(h->in.nonce, h->peer.nonce, 16) != 0)
			wrong = "its nonce has changed";
		if (wrong == NULL) {
			admit(in, h);
			return;
		}
	}
	if (wrong != NULL) {
		tcp_log(in, COLL_LOG_DEBUG, "tcp: a connection was refused: %s", wrong);
		turn_away(in, h);
	}
}

/* Descriptors are out: first strangers go, then the one at the door is let in by
 * the reserve and shown out, and the door stays shut until the next tick. */
static bool no_descriptors(struct tcp_inst *in)
{
	int fd;

	if (in->pending_count > 0) {
		turn_away(in, least_promising(in));
		return true;
	}
	if (in->reserve_fd >= 0) {
		close(in->reserve_fd);
		fd = accept4(in->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			close(fd);
		in->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	tcp_log(in, COLL_LOG_WARN, "tcp: out of descriptors, a connection was refused");
	in->accept_off = listen_for(in, in->listen_fd, 0, tcp_tag(TAG_LISTEN, 0, 0), EPOLL_CTL_MOD);
	return false;
}

static bool open_door(struct tcp_inst *in)
{
	const int fd = accept4(in->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct tcp_handshake *h;

	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return no_descriptors(in);
	if (fd < 0)
		return errno == ECONNABORTED || errno == EINTR;
	h = free_place(in);
	h->fd = fd;
	h->stage = HANDSHAKE_HELLO;
	h->got = 0;
	h->started_ns = coll_clock_ns();
	h->deadline_ns = h->started_ns + TCP_PENDING_MS * UINT64_C(1000000);
	make_nonce(h->nonce);
	in->pending_count++;
	if (!listen_for(in, fd, EPOLLIN, tcp_tag(TAG_PENDING, h->generation, (uint32_t)(h - in->pending)),
	                EPOLL_CTL_ADD))
		turn_away(in, h);
	else
		stranger(in, h);
	return true;
}

static void accept_some(struct tcp_inst *in)
{
	for (int i = 0; i < TCP_ACCEPTS_PER_CALL; i++)
		if (!open_door(in))
			break;
}

/* ---- connecting ---------------------------------------------------------------- */

static void give_up(struct tcp_link *l, coll_status why, const char *cause)
{
	pthread_mutex_lock(&l->lock);
	coll_tcp_link_fail(l, why, "cannot connect: %s", cause);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->lock);
}

enum outcome { OUTCOME_NO, OUTCOME_LATER, OUTCOME_LATE };

/* This candidate did not work out: the next one, another round, or the end. */
static void attempt_failed(struct tcp_link *l, enum outcome outcome, const char *cause)
{
	const uint64_t now = coll_clock_ns();
	char where[80] = "";

	hang_up(&l->attempt);
	l->retry_any |= outcome == OUTCOME_LATER;
	l->late_any |= outcome == OUTCOME_LATE;
	if (l->target_next < l->target.count)
		coll_tcp_candidate_text(&l->target.candidate[l->target_next], where, sizeof(where));
	snprintf(l->last_error, sizeof(l->last_error), "%s: %s", where, cause);
	tcp_log(l->inst, COLL_LOG_DEBUG, "tcp: connecting to %s", l->last_error);
	l->retry_ns = now;
	if (++l->target_next < l->target.count)
		return;
	l->target_next = 0;
	if (l->retry_any && now < l->deadline_ns) {
		l->retry_ns = now + TCP_RETRY_MS * UINT64_C(1000000);
	} else if (l->late_any && l->round == 0 && l->target.count > 1) {
		l->round = 1;
	} else {
		give_up(l, COLL_ERR_PEER_DEAD, l->last_error);
		return;
	}
	l->retry_any = l->late_any = false;
}

/* Local shortages pass, everything else is an answer. */
static enum outcome outcome_of(int e)
{
	return e == EADDRNOTAVAIL || e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM || e == EAGAIN
	               ? OUTCOME_LATER
	               : OUTCOME_NO;
}

static void attempt(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	struct sockaddr_storage sa;
	const socklen_t len = coll_tcp_candidate_sockaddr(&l->target.candidate[l->target_next], &sa);
	const uint32_t wait_ms = l->target.count > 1 && l->round == 0 ? TCP_CONNECT_FIRST_MS : TCP_CONNECT_MS;
	const uint64_t tag = tcp_tag(TAG_ATTEMPT, h->generation, l->slot);

	h->started_ns = coll_clock_ns();
	h->deadline_ns = h->started_ns + wait_ms * UINT64_C(1000000);
	h->got = 0;
	h->stage = HANDSHAKE_CONNECTING;
	make_nonce(h->nonce);
	h->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (h->fd < 0 || !listen_for(in, h->fd, EPOLLOUT, tag, EPOLL_CTL_ADD) ||
	    (connect(h->fd, (struct sockaddr *)&sa, len) != 0 && errno != EINPROGRESS))
		attempt_failed(l, outcome_of(errno), strerror(errno));
}

static void connected(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	const uint64_t tag = tcp_tag(TAG_ATTEMPT, h->generation, l->slot);
	struct coll_tcp_hello m;
	int e = 0;
	socklen_t len = sizeof(e);

	if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0)
		e = errno;
	if (e != 0) {
		attempt_failed(l, outcome_of(e), strerror(e));
		return;
	}
	coll_tcp_hello_make(&m, in, COLL_TCP_HELLO, &l->peer, h->nonce, no_nonce);
	h->stage = HANDSHAKE_CHALLENGE;
	/* The peer's kernel answers; how long its service thread may take is the
	 * silence that the whole library allows. */
	h->deadline_ns = l->deadline_ns;
	if (!say(h->fd, &m) || !listen_for(in, h->fd, EPOLLIN, tag, EPOLL_CTL_MOD))
		attempt_failed(l, OUTCOME_LATER, "the connection was closed");
}

static void challenged(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	const char *wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_CHALLENGE, &l->peer, h->nonce);
	struct coll_tcp_hello m;

	if (wrong != NULL) {
		attempt_failed(l, OUTCOME_NO, wrong);
		return;
	}
	h->peer = h->in;
	coll_tcp_hello_make(&m, in, COLL_TCP_PROOF, &l->peer, h->nonce, h->peer.nonce);
	h->stage = HANDSHAKE_PROOF;
	if (!say(h->fd, &m))
		attempt_failed(l, OUTCOME_LATER, "the connection was closed");
}

static void judged(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	const char *wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_VERDICT, &l->peer, h->nonce);
	const int fd = h->fd;

	if (wrong != NULL || memcmp(h->in.nonce, h->peer.nonce, 16) != 0) {
		attempt_failed(l, OUTCOME_NO, wrong ? wrong : "its nonce has changed");
		return;
	}
	if (h->in.verdict != COLL_TCP_ACCEPT) {
		attempt_failed(l, OUTCOME_LATER, "the peer is making a connection of its own");
		return;
	}
	epoll_ctl(in->service_epoll, EPOLL_CTL_DEL, fd, NULL);
	h->fd = -1;
	hang_up(h);
	pthread_mutex_lock(&in->lock);
	pthread_mutex_lock(&l->lock);
	if (l->state == LINK_CONNECTING)
		coll_tcp_link_up(l, fd, coll_tcp_hello_seed(in->env.job_key, h->nonce, h->peer.nonce),
		                 h->peer.host == in->address.machine);
	else
		close(fd);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->lock);
	pthread_mutex_unlock(&in->lock);
}

static void attempt_event(struct tcp_inst *in, uint64_t tag)
{
	struct tcp_link *l;
	int complete;

	pthread_mutex_lock(&in->lock);
	l = (uint32_t)tag < in->link_count ? in->links[(uint32_t)tag] : NULL;
	pthread_mutex_unlock(&in->lock);
	if (l == NULL || l->attempt.fd < 0 || tcp_tag(TAG_ATTEMPT, l->attempt.generation, l->slot) != tag)
		return;
	if (l->attempt.stage == HANDSHAKE_CONNECTING) {
		connected(l);
		return;
	}
	complete = hear(&l->attempt);
	if (complete < 0)
		attempt_failed(l, OUTCOME_LATER, "the peer ended the handshake");
	else if (complete > 0 && l->attempt.stage == HANDSHAKE_CHALLENGE)
		challenged(l);
	else if (complete > 0)
		judged(l);
}

/* What a connecting link needs now. */
static void pursue(struct tcp_link *l, uint64_t now)
{
	bool connecting, wanted;

	pthread_mutex_lock(&l->lock);
	connecting = l->state == LINK_CONNECTING;
	wanted = l->opens > 0;
	if (connecting && l->lingering) {
		hang_up(&l->attempt);
		coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "closed");
		connecting = false;
	}
	pthread_mutex_unlock(&l->lock);
	if (!connecting || !wanted)
		return;
	if (l->attempt.fd >= 0 && now >= l->attempt.deadline_ns)
		attempt_failed(l, OUTCOME_LATE,
		               l->attempt.stage == HANDSHAKE_CONNECTING ? "no answer" : "no answer to the handshake");
	else if (l->attempt.fd < 0 && now >= l->retry_ns)
		attempt(l);
}

static struct tcp_link *link_at(struct tcp_inst *in, uint32_t i)
{
	struct tcp_link *l;

	pthread_mutex_lock(&in->lock);
	l = i < in->link_count ? in->links[i] : NULL;
	pthread_mutex_unlock(&in->lock);
	return l;
}

static void pursue_all(struct tcp_inst *in)
{
	struct tcp_link *l;

	if (atomic_load(&in->connecting) == 0)
		return;
	for (uint32_t i = 0; (l = link_at(in, i)) != NULL; i++)
		pursue(l, coll_clock_ns());
}

/* ---- links that are up -------------------------------------------------------------- */

/* The stream ends or broke: read what is left, then the end itself. */
static void link_event(struct tcp_inst *in, uint64_t tag)
{
	struct tcp_link *l = coll_tcp_link_lock(in, tag);

	if (l == NULL)
		return;
	while (l->state == LINK_UP && coll_tcp_rx(l, 1 << 20) > 0)
		;
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->lock);
}

/*
 * Whether the other host still acknowledges. An idle link sends a NOP, so that
 * there is something to acknowledge; the peer's kernel does that even if the
 * process is stopped or busy, so this asks for the host and the way to it only.
 */
static void check_host(struct tcp_link *l, uint32_t since_ms)
{
	struct coll_tcp_head nop = {.type = COLL_TCP_NOP};
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return;
	if ((info.tcpi_unacked == 0 && info.tcpi_probes == 0) || info.tcpi_last_ack_recv < since_ms)
		l->silent_ticks = 0;
	else if (++l->silent_ticks >= TCP_SILENT_TICKS)
		coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "host unreachable: no acknowledgement for %u ms",
		                   l->silent_ticks * since_ms);
	if (info.tcpi_unacked == 0 && l->moved == l->moved_at_tick && l->queue_count == 0)
		coll_tcp_tx_control(l, &nop);
	l->moved_at_tick = l->moved;
}

static void check_hosts(struct tcp_inst *in, uint64_t now, bool busy)
{
	const uint32_t since_ms = (uint32_t)((now - in->liveness_ns) / 1000000);
	struct tcp_link *l;

	if (since_ms < TCP_TICK_REMOTE_MS)
		return;
	in->liveness_ns = now;
	in->remote_count = 0;
	for (uint32_t i = 0; (l = link_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP && !l->near) {
			in->remote_count++;
			/* Since the last look; a pause of this process counts as one look. */
			check_host(l, TCP_TICK_REMOTE_MS);
			if (!busy)
				coll_tcp_rx(l, 1 << 20);
			coll_tcp_link_work(l);
		}
		pthread_mutex_unlock(&l->lock);
	}
}

/*
 * Bytes that a call left in the queue when it returned go out from here, unless
 * calls are running. The flag is taken down before the queues are looked at:
 * whoever queues afterwards raises it, and sets the timer, again.
 */
static void flush_idle(struct tcp_inst *in, bool busy)
{
	bool left = false;
	struct tcp_link *l;

	if (!atomic_exchange(&in->flush_timer, false))
		return;
	for (uint32_t i = 0; (l = link_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP && l->queue_count > 0) {
			if (!busy)
				coll_tcp_tx_flush(l);
			left |= l->queue_count > 0;
			coll_tcp_link_work(l);
		}
		pthread_mutex_unlock(&l->lock);
	}
	if (left)
		atomic_store(&in->flush_timer, true);
}

/* ---- the timer ------------------------------------------------------------------------ */

static void set_timer(struct tcp_inst *in, uint32_t ms)
{
	const struct itimerspec t = {.it_interval.tv_nsec = ms * 1000000L, .it_value.tv_nsec = ms * 1000000L};

	timerfd_settime(in->timer_fd, 0, &t, NULL);
}

void coll_tcp_service_flush_soon(struct tcp_inst *in)
{
	if (!atomic_exchange(&in->flush_timer, true))
		set_timer(in, TCP_TICK_FLUSH_MS);
}

static uint32_t wanted_tick(struct tcp_inst *in, bool flush)
{
	if (flush)
		return TCP_TICK_FLUSH_MS;
	if (atomic_load(&in->connecting) > 0)
		return TCP_RETRY_MS;
	if (in->pending_count > 0 || in->accept_off)
		return TCP_TICK_PENDING_MS;
	return in->remote_count > 0 ? TCP_TICK_REMOTE_MS : 0;
}

static void adjust_timer(struct tcp_inst *in)
{
	bool flush;

	do {
		flush = atomic_load(&in->flush_timer);
		const uint32_t ms = wanted_tick(in, flush);

		if (ms != in->tick_ms || flush)
			set_timer(in, ms);
		in->tick_ms = flush ? TCP_TICK_FLUSH_MS : ms;
	} while (flush != atomic_load(&in->flush_timer));
}

static void tick(struct tcp_inst *in)
{
	const uint64_t now = coll_clock_ns();
	const uint64_t calls = atomic_load_explicit(&in->progress_calls, memory_order_relaxed);
	const bool busy = calls != in->progress_at_tick;
	uint64_t times;

	if (read(in->timer_fd, &times, sizeof(times)) < 0)
		return;
	in->progress_at_tick = calls;
	for (int i = 0; i < TCP_PENDING_MAX && in->pending_count > 0; i++)
		if (in->pending[i].fd >= 0 && now >= in->pending[i].deadline_ns)
			turn_away(in, &in->pending[i]);
	if (in->accept_off)
		in->accept_off = !listen_for(in, in->listen_fd, EPOLLIN, tcp_tag(TAG_LISTEN, 0, 0), EPOLL_CTL_MOD);
	flush_idle(in, busy);
	check_hosts(in, now, busy);
}

/* ---- service --------------------------------------------------------------------------- */

static void dispatch(struct tcp_inst *in, uint64_t tag)
{
	const uint32_t index = (uint32_t)tag;
	uint64_t times;

	switch (tag >> 60) {
	case TAG_LISTEN: accept_some(in); break;
	case TAG_KICK:
		if (read(in->kick_fd, &times, sizeof(times)) < 0)
			break;
		break;
	case TAG_TIMER: tick(in); break;
	case TAG_PENDING:
		if (index < TCP_PENDING_MAX && in->pending[index].fd >= 0 &&
		    tcp_tag(TAG_PENDING, in->pending[index].generation, index) == tag)
			stranger(in, &in->pending[index]);
		break;
	case TAG_ATTEMPT: attempt_event(in, tag); break;
	case TAG_LINK: link_event(in, tag); break;
	default: break;
	}
}

/* service_lock held. */
static bool serve(struct tcp_inst *in)
{
	struct epoll_event ev[TCP_EVENTS];
	const int n = epoll_wait(in->service_epoll, ev, TCP_EVENTS, 0);

	for (int i = 0; i < n; i++)
		dispatch(in, ev[i].data.u64);
	pursue_all(in);
	coll_tcp_link_compact(in);
	adjust_timer(in);
	return n > 0;
}

void coll_tcp_service(void *inst)
{
	struct tcp_inst *in = inst;

	pthread_mutex_lock(&in->service_lock);
	serve(in);
	pthread_mutex_unlock(&in->service_lock);
	coll_tcp_link_notify(in);
}

bool coll_tcp_service_try(struct tcp_inst *in)
{
	bool any;

	if (pthread_mutex_trylock(&in->service_lock) != 0)
		return false;
	any = serve(in);
	pthread_mutex_unlock(&in->service_lock);
	return any;
}
