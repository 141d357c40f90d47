/*
 * The control plane's state and policy: see control.h. Sockets and messages are
 * control_link.c's.
 */
#include "comm/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/control_link.h"

enum { LINKS_MAX = 512, STRANGERS_MAX = 128, NOTES_MAX = 64, ASKS_MAX = 8, ACCEPTS_PER_CALL = 64 };
enum { HANDSHAKE_MS = 1500, STRANGER_MS = 5000, PING_MS = 250, ASK_LIFE_MS = 1500 };
enum { KEEP_MS = 200, HELLO_MIN_MS = 500, HELLO_MAX_MS = 8000 };

static const uint64_t MS = 1000000;

struct ask {
	int peer; /* -1: free */
	uint64_t until_ns;
	uint64_t next_ns;
	struct coll_record record;
};

struct peer {
	struct coll_peer_state state;
	bool dead;
	bool door_opened;  /* somebody accepted and hung up during this round of addresses */
	unsigned hello_ms; /* patience with the next handshake, 0: the shortest */
};

struct coll_control {
	struct coll_control_env env;
	pthread_mutex_t lock;
	int epoll;
	int listen_unix;
	int listen_tcp;
	int rank, size; /* size 0 until joined */
	const struct coll_card *cards;
	struct peer *peers;
	struct coll_control_link *links[LINKS_MAX];
	int nlinks;
	struct coll_note notes[NOTES_MAX];
	int nnotes;
	struct ask asks[ASKS_MAX];
	uint64_t keep_ns; /* when to look after our own links again */
	bool closing;
};

/* ---- Notes ---- */

static bool known(const struct coll_control *c, const struct coll_note *n)
{
	for (int i = 0; i < c->nnotes; i++)
		if (c->notes[i].kind == n->kind && c->notes[i].comm == n->comm &&
		    (n->kind == COLL_NOTE_FAIL || c->notes[i].process == n->process))
			return true;
	return false;
}

/* What is left to write is written when the link can take it. */
static void watch(struct coll_control *c, struct coll_control_link *l)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = l};

	if (l->connecting || l->count > 0)
		e.events |= EPOLLOUT;
	if (epoll_ctl(c->epoll, EPOLL_CTL_MOD, l->fd, &e) < 0)
		epoll_ctl(c->epoll, EPOLL_CTL_ADD, l->fd, &e);
}

static void log_note(const struct coll_control *c, const struct coll_note *n)
{
	if (n->kind == COLL_NOTE_DEATH && n->process >= 0 && n->process < c->size)
		coll_log(c->env.logger, COLL_LOG_INFO,
		         "rank %d on host %.63s (process %d) is dead or unreachable: %s (told by rank %d)", n->process,
		         c->cards[n->process].host_name, c->cards[n->process].process, n->text, n->origin);
	else
		coll_log(c->env.logger, COLL_LOG_INFO, "%s (told by rank %d)", n->text, n->origin);
}

/* Keep a new note, set off the alarm and pass it on to all but the link it came from. */
static void spread(struct coll_control *c, const struct coll_note *n, const struct coll_control_link *from)
{
	struct coll_message m = {.type = COLL_MSG_NOTE};
	uint64_t one = 1;

	if (c->nnotes == NOTES_MAX || known(c, n))
		return;
	c->notes[c->nnotes++] = *n;
	if (n->kind == COLL_NOTE_DEATH && n->process >= 0 && n->process < c->size)
		c->peers[n->process].dead = true;
	log_note(c, n);
	m.u.note = *n;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i] != from && c->links[i]->ready)
			coll_link_queue(c->links[i], &m), coll_link_flush(c->links[i]), watch(c, c->links[i]);
	atomic_fetch_add_explicit(c->env.alarm, 1, memory_order_release);
	if (write(c->env.wake_fd, &one, sizeof(one)) < 0) {
		/* Full: the sleeper is awake already. */
	}
}

static void death(struct coll_control *c, int peer, const char *cause)
{
	struct coll_note n = {
	        .kind = COLL_NOTE_DEATH, .status = COLL_ERR_PEER_DEAD, .process = peer, .origin = c->rank};

	if (c->closing || c->peers[peer].dead || c->peers[peer].state.left)
		return;
	snprintf(n.text, sizeof(n.text), "%.100s", cause);
	spread(c, &n, NULL);
}

/* ---- Links ---- */

static struct coll_control_link *add_link(struct coll_control *c, int fd, int peer)
{
	struct coll_control_link *l;

	if (c->nlinks == LINKS_MAX || !(l = calloc(1, sizeof(*l)))) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	l->fd = fd;
	l->peer = peer;
	c->links[c->nlinks++] = l;
	return l;
}

static void drop_link(struct coll_control *c, struct coll_control_link *l)
{
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i] == l)
			c->links[i] = c->links[--c->nlinks];
	close(l->fd);
	free(l);
}

static struct coll_control_link *find_link(struct coll_control *c, int peer)
{
	struct coll_control_link *found = NULL;

	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->peer == peer && !c->links[i]->bye && (!found || c->links[i]->ready))
			found = c->links[i];
	return found;
}

static bool same_host(const struct coll_control *c, const struct coll_card *card)
{
	return card->control_unix[0] && strcmp(card->host_id, c->env.host_id) == 0;
}

/* Patience with a handshake doubles: a starved peer needs longer than the first time,
 * a stopped one is not to be buried under connections. */
static uint64_t hello_deadline(struct peer *p)
{
	const unsigned ms = p->hello_ms ? p->hello_ms : HELLO_MIN_MS;

	p->hello_ms = ms < HELLO_MAX_MS ? 2 * ms : ms;
	return coll_clock_ns() + ms * MS;
}

/* Try addresses from candidate on; false when none is left. */
static bool connect_to(struct coll_control *c, int peer, int candidate, bool asked)
{
	const struct coll_card *card = &c->cards[peer];
	int last = same_host(c, card) ? -1 : card->control_hosts - 1;

	for (; candidate <= last; candidate++) {
		bool in_progress;
		int fd = coll_link_connect(card, candidate, &in_progress);
		struct coll_control_link *l = fd >= 0 ? add_link(c, fd, peer) : NULL;

		if (!l)
			continue;
		l->connecting = in_progress;
		l->candidate = candidate;
		l->asked = asked;
		l->deadline_ns = in_progress ? coll_clock_ns() + HANDSHAKE_MS * MS : hello_deadline(&c->peers[peer]);
		watch(c, l);
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

static void open_link(struct coll_control *c, int peer, bool asked)
{
	if (find_link(c, peer) || peer == c->rank || c->peers[peer].dead)
		return;
	c->peers[peer].door_opened = false;
	errno = 0;
	if (!connect_to(c, peer, same_host(c, &c->cards[peer]) ? -1 : 0, asked) && asked && !short_of(errno))
		death(c, peer, "its process does not listen any more");
}

/* A link failed before or after it was proved. A peer that accepts and hangs up before
 * the proof lives: its door is crowded by strangers, and we knock again (keep_links,
 * send_pings). Death is a refusal, no way there, or the end of a proved link. */
static void broken(struct coll_control *c, struct coll_control_link *l, const char *cause)
{
	int peer = l->peer, next = l->candidate + 1;
	bool was_ready = l->ready, bye = l->bye, asked = l->asked, inbound = l->inbound;

	drop_link(c, l);
	if (peer < 0 || bye || c->closing)
		return;
	if (was_ready)
		death(c, peer, cause);
	else if (!inbound && next > 0 && connect_to(c, peer, next, asked))
		return;
	else if (!inbound && asked && !c->peers[peer].door_opened)
		death(c, peer, cause);
}

static void random_nonce(uint64_t nonce[2])
{
	if (getrandom(nonce, 16, GRND_NONBLOCK) != 16)
		nonce[0] = coll_clock_ns(), nonce[1] = (uint64_t)(uintptr_t)nonce;
}

static void accept_some(struct coll_control *c, int listener)
{
	for (int i = 0; i < ACCEPTS_PER_CALL; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), strangers = 0;
		struct coll_control_link *l, *oldest = NULL;
		struct coll_message m = {.type = COLL_MSG_CHALLENGE};

		if (fd < 0)
			return; /* EAGAIN, or out of descriptors: the backlog waits */
		for (int k = 0; k < c->nlinks; k++)
			if (c->links[k]->inbound && !c->links[k]->ready) {
				strangers++;
				if (!oldest || c->links[k]->deadline_ns < oldest->deadline_ns)
					oldest = c->links[k];
			}
		if (strangers >= STRANGERS_MAX)
			drop_link(c, oldest);
		l = add_link(c, fd, -1);
		if (!l)
			continue;
		l->inbound = true;
		l->deadline_ns = coll_clock_ns() + STRANGER_MS * MS;
		random_nonce(l->nonce);
		m.u.hello.nonce[0] = l->nonce[0];
		m.u.hello.nonce[1] = l->nonce[1];
		m.u.hello.from = c->env.self;
		coll_link_queue(l, &m);
		if (coll_link_flush(l))
			watch(c, l);
		else
			drop_link(c, l);
	}
}

/* ---- Messages ---- */

static bool same_id(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

static void now_ready(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message m = {.type = COLL_MSG_NOTE};

	l->ready = true;
	l->deadline_ns = UINT64_MAX;
	c->peers[l->peer].hello_ms = 0;
	c->peers[l->peer].state.unanswered = 0;
	for (int i = 0; i < c->nnotes; i++) {
		m.u.note = c->notes[i];
		coll_link_queue(l, &m);
	}
	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer == l->peer)
			c->asks[i].next_ns = 0;
}

static bool on_challenge(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h)
{
	struct coll_message m = {.type = COLL_MSG_HELLO};

	if (l->inbound || l->ready || !same_id(&h->from, &c->cards[l->peer].id))
		return false;
	random_nonce(l->nonce);
	m.u.hello = (struct coll_hello){.from = c->env.self, .to = h->from, .rank = c->rank, .size = c->size};
	m.u.hello.nonce[0] = l->nonce[0];
	m.u.hello.nonce[1] = l->nonce[1];
	m.u.hello.proof = coll_link_proof(c->env.job_key, h->nonce, &c->env.self, &h->from, 1);
	coll_link_queue(l, &m);
	return true;
}

static bool on_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h)
{
	struct coll_message m = {.type = COLL_MSG_WELCOME};

	if (!l->inbound || l->ready || h->rank < 0 || h->rank >= c->size || h->size != c->size ||
	    !same_id(&h->from, &c->cards[h->rank].id) || !same_id(&h->to, &c->env.self) ||
	    h->proof != coll_link_proof(c->env.job_key, l->nonce, &h->from, &h->to, 1))
		return false;
	l->peer = h->rank;
	m.u.hello.from = c->env.self;
	m.u.hello.proof = coll_link_proof(c->env.job_key, h->nonce, &c->env.self, &h->from, 2);
	coll_link_queue(l, &m);
	now_ready(c, l);
	return true;
}

static bool on_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h)
{
	const struct coll_process_id *peer = &c->cards[l->peer].id;

	if (l->inbound || l->ready || h->proof != coll_link_proof(c->env.job_key, l->nonce, peer, &c->env.self, 2))
		return false;
	now_ready(c, l);
	return true;
}

/* A sign of life, and what it is doing. */
static void answered(struct coll_control *c, int peer, const struct coll_record *theirs)
{
	struct coll_peer_state *s = &c->peers[peer].state;

	s->record = *theirs;
	s->have_record = true;
	s->last_answer_ns = coll_clock_ns();
	s->unanswered = 0;
}

static void on_ping(struct coll_control *c, struct coll_control_link *l, const struct coll_record *theirs)
{
	struct coll_message m = {.type = COLL_MSG_PONG};

	answered(c, l->peer, theirs);
	m.u.record.comm = theirs->comm;
	if (!c->env.record(c->env.ctx, theirs->comm, &m.u.record))
		m.u.record.sequence = 0;
	coll_link_queue(l, &m);
}

/* False: nonsense, drop the link. */
static bool handle(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message *m = &l->in;
	uint64_t one = 1;

	if (!l->ready && m->type != COLL_MSG_CHALLENGE && m->type != COLL_MSG_HELLO && m->type != COLL_MSG_WELCOME)
		return false;
	switch (m->type) {
	case COLL_MSG_CHALLENGE: return on_challenge(c, l, &m->u.hello);
	case COLL_MSG_HELLO: return c->size > 0 && on_hello(c, l, &m->u.hello);
	case COLL_MSG_WELCOME: return on_welcome(c, l, &m->u.hello);
	case COLL_MSG_NOTE:
		m->u.note.text[sizeof(m->u.note.text) - 1] = 0;
		spread(c, &m->u.note, l);
		return true;
	case COLL_MSG_PING: on_ping(c, l, &m->u.record); return true;
	case COLL_MSG_PONG:
		answered(c, l->peer, &m->u.record);
		if (write(c->env.wake_fd, &one, sizeof(one)) < 0) {
			/* Full: awake already. */
		}
		return true;
	case COLL_MSG_BYE:
		l->bye = true;
		c->peers[l->peer].state.left = true;
		c->peers[l->peer].state.left_ns = coll_clock_ns();
		return true;
	default: return false;
	}
}

static void on_link_event(struct coll_control *c, struct coll_control_link *l, uint32_t events)
{
	int got;

	if (l->connecting && (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))) {
		int err = 0;
		socklen_t len = sizeof(err);

		getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		if (err) {
			broken(c, l, strerror(err));
			return;
		}
		l->connecting = false;
		l->deadline_ns = hello_deadline(&c->peers[l->peer]);
	}
	for (int i = 0; i < 32; i++) {
		errno = 0;
		got = coll_link_read(l);
		if (got < 0 && !l->ready && !l->inbound)
			c->peers[l->peer].door_opened = true;
		if (got <= 0)
			break;
		if (!handle(c, l)) {
			got = -1;
			break;
		}
	}
	if (got < 0 || !coll_link_flush(l))
		broken(c, l, errno ? strerror(errno) : "its control connection closed without a goodbye");
	else
		watch(c, l);
}

/* ---- Timers ---- */

static void send_pings(struct coll_control *c, uint64_t now)
{
	for (int i = 0; i < ASKS_MAX; i++) {
		struct ask *a = &c->asks[i];
		struct coll_control_link *l;
		struct coll_message m = {.type = COLL_MSG_PING};

		if (a->peer < 0)
			continue;
		if (now > a->until_ns) {
			a->peer = -1;
			continue;
		}
		if (now < a->next_ns)
			continue;
		a->next_ns = now + PING_MS * MS;
		c->peers[a->peer].state.unanswered++;
		open_link(c, a->peer, true);
		l = find_link(c, a->peer);
		if (!l)
			continue;
		l->asked = true;
		if (!l->ready || l->count > 8)
			continue;
		m.u.record = a->record;
		coll_link_queue(l, &m);
		if (coll_link_flush(l))
			watch(c, l);
	}
}

/* The links of the ring and the tree must be there before they are needed; a crowded
 * door may have turned us away. */
static void keep_links(struct coll_control *c, uint64_t now)
{
	const int wanted[2] = {(c->rank + 1) % c->size, (c->rank - 1) / 2};

	if (now < c->keep_ns)
		return;
	c->keep_ns = now + KEEP_MS * MS;
	for (int i = 0; i < (c->rank > 0 ? 2 : 1); i++)
		if (!c->peers[wanted[i]].state.left)
			open_link(c, wanted[i], false);
}

static void expire(struct coll_control *c, uint64_t now)
{
	for (int i = 0; i < c->nlinks; i++) {
		struct coll_control_link *l = c->links[i];

		if (l->ready || now <= l->deadline_ns)
			continue;
		/* Connected but not answered is silence, not death. */
		if (l->connecting)
			broken(c, l, "connecting to it timed out");
		else
			drop_link(c, l);
		i = -1; /* the array changed */
	}
}

static void service_locked(struct coll_control *c)
{
	struct epoll_event events[64];
	int n = epoll_wait(c->epoll, events, 64, 0);
	uint64_t now;

	for (int i = 0; i < n; i++) {
		if (events[i].data.ptr == &c->listen_unix)
			accept_some(c, c->listen_unix);
		else if (events[i].data.ptr == &c->listen_tcp)
			accept_some(c, c->listen_tcp);
		else {
			/* The link may have been dropped by an event before this one. */
			for (int k = 0; k < c->nlinks; k++)
				if (c->links[k] == events[i].data.ptr) {
					on_link_event(c, c->links[k], events[i].events);
					break;
				}
		}
	}
	now = coll_clock_ns();
	expire(c, now);
	if (c->size > 1 && !c->closing) {
		keep_links(c, now);
		send_pings(c, now);
	}
}

/* ---- Interface ---- */

coll_status coll_control_open(const struct coll_control_env *env, struct coll_card *card, struct coll_control **control,
                              struct coll_error_box *err)
{
	struct coll_control *c = calloc(1, sizeof(*c));

	if (!c)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the control plane");
	c->env = *env;
	pthread_mutex_init(&c->lock, NULL);
	for (int i = 0; i < ASKS_MAX; i++)
		c->asks[i].peer = -1;
	c->epoll = epoll_create1(EPOLL_CLOEXEC);
	c->listen_unix = coll_link_listen_unix(card->control_unix, sizeof(card->control_unix), &env->self);
	c->listen_tcp = coll_link_listen_tcp(env->settings->port_range, &card->control_port);
	if (c->epoll < 0 || (c->listen_unix < 0 && c->listen_tcp < 0)) {
		coll_error_set(err, COLL_ERR_SYSTEM, "cannot open the control listeners: %s", strerror(errno));
		coll_control_close(&c, 0);
		return COLL_ERR_SYSTEM;
	}
	if (c->listen_tcp >= 0)
		coll_link_addresses(card, env->settings->interface);
	*control = c;
	return COLL_OK;
}

/* Whoever connects before this waits in the backlog. */
static void listen_on(struct coll_control *c, int *listener)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = listener};

	if (*listener >= 0)
		epoll_ctl(c->epoll, EPOLL_CTL_ADD, *listener, &e);
}

void coll_control_join(struct coll_control *c, const struct coll_card *cards, int rank, int size)
{
	pthread_mutex_lock(&c->lock);
	listen_on(c, &c->listen_unix);
	listen_on(c, &c->listen_tcp);
	c->peers = calloc((size_t)size, sizeof(*c->peers));
	c->cards = cards;
	c->rank = rank;
	c->size = c->peers ? size : 0;
	if (c->size > 1)
		keep_links(c, coll_clock_ns());
	pthread_mutex_unlock(&c->lock);
}

/* Something is still to be written, or a link that is being made will want the
 * notes (a failure right after creation). */
static bool unsent(const struct coll_control *c)
{
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->ready ? c->links[i]->count > 0 : c->nnotes > 0)
			return true;
	return false;
}

void coll_control_flush(struct coll_control *c, int ms)
{
	uint64_t deadline = coll_clock_ns() + (uint64_t)ms * MS;
	bool more;

	do {
		struct pollfd p = {.fd = c->epoll, .events = POLLIN};

		pthread_mutex_lock(&c->lock);
		service_locked(c);
		more = unsent(c);
		pthread_mutex_unlock(&c->lock);
		if (more)
			poll(&p, 1, 1);
	} while (more && coll_clock_ns() < deadline);
}

void coll_control_close(struct coll_control **control, int flush_ms)
{
	struct coll_control *c = *control;
	struct coll_message m = {.type = COLL_MSG_BYE};

	if (!c)
		return;
	*control = NULL;
	if (c->size > 0) {
		pthread_mutex_lock(&c->lock);
		c->closing = true;
		for (int i = 0; i < c->nlinks; i++)
			if (c->links[i]->ready)
				coll_link_queue(c->links[i], &m);
		pthread_mutex_unlock(&c->lock);
		coll_control_flush(c, flush_ms);
	}
	while (c->nlinks > 0)
		drop_link(c, c->links[0]);
	if (c->listen_unix >= 0)
		close(c->listen_unix);
	if (c->listen_tcp >= 0)
		close(c->listen_tcp);
	if (c->epoll >= 0)
		close(c->epoll);
	pthread_mutex_destroy(&c->lock);
	free(c->peers);
	free(c);
}

void coll_control_service(struct coll_control *c)
{
	pthread_mutex_lock(&c->lock);
	service_locked(c);
	pthread_mutex_unlock(&c->lock);
}

int coll_control_fd(const struct coll_control *c)
{
	return c->epoll;
}

int coll_control_timeout_ms(struct coll_control *c)
{
	int ms = 1000;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer >= 0)
			ms = PING_MS;
	for (int i = 0; i < c->nlinks; i++)
		if (!c->links[i]->ready && c->links[i]->deadline_ns != UINT64_MAX)
			ms = PING_MS;
	pthread_mutex_unlock(&c->lock);
	return ms;
}

void coll_control_tell(struct coll_control *c, const struct coll_note *note)
{
	pthread_mutex_lock(&c->lock);
	if (note->kind != COLL_NOTE_DEATH)
		spread(c, note, NULL);
	else if (note->process >= 0 && note->process < c->size)
		death(c, note->process, note->text);
	pthread_mutex_unlock(&c->lock);
}

int coll_control_notes(struct coll_control *c, int first, struct coll_note *notes, int max)
{
	int n;

	pthread_mutex_lock(&c->lock);
	n = c->nnotes;
	for (int i = first; i < n && i - first < max; i++)
		notes[i - first] = c->notes[i];
	pthread_mutex_unlock(&c->lock);
	return n;
}

void coll_control_ask(struct coll_control *c, int peer, const struct coll_record *my)
{
	struct ask *oldest = &c->asks[0], *a = NULL;
	uint64_t now = coll_clock_ns();

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < ASKS_MAX; i++) {
		if (c->asks[i].peer == peer)
			a = &c->asks[i];
		if (oldest->peer >= 0 && (c->asks[i].peer < 0 || c->asks[i].until_ns < oldest->until_ns))
			oldest = &c->asks[i];
	}
	/* Silence counts from here, and only by what was really asked. */
	if (!a || now > a->until_ns) {
		if (!a)
			a = oldest;
		a->peer = peer;
		a->next_ns = 0;
		c->peers[peer].state.asked_ns = now;
		c->peers[peer].state.unanswered = 0;
	}
	a->until_ns = now + ASK_LIFE_MS * MS;
	a->record = *my;
	send_pings(c, now);
	pthread_mutex_unlock(&c->lock);
}

void coll_control_peer(struct coll_control *c, int peer, struct coll_peer_state *state)
{
	pthread_mutex_lock(&c->lock);
	*state = c->peers[peer].state;
	pthread_mutex_unlock(&c->lock);
}
