/*
 * Liveness check: does a process still live whose connection ended without a goodbye?
 *
 * Connections also end for other reasons than deaths, such as a firewall or a reset from
 * outside. So the process is pinged over a control link that still works, and a new connection
 * to its listener is tried. If the listener closes that connection before the handshake
 * completes, it is overloaded or closing, and the attempt is repeated. The outcomes:
 *   an answer             it lives; the answer arrives after all notes that it sent before;
 *   no answer in LIVENESS it is silent; ranks that wait for it detect that by their pings;
 *   its process ended     it is dead, at once: process.c sees it, on one machine;
 *   unreachable           it is dead, at once;
 *   its host does not     it is dead after LIVENESS_UNREACHED without an answer: links come back,
 *   acknowledge           and a kernel gives up after the loss of one probe.
 *
 * A refused connection shows that the process ended, but not how: it was killed, or it ended
 * after it had sent the cause of a failure. It sent its last notes to the processes that it had
 * links with. So only a process that has read such a link to its end may declare it dead at
 * once, after the notes that it read there. All others leave this to them for LIVENESS, as long
 * as such processes exist. If no note has arrived by then, the process ended in order while
 * this one was late, and so did those that received its goodbye. It then counts as one that has
 * left: at the end of a job this is not a failure, and ranks that wait for it get that error.
 */
#include "control/liveness.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/delay.h"
#include "control/connect.h"
#include "control/control.h"
#include "control/gossip.h"
#include "control/state.h"

static void settle(struct coll_control *c, int peer)
{
	c->peers[peer].suspect_until_ns = 0;
	c->nsuspects--;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->peer == peer && c->links[i]->ready)
			c->links[i]->probe = false; /* one like others from now on */
}

/* It lives or is silent, but the data on its data link is lost. */
static void lost_link(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];
	struct coll_note n = {
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_PEER_DEAD, .process = peer, .origin = c->rank};

	if (!p->link_lost)
		return;
	p->link_lost = false;
	snprintf(n.text, sizeof(n.text),
	         "[COLL-2103] the link between rank %d on host %.24s and rank %d on host %.24s has failed: %.110s",
	         c->rank, c->peer_infos[c->rank].host_name, peer, c->peer_infos[peer].host_name, p->cause);
	coll_control_spread(c, &n, -1);
}

/* Number i of the processes that keep links with peer by rule; -1: there are fewer. */
int coll_control_neighbour(const struct coll_control *c, int peer, int i)
{
	const int n = c->size;
	const int all[COLL_NEIGHBOURS] = {(peer + 1) % n, (peer + n - 1) % n, peer > 0 ? (peer - 1) / 2 : -1,
	                                  2 * peer + 1, 2 * peer + 2};

	return all[i] < n && all[i] != peer ? all[i] : -1;
}

/* Another process may have read the last notes of peer. */
static bool others_know(const struct coll_control *c, int peer)
{
	for (int i = 0; i < COLL_NEIGHBOURS; i++) {
		const int n = coll_control_neighbour(c, peer, i);

		if (n >= 0 && n != c->rank && !c->peers[n].dead && !c->peers[n].life.left)
			return true;
	}
	return false;
}

/* A process that keeps a link with it by rule receives its goodbye, or reads the end of the link without one.
 * The same holds for a link that was authenticated for another reason. */
static bool would_have_heard(const struct coll_control *c, int peer)
{
	/* Its goodbye may have come on a link that was altered on the way, and none has been authenticated since. */
	if (c->peers[peer].corrupt && !c->peers[peer].met)
		return false;
	for (int i = 0; i < COLL_NEIGHBOURS; i++)
		if (coll_control_neighbour(c, peer, i) == c->rank)
			return true;
	return c->peers[peer].met;
}

void coll_control_missing(struct coll_control *c, int peer, const char *cause)
{
	struct peer *p = &c->peers[peer];

	if (c->peers[peer].unreached || would_have_heard(c, peer)) {
		coll_control_death(c, peer, cause);
	} else if (!c->closing && !p->dead && !p->life.left) {
		p->life.left = p->life.presumed = true;
		p->life.left_ns = coll_clock_ns();
		coll_control_say(c, COLL_LOG_INFO, "rank %d no longer listens (%s): it has left", peer, cause);
	}
}

/* There is a link to it whose end we have not read. */
static bool reads_on(const struct coll_control *c, int peer)
{
	const struct coll_control_link *l = coll_control_find_link(c, peer);

	return l && l->ready;
}

static void begin(struct coll_control *c, int peer, const char *cause)
{
	struct peer *p = &c->peers[peer];

	if (p->suspect_until_ns)
		return;
	p->suspect_until_ns = coll_clock_ns() + COLL_DELAY_NS(LIVENESS);
	p->suspect = ++c->suspects_;
	p->link_lost = p->unreached = p->answered = false;
	if (cause != p->cause)
		snprintf(p->cause, sizeof(p->cause), "%s", cause);
	c->nsuspects++;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->peer == peer && c->links[i]->ready)
			coll_control_ask_for_life(c, c->links[i]);
}

void coll_control_ask_for_life(struct coll_control *c, struct coll_control_link *l)
{
	struct coll_message m = {.type = COLL_MSG_PING};

	if (!c->peers[l->peer].suspect_until_ns)
		return;
	m.u.question.about = COLL_ABOUT_NOTHING;
	m.u.question.wait = c->peers[l->peer].suspect;
	/* A link that fails here is found by its event. */
	if (coll_link_queue(l, &m))
		coll_control_write(c, l);
}

void coll_control_gone(struct coll_control *c, int peer, const char *cause)
{
	struct peer *p = &c->peers[peer];

	p->refused = true;
	if (c->closing || p->dead || p->life.left)
		return;
	if (!reads_on(c, peer) && (p->met || !others_know(c, peer)))
		coll_control_missing(c, peer, p->suspect_until_ns ? p->cause : cause);
	else
		begin(c, peer, cause);
}

static void reconnect(struct coll_control *c, int peer, uint64_t now)
{
	struct peer *p = &c->peers[peer];

	p->reconnect_ns = now + COLL_DELAY_NS(LIVENESS_RECONNECT);
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->peer == peer && c->links[i]->probe)
			return;
	coll_control_probe(c, peer);
}

void coll_control_suspect(struct coll_control *c, int peer, const char *cause, enum coll_suspect_why why)
{
	struct peer *p = &c->peers[peer];
	const uint64_t now = coll_clock_ns();

	if (c->closing || p->dead || p->life.left)
		return;
	begin(c, peer, cause);
	if (why >= COLL_SUSPECT_LINK && !p->link_lost) {
		p->link_lost = true;
		snprintf(p->cause, sizeof(p->cause), "%s", cause);
	}
	if ((why == COLL_SUSPECT_TIMEOUT || why == COLL_SUSPECT_UNREACHED) && !p->unreached) {
		p->unreached = true;
		if (p->suspect_until_ns > now + COLL_DELAY_NS(LIVENESS_UNREACHED))
			p->suspect_until_ns = now + COLL_DELAY_NS(LIVENESS_UNREACHED);
	}
	reconnect(c, peer, now);
}

void coll_control_reached(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];

	p->cut_off_ns = p->trying_ns = 0;
	if (!p->suspect_until_ns || !p->unreached)
		return;
	p->unreached = false;
	p->suspect_until_ns = coll_clock_ns() + COLL_DELAY_NS(LIVENESS);
}

void coll_control_alive(struct coll_control *c, int peer, uint64_t suspect)
{
	struct peer *p = &c->peers[peer];

	if (!p->suspect_until_ns || p->suspect != suspect || p->answered)
		return;
	coll_control_say(c, COLL_LOG_INFO, "a connection to rank %d broke (%s), but its process lives", peer, p->cause);
	if (!p->link_lost) {
		settle(c, peer);
		return;
	}
	/* It may have ended the link for lack of something, and its note of that says more. */
	p->answered = true;
	p->suspect_until_ns = coll_clock_ns() + COLL_DELAY_NS(SETTLE);
}

void coll_control_settle_suspects(struct coll_control *c, uint64_t now)
{
	for (int r = 0; r < c->size && c->nsuspects > 0; r++) {
		struct peer *p = &c->peers[r];

		if (!p->suspect_until_ns)
			continue;
		if (p->dead || p->life.left) {
			settle(c, r);
		} else if (now >= p->suspect_until_ns) {
			settle(c, r);
			if (p->answered)
				lost_link(c, r);
			else if (p->refused || (p->unreached && !(c->env.linked && c->env.linked(c->env.ctx, r))))
				coll_control_missing(c, r, p->cause);
			else
				lost_link(c, r);
			/* Those who know have had their time. */
			if (p->life.presumed)
				p->life.left_ns -= COLL_DELAY_NS(LIVENESS);
		} else if (now >= p->reconnect_ns && !p->answered) {
			reconnect(c, r, now);
		}
	}
}
