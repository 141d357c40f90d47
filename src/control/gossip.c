/*
 * Notes: what is known of deaths and failures. Each is kept once, in the order of
 * arrival, and given to every link, to those that come up later too: a link remembers
 * the last note it was given, so no queue can lose one.
 *
 * Facts (a death; a link between two processes lost) are kept for ever: there is one per
 * process or pair. Failures of communicators are as many as communicators fail, and of
 * communicators that may not have been created here yet: the last FAILURES_MAX are kept,
 * and older ones only while the communicator lives here and has not looked.
 *
 * Several ranks may find one failure before a note reaches them. The lowest living rank of the job says which of their
 * notes came first, and that goes behind the note over each link: who found it later does not log it again.
 */
#include "control/gossip.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/messages.h"
#include "control/connect.h"
#include "control/control.h"
#include "control/first_finder.h"
#include "control/last_error.h"
#include "control/liveness.h"
#include "control/state.h"
#include "net/net.h"

enum { FAILURES_MAX = 1024, TRIES_TO_FORGET = 64 };

static bool is_fact(const struct coll_note *n)
{
	return n->kind == COLL_GOSSIP_DEATH || n->comm == 0;
}

static struct coll_held_note **bucket_of(struct coll_control *c, uint64_t comm)
{
	return &c->failures[(comm ^ comm >> 32) % FAILURE_BUCKETS];
}

static struct coll_held_note *find_failure(struct coll_control *c, uint64_t comm)
{
	struct coll_held_note *h = *bucket_of(c, comm);

	while (h && h->note.comm != comm)
		h = h->chain;
	return h;
}

static bool same_pair(const struct coll_note *a, const struct coll_note *b)
{
	return (a->process == b->process && a->origin == b->origin) ||
	       (a->process == b->origin && a->origin == b->process);
}

static bool known(struct coll_control *c, const struct coll_note *n)
{
	if (!is_fact(n))
		return find_failure(c, n->comm) != NULL;
	if (n->kind == COLL_GOSSIP_DEATH)
		return c->peers[n->process].dead;
	for (const struct coll_held_note *h = c->facts; h; h = h->chain)
		if (h->note.kind == n->kind && same_pair(&h->note, n))
			return true;
	return false;
}

/* ---- Keeping and forgetting ---- */

static void forget(struct coll_control *c, struct coll_held_note *previous, struct coll_held_note *h)
{
	struct coll_held_note **at = bucket_of(c, h->note.comm);

	while (*at != h)
		at = &(*at)->chain;
	*at = h->chain;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->told == h)
			c->links[i]->told = previous;
	*(previous ? &previous->next : &c->notes) = h->next;
	if (c->last_note == h)
		c->last_note = previous;
	c->nfailures--;
	free(h);
}

/* The oldest failure that no communicator here needs any more. */
static void forget_one(struct coll_control *c)
{
	struct coll_held_note *previous = NULL;
	int tries = 0;

	for (struct coll_held_note *h = c->notes; h && tries < TRIES_TO_FORGET; previous = h, h = h->next) {
		if (is_fact(&h->note))
			continue;
		tries++;
		if (!c->env.needs(c->env.ctx, h->note.comm)) {
			forget(c, previous, h);
			return;
		}
	}
}

static bool keep(struct coll_control *c, const struct coll_note *n, int from)
{
	struct coll_held_note *h = malloc(sizeof(*h)), **at;

	/* Without memory the first note is what counts: what follows is its consequence. */
	if (!h) {
		h = c->spare;
		c->spare = NULL;
	}
	if (!h)
		return false;
	*h = (struct coll_held_note){.from = from, .first = -1, .note = *n, .came_ns = coll_clock_ns()};
	h->age.looked_ns = h->came_ns;
	if (is_fact(n)) {
		/* At the end of the list: a query for the first death then returns the one reported first. */
		at = c->last_fact ? &c->last_fact->chain : &c->facts;
		c->last_fact = h;
	} else {
		if (c->nfailures++ >= FAILURES_MAX)
			forget_one(c);
		at = bucket_of(c, n->comm);
		h->chain = *at;
	}
	*at = h;
	*(c->last_note ? &c->last_note->next : &c->notes) = h;
	c->last_note = h;
	return true;
}

void coll_control_forget_all(struct coll_control *c)
{
	while (c->notes) {
		struct coll_held_note *h = c->notes;

		c->notes = h->next;
		free(h);
	}
	free(c->spare);
	c->spare = NULL;
}

/* ---- Spreading ---- */

bool coll_control_untold(const struct coll_control *c, const struct coll_control_link *l)
{
	return l->told != c->last_note || coll_control_error_unsaid(c, l);
}

static void queue_first(struct coll_control_link *l, const struct coll_held_note *h)
{
	struct coll_message m = {.type = COLL_MSG_FIRST, .u.note = h->note};

	m.u.note.origin = h->first;
	if (h->first >= 0)
		coll_link_queue(l, &m);
}

bool coll_control_write(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message m = {.type = COLL_MSG_NOTE};
	struct coll_held_note *next;

	if (!coll_link_flush(l))
		return false;
	/* One at a time: what the socket does not take is not copied. At the end behind a greeting, too: who
	 * believes that believes the rest, and a goodbye without the cause would be a death. */
	while ((l->ready || (c->closing && l->greeted)) && l->count == 0 &&
	       (next = l->told ? l->told->next : c->notes)) {
		l->told = next;
		if (next->from == l->peer)
			continue;
		m.u.note = next->note;
		coll_link_queue(l, &m);
		queue_first(l, next);
		if (!coll_link_flush(l))
			return false;
	}
	if (l->count == 0 && (l->ready || (c->closing && l->greeted))) {
		coll_control_say_error(c, l);
		if (!coll_link_flush(l))
			return false;
	}
	/* The goodbye goes behind all notes, and behind the error. */
	if (c->closing && l->count == 0 && !l->said_bye && (l->ready || l->greeted)) {
		m.type = COLL_MSG_BYE;
		l->said_bye = coll_link_queue(l, &m);
		if (!coll_link_flush(l))
			return false;
	}
	coll_control_watch(c, l);
	return true;
}

static void say_note(struct coll_control *c, const struct coll_note *n)
{
	const char *text = coll_message_split(COLL_OK, n->text).text;

	/* That a call has ended because of a death is no news behind the death. */
	if (n->kind == COLL_GOSSIP_FAIL && n->comm == coll_control_death_id(n->process))
		return;
	if (n->kind == COLL_GOSSIP_DEATH)
		coll_control_say(c, COLL_LOG_INFO,
		                 "[COLL-2101] rank %d on host %.63s (process %d) %s: %s (reported by rank %d)",
		                 n->process, c->peer_infos[n->process].host_name, c->peer_infos[n->process].process,
		                 n->after_status ? "ended after an error" : "is dead or unreachable", text, n->origin);
	else
		coll_control_say(c, COLL_LOG_INFO, "%s (reported by rank %d)", n->text, n->origin);
}

/* A note that no rank of this job would write is refused. */
static bool sensible(const struct coll_control *c, const struct coll_note *n)
{
	return n->origin >= 0 && n->origin < c->size && n->process < c->size &&
	       (n->kind == COLL_GOSSIP_DEATH
	                ? n->process >= 0 && n->after_process >= -1 && n->after_process < c->size &&
	                          (n->after_status == COLL_OK || n->after_status > COLL_AGAIN)
	                : n->kind == COLL_GOSSIP_FAIL && n->status > COLL_AGAIN && n->process >= -1);
}

/* The rank that says who found a failure first. */
static int decider(const struct coll_control *c)
{
	int r = 0;

	while (r < c->size - 1 && (c->peers[r].dead || c->peers[r].life.left))
		r++;
	return r;
}

void coll_control_on_first(struct coll_control *c, const struct coll_note *n, int from)
{
	struct coll_held_note *h = find_failure(c, n->comm);

	if (!h || h->first >= 0 || n->origin < 0 || n->origin >= c->size)
		return;
	h->first = n->origin;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->ready && c->links[i]->peer != from) {
			queue_first(c->links[i], h);
			coll_control_write(c, c->links[i]);
		}
}

/* Another rank has found what was found before. */
static void answer_first(struct coll_control *c, const struct coll_note *n, int from)
{
	const struct coll_held_note *h = is_fact(n) ? NULL : find_failure(c, n->comm);
	struct coll_control_link *l = from >= 0 ? coll_control_find_link(c, from) : NULL;

	if (h && l && l->ready && h->first != n->origin) {
		queue_first(l, h);
		coll_control_write(c, l);
	}
}

bool coll_control_spread(struct coll_control *c, const struct coll_note *n, int from)
{
	uint64_t one = 1;

	if (!sensible(c, n))
		return false;
	if (known(c, n)) {
		answer_first(c, n, from);
		return false;
	}
	if (!keep(c, n, from))
		return false;
	if (n->kind == COLL_GOSSIP_DEATH)
		c->peers[n->process].dead = true;
	/* The network first: others wait for it. A link that fails here is found by its event. */
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->ready)
			coll_control_write(c, c->links[i]);
	if (!is_fact(n) && decider(c) == c->rank)
		coll_control_on_first(c, n, -1);
	atomic_fetch_add_explicit(c->env.alarm, 1, memory_order_release);
	c->env.alert(c->env.ctx, n->kind == COLL_GOSSIP_FAIL ? n->comm : 0);
	if (coll_net->write(c->env.wake_fd, &one, sizeof(one)) < 0) {
		/* Full: the sleeper is awake already. */
	}
	say_note(c, n);
	return true;
}

void coll_control_death(struct coll_control *c, int peer, const char *cause)
{
	struct coll_note n = {
	        .kind = COLL_GOSSIP_DEATH, .status = COLL_ERR_PEER_DEAD, .process = peer, .origin = c->rank};

	if (c->peers[peer].unreached)
		n.status = COLL_ERR_PEER_SILENT;
	if (c->closing || c->peers[peer].dead || c->peers[peer].life.left)
		return;
	snprintf(n.text, sizeof(n.text), "%.159s", cause);
	coll_control_explain(c, &n);
	coll_control_spread(c, &n, -1);
}

/* ---- Interface ---- */

bool coll_control_report(struct coll_control *c, const struct coll_note *note)
{
	bool news = true;

	pthread_mutex_lock(&c->lock);
	/* It has not joined, or the others take this process for dead and go on without it. */
	if (!c->peers || c->peers[c->rank].dead)
		news = false;
	else if (note->kind != COLL_GOSSIP_DEATH)
		news = coll_control_spread(c, note, -1);
	else if (note->process >= 0 && note->process < c->size && note->process != c->rank)
		coll_control_suspect(c, note->process, note->text,
		                     note->status == COLL_ERR_PEER_SILENT ? COLL_SUSPECT_UNREACHED : COLL_SUSPECT_LINK);
	coll_control_unlock(c);
	return news;
}

static void write_to_all(struct coll_control *c)
{
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->ready)
			coll_control_write(c, c->links[i]);
}

/* The next call on any communicator looks whether it goes on. */
void coll_control_state_error(struct coll_control *c, const struct coll_note *error)
{
	pthread_mutex_lock(&c->lock);
	if (coll_control_keep_error(c, error)) {
		write_to_all(c);
		c->env.alert(c->env.ctx, 0);
	}
	coll_control_unlock(c);
}

bool coll_control_goes_on(struct coll_control *c, bool certain)
{
	unsigned stated;
	bool over;

	pthread_mutex_lock(&c->lock);
	stated = c->errors;
	over = coll_control_outlives_error(c, certain);
	if (c->errors != stated)
		write_to_all(c);
	coll_control_unlock(c);
	return over;
}

bool coll_control_failure(struct coll_control *c, uint64_t comm, struct coll_note *note)
{
	const struct coll_held_note *h;

	pthread_mutex_lock(&c->lock);
	h = find_failure(c, comm);
	if (h)
		*note = h->note;
	coll_control_unlock(c);
	return h != NULL;
}

int coll_control_first(struct coll_control *c, uint64_t comm)
{
	const struct coll_held_note *h;
	int first = c->rank;

	pthread_mutex_lock(&c->lock);
	h = find_failure(c, comm);
	if (h && (h->first >= 0 || h->note.origin != c->rank))
		first = h->first >= 0 ? h->first : h->note.origin;
	else if (h && decider(c) != c->rank)
		first = -1;
	pthread_mutex_unlock(&c->lock);
	return first;
}

bool coll_control_fact(struct coll_control *c, const struct coll_held_note **at, struct coll_note *note)
{
	const struct coll_held_note *h;

	pthread_mutex_lock(&c->lock);
	h = *at ? (*at)->chain : c->facts;
	if (h)
		*note = h->note;
	coll_control_unlock(c);
	if (h)
		*at = h;
	return h != NULL;
}

/* Once for all communicators. No rank has better information about unreachable hosts, and detecting them took long
 * enough. Facts are never freed while the control plane is there. */
bool coll_control_settled(struct coll_control *c, const struct coll_held_note *death)
{
	struct coll_held_note *h = (struct coll_held_note *)(uintptr_t)death;
	bool aged, settled;

	pthread_mutex_lock(&c->lock);
	aged = h->read || coll_uptime_reaches(&h->age, coll_clock_ns(), COLL_DELAY_NS(SETTLE)) ||
	       h->note.status == COLL_ERR_PEER_SILENT;
	settled = h->read;
	h->read = aged;
	pthread_mutex_unlock(&c->lock);
	if (aged && !settled)
		coll_control_service(c);
	return settled;
}

bool coll_control_note(struct coll_control *c, int i, struct coll_note *note)
{
	const struct coll_held_note *h;

	pthread_mutex_lock(&c->lock);
	h = c->notes;
	while (h && i-- > 0)
		h = h->next;
	if (h)
		*note = h->note;
	coll_control_unlock(c);
	return h != NULL;
}
