/*
 * Connecting: one attempt at a time per link, over the peer's candidates, the best of them between any two others,
 * each with a deadline. No failure is final before COLL_UNREACHABLE_MS is over: networks come back, and whether the
 * process has ended is found by the control plane. Everything runs under
 * service.lock, which guards link->attempt and its related fields.
 */
#include "transports/tcp/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/proof.h"
#include "tcp.h"
#include "transports/common/rails.h"
#include "transports/tcp/address.h"
#include "transports/tcp/check.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/link.h"

static void give_up(struct tcp_link *l, coll_status why, const char *cause)
{
	pthread_mutex_lock(&l->base.lock);
	/* Another of its rails may lead there. */
	if (l->again && coll_clock_ns() < l->stranded_ns + l->inst->timeout_ns)
		l->stranded = true;
	else
		coll_tcp_link_fail(l, why, "cannot connect: %s", cause);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->base.lock);
}

/* NO: an answer, and a wrong one. LATER: a passing shortage. LATE: no answer to the handshake. UNREACHED: no
 * connection, now. */
enum outcome { OUTCOME_NO, OUTCOME_LATER, OUTCOME_LATE, OUTCOME_UNREACHED };

/* The best candidate is tried again before each of the others, so that it is found soon once it works. False: all have
 * had their turn. */
static bool next_target(struct tcp_link *l)
{
	const unsigned last = l->target_next;

	l->target_next = 0;
	if (last > 0 && l->target_other + 1 < l->target.count)
		return true;
	if (last == 0 && l->target_other + 1 < l->target.count) {
		l->target_next = ++l->target_other;
		return true;
	}
	l->target_other = 0;
	return false;
}

/* This candidate did not work out: the next one, another round, or the end. */
static void attempt_failed(struct tcp_link *l, enum outcome outcome, const char *cause)
{
	const uint64_t now = coll_clock_ns();
	char where[80] = "";

	if (outcome == OUTCOME_UNREACHED && l->cut_off_ns == 0)
		l->cut_off_ns = l->attempt.started_ns;
	coll_tcp_hang_up(&l->attempt);
	l->retry_any |= outcome == OUTCOME_LATER;
	l->cut_off_any |= outcome == OUTCOME_UNREACHED;
	coll_tcp_candidate_text(&l->target.candidate[l->target_next], where, sizeof(where));
	snprintf(l->last_error, sizeof(l->last_error), "%s: %s", where, cause);
	tcp_log(l->inst, COLL_LOG_DEBUG, "tcp: connecting to %s", l->last_error);
	l->retry_ns = now;
	if (next_target(l))
		return;
	if (l->retry_any && now < l->deadline_ns) {
		l->retry_ns = now + COLL_DELAY_NS(TCP_AGAIN);
	} else if (l->cut_off_any && now < l->cut_off_ns + l->inst->unreachable_ns) {
		l->retry_ns = now + COLL_DELAY_NS(TCP_AGAIN);
	} else if (l->short_ns != 0) {
		give_up(l, COLL_ERR_SYSTEM, l->last_error);
		return;
	} else {
		/* A host that was silent for all that time need not be doubted for long any more. One that took the
		 * connection may have a process that lives. */
		give_up(l, l->cut_off_any ? COLL_ERR_PEER_SILENT : COLL_ERR_PEER_DEAD, l->last_error);
		return;
	}
	l->round++;
	l->retry_any = l->cut_off_any = false;
}

/* Local shortages pass, and the limit of this process is given some time; a network may come back. */
static enum outcome outcome_of(const struct tcp_link *l, int e)
{
	if (e == EMFILE && l->short_ns != 0 && coll_clock_ns() >= l->short_ns + COLL_DELAY_NS(TCP_NO_DESCRIPTOR))
		return OUTCOME_NO;
	/* The kernel that refuses is the peer's own, and knows. */
	if (e == ECONNREFUSED && l->target.name_space == l->inst->address.name_space)
		return OUTCOME_NO;
	return e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM || e == EAGAIN ? OUTCOME_LATER
	                                                                                : OUTCOME_UNREACHED;
}

/* From the address that a rail is to use, if it has one for this candidate. */
static bool bind_source(struct tcp_link *l)
{
	struct coll_tcp_candidate from = l->source;
	const int one = 1;
	struct sockaddr_storage sa;

	if (!l->sourced || l->target_next > 0)
		return true;
	from.port = 0;
	/* The port is chosen by connect, so that ports do not run out by address. */
	if (setsockopt(l->attempt.fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one)) != 0)
		return false;
	return bind(l->attempt.fd, (struct sockaddr *)&sa, coll_tcp_candidate_sockaddr(&from, &sa)) == 0;
}

static void attempt(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	struct sockaddr_storage sa;
	const socklen_t len = coll_tcp_candidate_sockaddr(&l->target.candidate[l->target_next], &sa);
	const uint32_t wait_ms =
	        l->target.count > 1 && l->round == 0 ? COLL_DELAY_TCP_CONNECT_FIRST_MS : COLL_DELAY_TCP_CONNECT_MS;
	const uint64_t tag = tcp_tag(TAG_ATTEMPT, h->generation, l->base.slot);

	h->started_ns = coll_clock_ns();
	h->deadline_ns = h->started_ns + wait_ms * COLL_NS_PER_MS;
	h->got = 0;
	h->stage = HANDSHAKE_CONNECTING;
	coll_nonce(&in->nonces, h->nonce);
	h->fd = COLL_FD(socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	if (h->fd < 0 && coll_errno_is_shortage(errno) && l->short_ns == 0)
		l->short_ns = h->started_ns;
	if (h->fd >= 0) {
		l->short_ns = 0;
		coll_tcp_link_prepare(in, h->fd);
		coll_tcp_link_control(in, h->fd,
		                      l->target.machine == in->address.machine ? TCP_PATH_HERE : TCP_PATH_AWAY);
	}
	if (h->fd < 0 || !bind_source(l) || !coll_reactor_watch(&in->service, h->fd, EPOLLOUT, tag, EPOLL_CTL_ADD) ||
	    (connect(h->fd, (struct sockaddr *)&sa, len) != 0 && errno != EINPROGRESS))
		attempt_failed(l, outcome_of(l, errno), coll_errno_text(errno).text);
}

/* A message of the handshake from our side, with the number of the rail. */
static void speak(struct tcp_link *l, struct coll_tcp_hello *m, enum coll_tcp_hello_type type, const uint64_t other[2])
{
	coll_tcp_hello_make(m, l->inst, type, &l->base.peer, l->attempt.nonce, other);
	m->verdict = (uint8_t)(l->base.part | (l->several ? COLL_TCP_SEVERAL : 0));
	m->line = l->again ? l->line : 0;
	m->made = l->made;
	coll_tcp_hello_seal(m, l->inst->env.job_key, other);
}

static void connected(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	const uint64_t tag = tcp_tag(TAG_ATTEMPT, h->generation, l->base.slot);
	struct coll_tcp_hello m;
	int e = 0;
	socklen_t len = sizeof(e);

	if (getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &e, &len) != 0)
		e = errno;
	if (e != 0) {
		attempt_failed(l, outcome_of(l, e), coll_errno_text(e).text);
		return;
	}
	/* How long the process may be silent counts from now. */
	l->deadline_ns += coll_clock_ns() - (l->cut_off_ns ? l->cut_off_ns : h->started_ns);
	l->cut_off_ns = 0;
	speak(l, &m, COLL_TCP_HELLO, coll_tcp_no_nonce);
	h->stage = HANDSHAKE_CHALLENGE;
	/* The peer's kernel answers; how long its service thread may take is the
	 * silence that the whole library allows. */
	h->deadline_ns = l->deadline_ns;
	if (!coll_tcp_say(in, h->fd, &m) || !coll_reactor_watch(&in->service, h->fd, EPOLLIN, tag, EPOLL_CTL_MOD))
		attempt_failed(l, OUTCOME_LATER, "the connection was closed");
}

static void challenged(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	const char *wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_CHALLENGE, &l->base.peer, h->nonce);
	struct coll_tcp_hello m;

	if (wrong != NULL) {
		attempt_failed(l, OUTCOME_NO, wrong);
		return;
	}
	h->peer = h->in;
	speak(l, &m, COLL_TCP_PROOF, h->peer.nonce);
	h->stage = HANDSHAKE_PROOF;
	if (!coll_tcp_say(in, h->fd, &m))
		attempt_failed(l, OUTCOME_LATER, "the connection was closed");
}

static void judged(struct tcp_link *l)
{
	struct tcp_inst *in = l->inst;
	struct tcp_handshake *h = &l->attempt;
	const char *wrong = coll_tcp_hello_check(&h->in, in, COLL_TCP_VERDICT, &l->base.peer, h->nonce);
	const int fd = h->fd;

	if (wrong != NULL || memcmp(h->in.nonce, h->peer.nonce, 16) != 0) {
		attempt_failed(l, OUTCOME_NO, wrong ? wrong : "its nonce has changed");
		return;
	}
	if (h->in.verdict != COLL_TCP_ACCEPT) {
		attempt_failed(l, OUTCOME_LATER, "the peer is making a connection of its own");
		return;
	}
	epoll_ctl(in->service.epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	h->fd = -1;
	coll_tcp_hang_up(h);
	pthread_mutex_lock(&in->links.lock);
	pthread_mutex_lock(&l->base.lock);
	l->made = h->in.made;
	l->check = coll_tcp_check_between(in, &h->in);
	if (l->state == LINK_CONNECTING)
		coll_tcp_link_up(l, fd, coll_tcp_hello_key(in->env.job_key, h->nonce, h->peer.nonce),
		                 h->peer.host == in->address.machine);
	else
		coll_fd_close(fd);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->base.lock);
	pthread_mutex_unlock(&in->links.lock);
}

void coll_tcp_connect_event(struct tcp_inst *in, uint64_t tag)
{
	struct tcp_link *l = tcp_link_at(in, (uint32_t)tag);
	int complete;

	if (l == NULL || l->attempt.fd < 0 || tcp_tag(TAG_ATTEMPT, l->attempt.generation, l->base.slot) != tag)
		return;
	if (l->attempt.stage == HANDSHAKE_CONNECTING) {
		connected(l);
		return;
	}
	complete = coll_tcp_hear(in, &l->attempt);
	if (complete < 0)
		attempt_failed(l, OUTCOME_LATER, "the peer ended the handshake");
	else if (complete > 0 && l->attempt.stage == HANDSHAKE_CHALLENGE)
		challenged(l);
	else if (complete > 0)
		judged(l);
}

/* The peer may have taken this connection, and waits for what we say on it. */
static bool proven(const struct tcp_link *l)
{
	return l->attempt.fd >= 0 && l->attempt.stage == HANDSHAKE_PROOF;
}

bool coll_tcp_connect_closing(struct tcp_inst *in, const struct coll_process_id *peer, uint32_t part)
{
	bool closing = false;

	for (uint32_t i = 0; i < in->links.count && !closing; i++) {
		struct tcp_link *l = (struct tcp_link *)in->links.at[i];

		if (!proven(l) || l->base.part != part || !coll_same_process(&l->base.peer, peer))
			continue;
		pthread_mutex_lock(&l->base.lock);
		closing = l->base.lingering && l->state == LINK_CONNECTING;
		pthread_mutex_unlock(&l->base.lock);
	}
	return closing;
}

static bool may_attempt(struct tcp_link *l)
{
	bool closing;

	pthread_mutex_lock(&l->inst->links.lock);
	closing = coll_tcp_connect_closing(l->inst, &l->base.peer, l->base.part);
	pthread_mutex_unlock(&l->inst->links.lock);
	return !closing;
}

/* What a connecting link needs now. */
void coll_tcp_connect_retry(struct tcp_link *l, uint64_t now)
{
	bool connecting, wanted;

	pthread_mutex_lock(&l->base.lock);
	connecting = l->state == LINK_CONNECTING;
	if (connecting && l->stranded && l->base.opens == 0 && now >= l->stranded_ns + l->inst->timeout_ns)
		coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "nobody has opened it");
	if (connecting && l->stranded)
		coll_link_rails_notice(&l->inst->links);
	/* Closed: if the peer may have accepted the connection, send BYE there; without it the end would count as a
	 * death. */
	wanted = l->base.opens > 0 || (l->base.lingering && proven(l));
	if (connecting && l->base.lingering && !wanted) {
		coll_tcp_hang_up(&l->attempt);
		coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "closed");
	}
	wanted &= !l->stranded;
	pthread_mutex_unlock(&l->base.lock);
	if (!connecting || !wanted)
		return;
	if (l->attempt.fd >= 0 && now >= l->attempt.deadline_ns && l->attempt.stage == HANDSHAKE_CONNECTING)
		attempt_failed(l, OUTCOME_UNREACHED, "no answer");
	else if (l->attempt.fd >= 0 && now >= l->attempt.deadline_ns)
		attempt_failed(l, OUTCOME_LATE, "no answer to the handshake");
	else if (l->attempt.fd < 0 && now >= l->retry_ns && may_attempt(l))
		attempt(l);
}
