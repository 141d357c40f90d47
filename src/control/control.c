/*
 * The control plane: what runs it, and its interface (control.h). The lock is taken
 * here and by the interface functions of gossip.c and ping.c.
 */
#include "control/control.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "control/connect.h"
#include "control/gossip.h"
#include "control/keepalive.h"
#include "control/last_error.h"
#include "control/liveness.h"
#include "control/one_host.h"
#include "control/ping.h"
#include "control/ports.h"
#include "control/process.h"
#include "control/state.h"
#include "control/words.h"
#include "net/net.h"

void coll_control_unlock(struct coll_control *c)
{
	struct said *lines = c->said;

	c->said = NULL;
	c->said_end = &c->said;
	pthread_mutex_unlock(&c->lock);
	while (lines) {
		struct said *line = lines;

		lines = line->next;
		coll_log(c->env.logger, line->level, "%s", line->text);
		free(line);
	}
}

void coll_control_say(struct coll_control *c, int level, const char *format, ...)
{
	struct said *line = malloc(sizeof(*line));
	va_list ap;

	if (!line)
		return;
	line->next = NULL;
	line->level = level;
	va_start(ap, format);
	vsnprintf(line->text, sizeof(line->text), format, ap);
	va_end(ap);
	*c->said_end = line;
	c->said_end = &line->next;
}

/* ---- Messages ---- */

/* False: nonsense, drop the link. */
static bool handle(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message *m = &l->in;
	uint64_t one = 1;

	if (l->ready && !coll_link_genuine(l)) {
		l->corrupt = true;
		return false;
	}
	if (!l->ready && l->inbound && m->type == COLL_MSG_WORDS) {
		coll_control_on_words(c, m);
		return false; /* there is no more to read */
	}
	if (!l->ready && m->type != COLL_MSG_CHALLENGE && m->type != COLL_MSG_HELLO && m->type != COLL_MSG_WELCOME)
		return false;
	l->heard_ns = coll_clock_ns();
	switch (m->type) {
	case COLL_MSG_CHALLENGE: return coll_control_on_challenge(c, l, &m->u.hello);
	case COLL_MSG_HELLO: return c->size > 0 && coll_control_on_hello(c, l, &m->u.hello);
	case COLL_MSG_WELCOME: return coll_control_on_welcome(c, l, &m->u.hello);
	case COLL_MSG_NOTE:
		m->u.note.text[sizeof(m->u.note.text) - 1] = 0;
		coll_control_spread(c, &m->u.note, l->peer);
		return true;
	case COLL_MSG_FIRST: coll_control_on_first(c, &m->u.note, l->peer); return true;
	case COLL_MSG_PING: coll_control_on_ping(c, l, &m->u.question); return true;
	case COLL_MSG_PONG:
		coll_control_on_pong(c, l, &m->u.answer);
		(void)!coll_net->write(c->env.wake_fd, &one, sizeof(one)); /* full: awake already */
		return true;
	case COLL_MSG_BYE:
		/* It waits for the acknowledgement. */
		coll_net->setsockopt(l->fd, IPPROTO_TCP, TCP_QUICKACK, &(int){1}, sizeof(int));
		l->bye = true;
		c->peers[l->peer].life.left = true;
		c->peers[l->peer].life.left_ns = coll_clock_ns();
		return true;
	case COLL_MSG_CLOSE: coll_control_given_up(c, l); return true;
	case COLL_MSG_ALIVE: return true;
	case COLL_MSG_ALTERED: coll_control_altered(c, l, " there"); return true;
	case COLL_MSG_CARRIED:
		if (c->env.carried)
			c->env.carried(c->env.ctx, l->peer, false, m->u.carried.bytes);
		return true;
	case COLL_MSG_ERROR: return coll_control_on_error(c, l, &m->u.error);
	default: return false;
	}
}

/* Read some messages. 0: there are no more now; -1: the link has ended, errno says why. */
static int hear(struct coll_control *c, struct coll_control_link *l)
{
	int got = 1;

	for (int i = 0; i < 32 && got > 0; i++) {
		errno = 0;
		got = coll_link_read(l);
		if (got < 0 && !l->ready && !l->inbound)
			c->peers[l->peer].door_opened = true;
		if (got > 0 && !handle(c, l)) {
			errno = 0;
			got = -1;
		}
	}
	return got;
}

/* Handle all that a link holds. */
static void read_out(struct coll_control *c, struct coll_control_link *l)
{
	while (hear(c, l) > 0)
		;
}

/* The descriptor of its process is readable. */
static void process_ended(struct coll_control *c, int peer)
{
	struct coll_control_link *l;

	coll_control_forget_process(c, peer);
	c->peers[peer].ended = coll_control_is_here(c, peer);
	for (int i = 0; i < c->nlinks; i++) {
		l = c->links[i];
		if (l->peer != peer)
			continue;
		if (l->ready)
			read_out(c, l);
		coll_control_drop_link(c, l);
		i = -1; /* the array changed */
	}
	c->peers[peer].unreached = false;
	coll_control_gone(c, peer, "its process ended without a goodbye");
}

static void on_link_event(struct coll_control *c, struct coll_control_link *l, uint32_t events)
{
	int got, error;

	if (l->connecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
		socklen_t len = sizeof(error);

		error = 0;
		coll_net->getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len);
		if (error) {
			coll_control_broken(c, l, coll_errno_text(error).text, error);
			return;
		}
		l->connecting = false;
		coll_control_reached(c, l->peer);
		l->deadline_ns = coll_control_hello_deadline(&c->peers[l->peer]);
	}
	got = hear(c, l);
	error = errno;
	if (got >= 0 && !coll_control_write(c, l)) {
		error = errno;
		/* The other end has gone: what it said before that is still to be read. */
		read_out(c, l);
		got = -1;
	}
	if (got < 0 && l->corrupt) {
		coll_control_corrupt(c, l);
	} else if (got < 0) {
		coll_control_broken(
		        c, l, error ? coll_errno_text(error).text : "its control connection closed without a goodbye",
		        error);
	}
}

/* ---- Service ---- */

static void service_locked(struct coll_control *c)
{
	/* Before the events: what has come by then is read before a time is up, however long this thread is kept
	 * from going on. */
	const uint64_t now = coll_clock_ns();
	struct epoll_event events[64];
	int n = coll_net->epoll_wait(c->epoll, events, 64, 0);

	for (int i = 0; i < n; i++) {
		if (events[i].data.u64 == LISTENER_UNIX)
			coll_control_accept(c, c->listen_unix);
		else if (events[i].data.u64 < SERIAL_FIRST)
			coll_control_accept(c, c->tcp.fd[events[i].data.u64 - LISTENER_TCP]);
		else if (events[i].data.u64 & EVENT_OF_PROCESS) {
			process_ended(c, (int)(events[i].data.u64 & ~EVENT_OF_PROCESS));
		} else {
			/* The link may have been dropped by an event before this one. */
			for (int k = 0; k < c->nlinks; k++)
				if (c->links[k]->serial == events[i].data.u64) {
					on_link_event(c, c->links[k], events[i].events);
					break;
				}
		}
	}
	coll_control_expire(c, now);
	if (c->size > 1 && !c->closing) {
		coll_control_settle_suspects(c, now);
		coll_control_keep_links(c, now);
		coll_control_send_pings(c, now);
		coll_control_say_alive(c, now);
		if (c->env.served)
			c->env.served(c->env.ctx);
	}
}

/* ---- Interface ---- */

coll_status coll_control_open(const struct coll_control_env *env, struct coll_peer_info *info,
                              struct coll_control **control, struct coll_error_box *err)
{
	struct coll_control *c = calloc(1, sizeof(*c));
	coll_status status;
	int error;
	uint64_t name[2];

	if (c)
		c->spare = malloc(sizeof(*c->spare));
	if (!c || !c->spare) {
		free(c);
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the control plane");
	}
	if (coll_net->random(c->nonces.key, sizeof(c->nonces.key), GRND_NONBLOCK) != sizeof(c->nonces.key)) {
		free(c->spare);
		free(c);
		return coll_error_set(err, COLL_ERR_SYSTEM, "no random bytes for control links: getrandom: %s",
		                      coll_errno_text(errno).text);
	}
	c->env = *env;
	pthread_mutex_init(&c->lock, NULL);
	c->said_end = &c->said;
	for (int i = 0; i < ASKS_MAX; i++)
		c->asks[i].peer = -1;
	c->epoll = coll_net->epoll_create(EPOLL_CLOEXEC);
	error = errno;
	coll_nonce(&c->nonces, name);
	c->listen_unix = coll_link_listen_unix(info->control_unix, sizeof(info->control_unix), name);
	error = c->epoll >= 0 ? errno : error;
	status = coll_control_open_ports(c, info, err);
	if (status == COLL_OK && (c->epoll < 0 || (c->listen_unix < 0 && c->tcp.count == 0)))
		status = coll_error_set(err, COLL_ERR_SYSTEM, "[COLL-4102] cannot open the control listeners: %s",
		                        coll_errno_text(error).text);
	if (status != COLL_OK) {
		coll_control_close(&c, 0);
		return status;
	}
	*control = c;
	return COLL_OK;
}

/* Connections made before this wait in the backlog. */
coll_status coll_control_join(struct coll_control *c, const struct coll_peer_info *peer_infos, int rank, int size)
{
	pthread_mutex_lock(&c->lock);
	c->peers = calloc((size_t)size, sizeof(*c->peers));
	c->peer_infos = peer_infos;
	c->rank = rank;
	c->size = c->peers ? size : 0;
	if (c->peers) {
		coll_control_close_ports(c);
		coll_control_listen(c, true);
	}
	if (c->size > 1)
		coll_control_keep_links(c, coll_clock_ns());
	coll_control_unlock(c);
	return c->peers ? COLL_OK : COLL_ERR_MEMORY;
}

/* One of those who will read this process's end has not been met: a failure right after
 * creation. One that could not be reached for as long as such a wait lasts is not waited for again. */
static bool unmet(const struct coll_control *c)
{
	const uint64_t now = coll_clock_ns();

	for (int i = 0; i < COLL_NEIGHBOURS; i++) {
		const int n = coll_control_neighbour(c, c->rank, i);
		const struct peer *p = n >= 0 ? &c->peers[n] : NULL;

		if (p && !p->met && !p->refused && !p->dead && !p->life.left &&
		    (!p->cut_off_ns || now - p->cut_off_ns < COLL_DELAY_NS(CONTROL_TELL)))
			return true;
	}
	return false;
}

/* A link that this process is opening will carry the notes; but not to a process that is stopped. */
static bool opens(const struct coll_control *c, const struct coll_control_link *l, uint64_t now)
{
	return !l->inbound && now - c->peers[l->peer].opening_ns < COLL_DELAY_NS(CONTROL_TELL);
}

/* Something is still to be written. Incoming connections that are not authenticated are not waited for: they may be
 * foreign. */
static bool unsent(const struct coll_control *c)
{
	const uint64_t now = coll_clock_ns();

	for (int i = 0; i < c->nlinks; i++) {
		const struct coll_control_link *l = c->links[i];

		if (l->ready || l->said_bye ? l->count > 0 || (l->ready && coll_control_untold(c, l))
		                            : c->notes && !c->closing && opens(c, l, now))
			return true;
	}
	return c->notes && c->size > 1 && !c->closing && unmet(c);
}

/* Do not wait for those who choose us: they may be slow, or gone. */
static void meet(struct coll_control *c)
{
	for (int i = 0; c->notes && c->size > 1 && !c->closing && i < COLL_NEIGHBOURS; i++) {
		const int n = coll_control_neighbour(c, c->rank, i);

		if (n >= 0 && !c->peers[n].met && !c->peers[n].refused && !c->peers[n].life.left)
			coll_control_open_link(c, n, false);
	}
}

void coll_control_flush(struct coll_control *c, int ms)
{
	uint64_t deadline = coll_clock_ns() + (uint64_t)ms * COLL_NS_PER_MS;
	bool more;

	pthread_mutex_lock(&c->lock);
	meet(c);
	coll_control_unlock(c);
	do {
		struct pollfd p = {.fd = c->epoll, .events = POLLIN};

		pthread_mutex_lock(&c->lock);
		service_locked(c);
		more = unsent(c);
		coll_control_unlock(c);
		if (more)
			coll_net->poll(&p, 1, COLL_DELAY_CONTROL_FLUSH_LOOK_MS);
	} while (more && coll_clock_ns() < deadline);
}

void coll_control_service(struct coll_control *c)
{
	pthread_mutex_lock(&c->lock);
	service_locked(c);
	coll_control_unlock(c);
}

/* Whether a goodbye has not arrived: the system of the other end acknowledges it, however late its process is. */
static bool under_way(const struct coll_control *c)
{
	for (int i = 0; i < c->nlinks; i++) {
		const struct coll_control_link *l = c->links[i];

		if (l->said_bye && !l->bye && coll_link_is_owed(l, 0))
			return true;
	}
	return false;
}

/* During an outage: what the peers send again when it is over would meet a closed socket, whose answer is taken for a
 * death. So goodbyes must have arrived, for as long as an outage may last. A job that has failed is not waited for. */
static void see_off(struct coll_control *c)
{
	const uint64_t until =
	        coll_clock_ns() + (uint64_t)coll_settings_unreachable_ms(c->env.settings) * COLL_NS_PER_MS;
	struct pollfd p = {.fd = c->epoll, .events = POLLIN};

	while (!c->notes && under_way(c) && coll_clock_ns() < until) {
		coll_net->poll(&p, 1, COLL_DELAY_CONTROL_FLUSH_LOOK_MS);
		coll_control_service(c);
	}
}

void coll_control_close(struct coll_control **control, int flush_ms)
{
	struct coll_control *c = *control;

	if (!c)
		return;
	*control = NULL;
	if (c->size > 0) {
		/* A goodbye promises that the cause of a failure was sent before. */
		if (c->notes)
			coll_control_flush(c, COLL_DELAY_CONTROL_TELL_MS);
		pthread_mutex_lock(&c->lock);
		c->closing = true;
		for (int i = 0; i < c->nlinks; i++)
			coll_control_write(c, c->links[i]);
		coll_control_unlock(c);
		coll_control_flush(c, flush_ms);
		see_off(c);
	}
	while (c->nlinks > 0)
		coll_control_drop_link(c, c->links[0]);
	for (int r = 0; r < c->size; r++)
		coll_control_forget_process(c, r);
	if (c->listen_unix >= 0)
		coll_net->close(c->listen_unix);
	coll_listeners_close(&c->tcp);
	if (c->epoll >= 0)
		coll_net->close(c->epoll);
	pthread_mutex_destroy(&c->lock);
	coll_control_forget_all(c);
	coll_control_forget_errors(c);
	free(c->peers);
	free(c);
}

int coll_control_fd(const struct coll_control *c)
{
	return c->epoll;
}

int coll_control_timeout_ms(struct coll_control *c)
{
	int ms = COLL_DELAY_CONTROL_IDLE_MS;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer >= 0)
			ms = COLL_DELAY_PING_MS;
	for (int i = 0; i < c->nlinks; i++)
		if (!c->links[i]->ready && c->links[i]->deadline_ns != UINT64_MAX)
			ms = COLL_DELAY_PING_MS;
	if (coll_control_lacks_links(c))
		ms = COLL_DELAY_PING_MS;
	if (c->listen_ns)
		ms = COLL_DELAY_CONTROL_LISTEN_AGAIN_MS;
	ms = coll_control_alive_ms(c, ms);
	if (c->nsuspects > 0)
		ms = COLL_DELAY_LIVENESS_RECONNECT_MS;
	coll_control_unlock(c);
	return ms;
}
