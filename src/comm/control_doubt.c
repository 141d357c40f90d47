/*
 * Doubts: whether a process still lives whose connection ended without a goodbye.
 *
 * Connections end for other reasons than deaths (a firewall, a reset from outside). So we
 * knock at its door once more, by a connection of its own: refused, or no way there, is
 * a death at once; welcomed (or being asked in by the other, who knocks too) is a life; a
 * door that hangs up before the proof is crowded, or closing: knock again. No answer at
 * all for DOUBT_MS is silence, which those who wait for the process find out by asking.
 */
#include "comm/control_state.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"

enum { DOUBT_MS = 1000, KNOCK_MS = 20 };

static void settle(struct coll_control *c, struct peer *p)
{
	p->doubt_until_ns = 0;
	c->ndoubts--;
}

/* It lives, or says nothing: but what its data link carried is lost. */
static void lost_link(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];
	struct coll_note n = {.kind = COLL_NOTE_FAIL, .status = COLL_ERR_PEER_DEAD, .process = peer, .origin = c->rank};

	if (!p->link_lost)
		return;
	p->link_lost = false;
	snprintf(n.text, sizeof(n.text), "[COLL-2103] the link between rank %d and rank %d is lost: %.150s", c->rank,
	         peer, p->cause);
	coll_control_spread(c, &n, -1);
}

static void knock(struct coll_control *c, int peer, uint64_t now)
{
	struct peer *p = &c->peers[peer];

	p->knock_ns = now + KNOCK_MS * MS;
	for (int i = 0; i < c->nlinks; i++)
		if (c->links[i]->peer == peer && c->links[i]->probe && !c->links[i]->ready)
			return;
	if (coll_control_probe(c, peer) || p->dead)
		return;
	coll_control_death(c, peer, p->cause);
}

void coll_control_doubt(struct coll_control *c, int peer, const char *cause, bool link_lost)
{
	struct peer *p = &c->peers[peer];
	const uint64_t now = coll_clock_ns();

	if (c->closing || p->dead || p->life.left)
		return;
	if (!p->doubt_until_ns) {
		p->doubt_until_ns = now + DOUBT_MS * MS;
		p->link_lost = false;
		snprintf(p->cause, sizeof(p->cause), "%s", cause);
		c->ndoubts++;
	}
	if (link_lost && !p->link_lost) {
		p->link_lost = true;
		snprintf(p->cause, sizeof(p->cause), "%s", cause);
	}
	knock(c, peer, now);
}

void coll_control_alive(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];

	if (!p->doubt_until_ns)
		return;
	settle(c, p);
	coll_control_say(c, COLL_LOG_INFO, "a connection to rank %d broke (%s), but its process lives", peer, p->cause);
	lost_link(c, peer);
}

void coll_control_settle_doubts(struct coll_control *c, uint64_t now)
{
	for (int r = 0; r < c->size && c->ndoubts > 0; r++) {
		struct peer *p = &c->peers[r];

		if (!p->doubt_until_ns)
			continue;
		if (p->dead || p->life.left) {
			settle(c, p);
		} else if (now >= p->doubt_until_ns) {
			settle(c, p);
			lost_link(c, r);
		} else if (now >= p->knock_ns) {
			knock(c, r, now);
		}
	}
}
