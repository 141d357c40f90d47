/*
 * Links to other processes: which ones to connect to, which connections to accept, mutual
 * authentication, and what the end of a link means. socket.c owns the sockets.
 */
#include "control/connect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "control/handshake.h"
#include "control/liveness.h"
#include "control/one_host.h"
#include "control/ping.h"
#include "control/process.h"
#include "control/state.h"
#include "control/words.h"
#include "net/net.h"

enum { STRANGERS_MAX = 128, ACCEPTS_PER_CALL = 64 };

void coll_control_watch(struct coll_control *c, struct coll_control_link *l)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = l->serial};

	if (l->connecting || l->count > 0)
		e.events |= EPOLLOUT;
	if (coll_net->epoll_ctl(c->epoll, EPOLL_CTL_MOD, l->fd, &e) < 0)
		coll_net->epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->fd, &e);
}

static struct coll_control_link *add_link(struct coll_control *c, int fd, int peer)
{
	struct coll_control_link *l;

	if (c->nlinks == CONTROL_LINKS_MAX || !(l = calloc(1, sizeof(*l)))) {
		coll_net->close(fd);
		errno = ENOMEM;
		return NULL;
	}
	l->fd = fd;
	l->serial = SERIAL_FIRST + c->serial++;
	l->peer = peer;
	c->links[c->nlinks++] = l;
	return l;
}

void coll_control_drop_link(struct coll_control *c, struct coll_control_link *l)
{
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i] == l)
			c->links[i] = c->links[--c->nlinks];
	coll_control_take_words(c, l);
	coll_net->close(l->fd);
	free(l);
}

struct coll_control_link *coll_control_find_link(const struct coll_control *c, int peer)
{
	struct coll_control_link *found = NULL;

	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->peer == peer && !c->links[i]->bye && (!found || c->links[i]->ready))
			found = c->links[i];
	return found;
}

static bool same_host(const struct coll_control *c, const struct coll_peer_info *info)
{
	const struct coll_peer_info *own = &c->peer_infos[c->rank];

	/* One that was told that all are on one host has no port. */
	return info->control_unix[0] &&
	       (coll_one_host(info, own) || (!info->control_port && info->name_space == own->name_space));
}

/* Wait limit with a handshake doubles: a starved peer needs longer than the first time,
 * a stopped one is not to be buried under connections. */
uint64_t coll_control_hello_deadline(struct peer *p)
{
	const unsigned ms = p->hello_ms ? p->hello_ms : COLL_DELAY_CONTROL_HELLO_MIN_MS;

	p->hello_ms = ms < COLL_DELAY_CONTROL_HELLO_MAX_MS ? 2 * ms : ms;
	return coll_clock_ns() + ms * COLL_NS_PER_MS;
}

static int unreachable_ms(const struct coll_control *c)
{
	return coll_settings_unreachable_ms(c->env.settings);
}
static uint64_t unreachable_ns(const struct coll_control *c)
{
	return (uint64_t)unreachable_ms(c) * COLL_NS_PER_MS;
}

/* Both in one network namespace: a refusal there comes from the kernel that knows. */
static bool near(const struct coll_control *c, int peer)
{
	return coll_one_network(&c->peer_infos[peer], &c->peer_infos[c->rank]);
}

static void read_ips(const struct coll_control *c, int peer, struct coll_ips *l)
{
	size_t len;
	const uint8_t *bytes = coll_peer_info_part(&c->peer_infos[peer], c->peer_infos[peer].ips, &len);

	if (!coll_ips_unpack(l, bytes, len))
		l->count = 0;
}

/* The addresses of a peer, that which has worked first. */
static void candidates(const struct coll_control *c, int peer, struct coll_ips *l, bool *is_near)
{
	const struct coll_peer_info *info = &c->peer_infos[peer];
	const struct peer *p = &c->peers[peer];
	struct coll_ips own;

	read_ips(c, c->rank, &own);
	read_ips(c, peer, l);
	*is_near = near(c, peer);
	coll_ips_order(&own, l, info->has_met ? &info->met : NULL, *is_near);
	for (unsigned i = 1; p->has_proved && i < l->count; i++)
		if (coll_ip_same(&l->at[i], &p->proved)) {
			const struct coll_ip first = l->at[i];

			memmove(&l->at[1], &l->at[0], i * sizeof(l->at[0]));
			l->at[0] = first;
		}
}

/* The data link to it has ended, and the best of its addresses refuses, which began at most LIVENESS before: a process
 * that was killed before a control link to it was proved. A firewall refuses from the start. */
static bool shut_with_end(const struct peer *p, int candidate)
{
	return candidate == 0 && p->suspect_until_ns && p->link_lost && !p->unreached &&
	       (!p->cut_off_ns || p->cut_off_ns + 2 * COLL_DELAY_NS(LIVENESS) > p->suspect_until_ns);
}

/* Of a connection that could not be made. ip NULL: of the Unix one. */
static void failed_at(struct coll_control *c, int peer, const struct coll_ip *ip, int candidate, bool is_near,
                      int error)
{
	struct peer *p = &c->peers[peer];
	char where[64] = "its local socket";

	if (ip)
		coll_ip_text(ip, c->peer_infos[peer].control_port, where, sizeof(where));
	snprintf(p->tried, sizeof(p->tried), "%s: %.40s", where, strerror(error));
	p->sure |= error == ECONNREFUSED &&
	           (!ip || is_near || (p->has_proved && coll_ip_same(ip, &p->proved)) || shut_with_end(p, candidate));
}

/* The best is tried first in every round, then the others in turn: a round ends behind one of them that does not fail
 * at once, so that it is not long before the best is tried again. */
static unsigned turn_of(struct peer *p, int candidate, unsigned count)
{
	return candidate == 0 ? 0 : 1 + p->other++ % (count - 1);
}

/* One address that does not answer must not keep the verdict waiting. */
static uint64_t connect_deadline(const struct coll_control *c, int peer, bool probe)
{
	const uint64_t now = coll_clock_ns(), end = c->peers[peer].trying_ns + unreachable_ns(c);
	const uint64_t until = now + (probe ? COLL_DELAY_NS(CONTROL_PROBE) : COLL_DELAY_NS(CONTROL_HANDSHAKE));

	return end > now + COLL_DELAY_NS(CONTROL_KEEP_LINKS) && end < until ? end : until;
}

/* Try addresses from candidate on; false when none is left, or the one that counts has refused. */
static bool connect_to(struct coll_control *c, int peer, int candidate, bool asked, bool probe)
{
	const struct coll_peer_info *info = &c->peer_infos[peer];
	const bool by_unix = same_host(c, info);
	bool in_progress, is_near = false;
	struct coll_ips ips = {.count = 0};

	if (!by_unix)
		candidates(c, peer, &ips, &is_near);
	if (!by_unix && ips.count == 0) {
		snprintf(c->peers[peer].tried, sizeof(c->peers[peer].tried), "no address of it can be tried");
		errno = ENETUNREACH;
	}
	for (; candidate < (int)ips.count && !c->peers[peer].sure; candidate++) {
		const struct coll_ip *ip =
		        candidate < 0 ? NULL : &ips.at[turn_of(&c->peers[peer], candidate, ips.count)];
		const int fd = coll_link_connect(info, ip, unreachable_ms(c), &in_progress);
		struct coll_control_link *l = fd >= 0 ? add_link(c, fd, peer) : NULL;

		if (!l) {
			failed_at(c, peer, ip, candidate, is_near, errno);
			continue;
		}
		l->connecting = in_progress;
		l->candidate = candidate;
		if (ip)
			l->ip = *ip;
		l->near = is_near;
		l->asked = asked;
		l->probe = probe;
		if (!c->peers[peer].opening_ns)
			c->peers[peer].opening_ns = coll_clock_ns();
		if (!in_progress)
			c->peers[peer].trying_ns = 0;
		l->deadline_ns =
		        !in_progress ? coll_control_hello_deadline(&c->peers[peer]) : connect_deadline(c, peer, probe);
		coll_control_watch(c, l);
		return true;
	}
	return false;
}

/* What this process lacks, or a full backlog (EAGAIN), which a stopped process may cause:
 * no word about the peer's life. */
static bool short_of(int error)
{
	return error == EAGAIN || error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS ||
	       error == EADDRNOTAVAIL;
}

static bool connect_first(struct coll_control *c, int peer, bool asked, bool probe)
{
	struct peer *p = &c->peers[peer];

	p->door_opened = p->sure = false;
	if (!p->trying_ns)
		p->trying_ns = coll_clock_ns();
	errno = 0;
	if (connect_to(c, peer, same_host(c, &c->peer_infos[peer]) ? -1 : 0, asked, probe))
		return true;
	if (!short_of(errno))
		return false;
	/* Nothing was tried: that is no time without a way to it. */
	if (!p->cut_off_ns)
		p->trying_ns = 0;
	return true;
}

/* None of its addresses accepts a connection, and none of those that refuse had worked before: the network may come
 * back, until the time is over. The data path may go another way. */
static void cut_off(struct coll_control *c, int peer, bool wanted)
{
	const uint64_t now = coll_clock_ns();
	struct peer *p = &c->peers[peer];
	char cause[160];

	if (!p->cut_off_ns) {
		p->cut_off_ns = p->trying_ns ? p->trying_ns : now;
		coll_control_say(c, COLL_LOG_INFO, "no control connection to rank %d now: %s", peer, p->tried);
	}
	if (!wanted || now - p->cut_off_ns < unreachable_ns(c) || p->dead ||
	    (c->env.linked && c->env.linked(c->env.ctx, peer)))
		return;
	snprintf(cause, sizeof(cause), "cannot connect to it for %llu ms, last at %s",
	         (unsigned long long)((now - p->cut_off_ns) / COLL_NS_PER_MS), p->tried);
	p->unreached = true;
	coll_control_missing(c, peer, cause);
}

/* wanted: a rank waits for the process, or a liveness check runs; otherwise a refusal is only recorded. */
static void no_entry(struct coll_control *c, int peer, bool wanted, const char *cause)
{
	if (!c->peers[peer].sure)
		cut_off(c, peer, wanted);
	else if (!wanted)
		c->peers[peer].refused = true;
	else
		coll_control_gone(c, peer, cause);
}

void coll_control_open_link(struct coll_control *c, int peer, bool asked)
{
	if (coll_control_find_link(c, peer) || peer == c->rank || c->peers[peer].dead)
		return;
	if (!connect_first(c, peer, asked, false))
		no_entry(c, peer, asked, "its process no longer listens");
}

void coll_control_probe(struct coll_control *c, int peer)
{
	if (!connect_first(c, peer, false, true))
		no_entry(c, peer, true, c->peers[peer].cause);
}

/* A link failed before or after its handshake. A peer that accepts and closes the connection before the
 * handshake completes lives: its listener is overloaded, and keep_links and send_pings try again. A connection that is
 * refused where one had worked means death. The end of an authenticated link starts a liveness check. */
void coll_control_broken(struct coll_control *c, struct coll_control_link *l, const char *cause, int error)
{
	const int peer = l->peer, next = l->candidate + 1;
	const struct coll_ip ip = l->ip;
	const bool was_ready = l->ready, connecting = l->connecting, is_near = l->near, bye = l->bye, asked = l->asked,
	           probe = l->probe, inbound = l->inbound;

	coll_control_drop_link(c, l);
	if (peer < 0 || bye || c->closing)
		return;
	if (was_ready) {
		coll_control_suspect(c, peer, cause,
		                     coll_errno_unreachable(error) ? COLL_SUSPECT_TIMEOUT : COLL_SUSPECT_CONTROL);
	} else if (!inbound) {
		if (connecting && error)
			failed_at(c, peer, next > 0 ? &ip : NULL, next - 1, is_near, error);
		errno = 0;
		if ((next == 1 && connect_to(c, peer, next, asked, probe)) || short_of(errno))
			return;
		if (!c->peers[peer].door_opened)
			no_entry(c, peer, asked || probe,
			         probe && c->peers[peer].cause[0] ? c->peers[peer].cause : cause);
	}
}

void coll_control_given_up(struct coll_control *c, struct coll_control_link *l)
{
	const struct coll_control_link *other;

	l->bye = true;
	other = coll_control_find_link(c, l->peer);
	c->peers[l->peer].met = other && other->ready;
}

/* Something between the ends has altered, added or repeated a message. What is lost with it may be a goodbye. */
void coll_control_altered(struct coll_control *c, struct coll_control_link *l, const char *where)
{
	struct peer *p = &c->peers[l->peer];

	coll_control_say(c, p->corrupt ? COLL_LOG_DEBUG : COLL_LOG_WARN,
	                 "[COLL-2105] the control link with rank %d on host %.63s is corrupt: a message on it fails "
	                 "its check%s, and is not believed; the link is made again",
	                 l->peer, c->peer_infos[l->peer].host_name, where);
	p->corrupt = true;
	coll_control_given_up(c, l);
}

void coll_control_corrupt(struct coll_control *c, struct coll_control_link *l)
{
	const struct coll_message m = {.type = COLL_MSG_ALTERED};

	coll_control_altered(c, l, "");
	coll_link_queue(l, &m);
	coll_link_flush(l);
	coll_control_drop_link(c, l);
}

static void listen_on(struct coll_control *c, int listener, uint64_t serial, bool on)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = serial};

	if (listener >= 0)
		coll_net->epoll_ctl(c->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener, &e);
}

void coll_control_listen(struct coll_control *c, bool on)
{
	c->listen_ns = 0;
	listen_on(c, c->listen_unix, LISTENER_UNIX, on);
	for (int i = 0; i < c->tcp.count; i++)
		listen_on(c, c->tcp.fd[i], LISTENER_TCP + (uint64_t)i, on);
}

void coll_control_accept(struct coll_control *c, int listener)
{
	for (int i = 0; i < ACCEPTS_PER_CALL; i++) {
		int fd = coll_net->accept(listener, SOCK_CLOEXEC | SOCK_NONBLOCK), strangers = 0;
		struct coll_control_link *l, *oldest = NULL;
		struct coll_message m = {.type = COLL_MSG_CHALLENGE};

		if (fd < 0) {
			/* Out of descriptors: the backlog waits, and would wake us for ever. */
			if (short_of(errno) && errno != EAGAIN) {
				coll_control_listen(c, false);
				c->listen_ns = coll_clock_ns() + COLL_DELAY_NS(CONTROL_LISTEN_AGAIN);
			}
			return;
		}
		for (int k = 0; k < c->nlinks; k++)
			if (c->links[k]->inbound && !c->links[k]->ready) {
				strangers++;
				if (!oldest || c->links[k]->deadline_ns < oldest->deadline_ns)
					oldest = c->links[k];
			}
		if (strangers >= STRANGERS_MAX)
			coll_control_drop_link(c, oldest);
		l = add_link(c, fd, -1);
		if (!l)
			continue;
		l->inbound = true;
		if (listener != c->listen_unix)
			coll_link_tune(fd, unreachable_ms(c));
		l->deadline_ns = coll_clock_ns() + COLL_DELAY_NS(CONTROL_STRANGER);
		coll_handshake_challenge(c, l, &m.u.hello);
		coll_link_queue(l, &m);
		/* Who has closed it already may have left words there. */
		if (coll_link_flush(l))
			coll_control_watch(c, l);
		else
			coll_control_drop_link(c, l);
	}
}

/* ---- Proof ---- */

/* Its address works: made by us, or one of which the peer says that it listens there. */
static void prove(struct coll_control *c, const struct coll_control_link *l)
{
	struct peer *p = &c->peers[l->peer];
	struct coll_ips theirs;
	struct coll_ip from;

	if (!coll_link_peer(l->fd, &from))
		return;
	read_ips(c, l->peer, &theirs);
	for (unsigned i = 0; i < theirs.count; i++)
		if (coll_ip_same(&theirs.at[i], &from)) {
			p->proved = from;
			p->has_proved = true;
		}
}

static void now_ready(struct coll_control *c, struct coll_control_link *l)
{
	l->ready = true;
	l->deadline_ns = UINT64_MAX;
	c->peers[l->peer].hello_ms = 0;
	c->peers[l->peer].opening_ns = 0;
	c->peers[l->peer].life.unanswered = 0;
	c->peers[l->peer].met = true;
	c->peers[l->peer].refused = false;
	c->peers[l->peer].cut_off_ns = c->peers[l->peer].trying_ns = 0;
	prove(c, l);
	if (c->peers[l->peer].life.presumed)
		c->peers[l->peer].life.presumed = c->peers[l->peer].life.left = false;
	if (!c->peers[l->peer].suspect_until_ns)
		l->probe = false;
	coll_control_watch_process(c, l->peer);
	coll_control_ask_for_life(c, l);
	coll_control_ask_again(c, l->peer);
}

bool coll_control_on_challenge(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h)
{
	struct coll_message m = {.type = COLL_MSG_HELLO};

	if (!coll_handshake_hello(c, l, h, &m.u.hello))
		return false;
	coll_link_queue(l, &m);
	l->greeted = true;
	return true;
}

bool coll_control_on_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h)
{
	struct coll_message m = {.type = COLL_MSG_WELCOME};

	if (!coll_handshake_welcome(c, l, h, &m.u.hello))
		return false;
	coll_link_queue(l, &m);
	now_ready(c, l);
	return true;
}

bool coll_control_on_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h)
{
	if (!coll_handshake_done(l, h))
		return false;
	now_ready(c, l);
	return true;
}

/* ---- Timers ---- */

/* The listener may have proved the link meanwhile (this process was stopped, or starved):
 * without a word its end would be this process's death. */
static void give_up(struct coll_control *c, struct coll_control_link *l)
{
	const struct coll_message m = {.type = COLL_MSG_CLOSE};

	if (l->greeted) {
		coll_link_queue(l, &m);
		coll_link_flush(l);
	}
	coll_control_drop_link(c, l);
}

void coll_control_expire(struct coll_control *c, uint64_t now)
{
	if (c->listen_ns && now >= c->listen_ns)
		coll_control_listen(c, true);
	for (int i = 0; i < c->nlinks; i++) {
		struct coll_control_link *l = c->links[i];

		if (l->ready || now <= l->deadline_ns)
			continue;
		/* Connected but not answered is silence, not death. */
		if (l->connecting)
			coll_control_broken(c, l, "connecting to it timed out", ETIMEDOUT);
		else
			give_up(c, l);
		i = -1; /* the array changed */
	}
}
