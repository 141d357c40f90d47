/*
 * Asks: whom the callers of this process wait for, asked every PING while they do,
 * and what those answer. One ask per process and communicator; whether a process is
 * alive is known per process.
 */
#include "control/ping.h"

#include "base/clock.h"
#include "base/delay.h"
#include "control/connect.h"
#include "control/control.h"
#include "control/gossip.h"
#include "control/liveness.h"
#include "control/one_host.h"
#include "control/state.h"

static struct ask *find_ask(struct coll_control *c, int peer, uint64_t comm, uint32_t about)
{
	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer == peer && c->asks[i].question.record.comm == comm &&
		    c->asks[i].question.about == about)
			return &c->asks[i];
	return NULL;
}

static void sign_of_life(struct coll_control *c, int peer)
{
	c->peers[peer].life.last_answer_ns = coll_clock_ns();
	c->peers[peer].life.unanswered = 0;
}

void coll_control_on_ping(struct coll_control *c, struct coll_control_link *l, const struct coll_mismatch_msg *q)
{
	struct coll_message m = {.type = COLL_MSG_PONG};

	sign_of_life(c, l->peer);
	/* Sent after all notes: a rank that has the answer also has all earlier notes. The ping is repeated. */
	if (!coll_control_write(c, l) || coll_control_untold(c, l))
		return;
	c->env.answer(c->env.ctx, l->peer, q, &m.u.answer);
	coll_link_queue(l, &m);
}

void coll_control_on_pong(struct coll_control *c, struct coll_control_link *l, const struct coll_answer *answer)
{
	struct ask *a = find_ask(c, l->peer, answer->record.comm, answer->about);

	sign_of_life(c, l->peer);
	if (answer->record.comm == 0 && answer->about == COLL_ABOUT_NOTHING)
		coll_control_alive(c, l->peer, answer->wait);
	if (!a)
		return;
	a->answer = *answer;
	/* The answer to an earlier question: its call record is new all the same. */
	a->answered_ns = c->peers[l->peer].life.last_answer_ns;
	a->about_this = answer->sequence == a->question.sequence;
	if (a->about_this && answer->about > COLL_ABOUT_TAGS)
		a->next_ns = UINT64_MAX; /* of a moment: once is enough */
}

static void ping(struct coll_control *c, struct ask *a, uint64_t now)
{
	struct peer *p = &c->peers[a->peer];
	struct coll_message m = {.type = COLL_MSG_PING};
	struct coll_control_link *l;

	a->next_ns = now + COLL_DELAY_NS(PING);
	/* Several communicators may wait for one process: silence is counted in time. */
	if (now >= p->pinged_ns + COLL_DELAY_NS(PING)) {
		p->pinged_ns = now;
		p->life.unanswered++;
	}
	coll_control_open_link(c, a->peer, true);
	l = coll_control_find_link(c, a->peer);
	if (!l)
		return;
	l->asked = true;
	if (!l->ready)
		return;
	m.u.question = a->question;
	if (coll_link_queue(l, &m))
		coll_control_write(c, l);
}

void coll_control_send_pings(struct coll_control *c, uint64_t now)
{
	for (int i = 0; i < ASKS_MAX; i++) {
		struct ask *a = &c->asks[i];

		if (a->peer >= 0 && now > a->until_ns)
			a->peer = -1;
		if (a->peer >= 0 && now >= a->next_ns)
			ping(c, a, now);
	}
}

void coll_control_ask_again(struct coll_control *c, int peer)
{
	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer == peer)
			c->asks[i].next_ns = 0;
}

/* ---- Interface ---- */

/* A free ask, or the one whose renewal is the longest ago. */
static struct ask *take_ask(struct coll_control *c)
{
	struct ask *oldest = &c->asks[0];

	for (int i = 0; i < ASKS_MAX && oldest->peer >= 0; i++)
		if (c->asks[i].peer < 0 || c->asks[i].until_ns < oldest->until_ns)
			oldest = &c->asks[i];
	return oldest;
}

void coll_control_ask(struct coll_control *c, int peer, const struct coll_mismatch_msg *q)
{
	const uint64_t now = coll_clock_ns();
	struct peer *p;
	struct ask *a;

	pthread_mutex_lock(&c->lock);
	p = &c->peers[peer];
	/* Silence counts from here, and only by what was really asked. */
	if (now > p->asked_until_ns) {
		p->life.asked_ns = now;
		p->life.unanswered = 0;
	}
	p->asked_until_ns = now + COLL_DELAY_NS(PING_KEPT);
	a = find_ask(c, peer, q->record.comm, q->about);
	if (!a) {
		a = take_ask(c);
		*a = (struct ask){.peer = peer};
	} else if (a->question.sequence != q->sequence || a->question.pair_counts != q->pair_counts ||
	           a->question.wait != q->wait || a->question.third != q->third) {
		a->next_ns = 0;
		a->about_this = false;
	}
	a->until_ns = now + COLL_DELAY_NS(PING_KEPT);
	a->question = *q;
	coll_control_send_pings(c, now);
	coll_control_unlock(c);
}

static const struct ask *newest_answer(const struct coll_control *c, int peer, uint64_t comm)
{
	const struct ask *newest = NULL;

	for (int i = 0; i < ASKS_MAX; i++)
		if (c->asks[i].peer == peer && (comm == 0 || c->asks[i].question.record.comm == comm) &&
		    (!newest || c->asks[i].answered_ns > newest->answered_ns))
			newest = &c->asks[i];
	return newest;
}

void coll_control_peer(struct coll_control *c, int peer, uint64_t comm, int about, struct coll_peer_state *state)
{
	const struct ask *a;

	pthread_mutex_lock(&c->lock);
	*state = (struct coll_peer_state){.life = c->peers[peer].life};
	a = about >= 0 ? find_ask(c, peer, comm, (uint32_t)about) : newest_answer(c, peer, comm);
	if (a && a->answered_ns) {
		state->answered_ns = a->answered_ns;
		state->about_this = a->about_this;
		state->answer = a->answer;
	}
	coll_control_unlock(c);
}

uint64_t coll_control_heard_ns(struct coll_control *c, int peer)
{
	uint64_t heard_ns = 0;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->nlinks; i++) {
		const struct coll_control_link *l = c->links[i];

		if (l->ready && l->heard_ns > heard_ns && coll_one_host(&c->peer_infos[l->peer], &c->peer_infos[peer]))
			heard_ns = l->heard_ns;
	}
	if (!c->closing && coll_clock_ns() > heard_ns + COLL_DELAY_NS(HOST_SILENT))
		coll_control_open_link(c, peer, false);
	coll_control_unlock(c);
	return heard_ns;
}
