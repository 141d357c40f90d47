/*
 * Asks: whom the callers of this process wait for, asked every PING_MS while they do,
 * and what those answer.
 */
#include "comm/control_state.h"

#include "base/clock.h"

enum { ASK_LIFE_MS = 1500 };

void coll_control_answered(struct coll_control *c, int peer, const struct coll_record *theirs)
{
	struct coll_peer_state *s = &c->peers[peer].state;

	s->record = *theirs;
	s->have_record = true;
	s->last_answer_ns = coll_clock_ns();
	s->unanswered = 0;
}

void coll_control_on_ping(struct coll_control *c, struct coll_control_link *l, const struct coll_record *theirs)
{
	struct coll_message m = {.type = COLL_MSG_PONG};

	coll_control_answered(c, l->peer, theirs);
	m.u.record.comm = theirs->comm;
	if (!c->env.record(c->env.ctx, theirs->comm, &m.u.record))
		m.u.record.sequence = 0;
	coll_link_queue(l, &m);
}

void coll_control_send_pings(struct coll_control *c, uint64_t now)
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
		coll_control_open_link(c, a->peer, true);
		l = coll_control_find_link(c, a->peer);
		if (!l)
			continue;
		l->asked = true;
		if (!l->ready || l->count > 8)
			continue;
		m.u.record = a->record;
		coll_link_queue(l, &m);
		if (coll_link_flush(l))
			coll_control_watch(c, l);
	}
}

void coll_control_ask_again(struct coll_control *c, int peer)
{
	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer == peer)
			c->asks[i].next_ns = 0;
}

/* ---- Interface ---- */

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
	coll_control_send_pings(c, now);
	pthread_mutex_unlock(&c->lock);
}

void coll_control_peer(struct coll_control *c, int peer, struct coll_peer_state *state)
{
	pthread_mutex_lock(&c->lock);
	*state = c->peers[peer].state;
	pthread_mutex_unlock(&c->lock);
}
