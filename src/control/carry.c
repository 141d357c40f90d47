/*
 * See carry.h. The end of a process is certain if its descriptor says so (process.c) or its Unix listener, in one
 * network namespace, refuses.
 */
#include "control/carry.h"

#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "control/connect.h"
#include "control/gossip.h"
#include "control/state.h"
#include "control/words.h"
#include "net/net.h"

void coll_control_lock(struct coll_control *c)
{
	pthread_mutex_lock(&c->lock);
}

/* A link to a process that is reported as out of reach is tried, too: the network may be back. */
static void open_link(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];
	const uint64_t now = coll_clock_ns();

	if (!p->dead) {
		coll_control_open_link(c, peer, true);
	} else if (!p->ended && !coll_control_find_link(c, peer) && now >= p->carry_ns) {
		p->carry_ns = now + COLL_DELAY_NS(CONTROL_KEEP_LINKS);
		coll_control_probe(c, peer);
	}
}

bool coll_control_carry(struct coll_control *c, int peer, const uint8_t bytes[COLL_CARRIED_BYTES])
{
	struct coll_message m = {.type = COLL_MSG_CARRIED};
	struct coll_control_link *l = coll_control_find_link(c, peer);

	if (!l || !l->ready) {
		open_link(c, peer);
		return false;
	}
	memcpy(m.u.carried.bytes, bytes, COLL_CARRIED_BYTES);
	/* A link that fails here is found by its event. */
	return coll_link_queue(l, &m) && coll_control_write(c, l);
}

/* False: not all connections could be accepted. */
static bool accept_all(struct coll_control *c)
{
	struct pollfd p = {.fd = c->listen_unix, .events = POLLIN};

	while (coll_net->poll(&p, 1, 0) > 0) {
		coll_control_accept(c, c->listen_unix);
		if (c->listen_ns)
			return false;
	}
	return true;
}

bool coll_control_has_ended(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];
	const uint64_t now = coll_clock_ns();
	int fd;

	if (p->words_read)
		return true;
	if (!coll_control_is_here(c, peer))
		return false;
	if (!p->ended && coll_control_is_reported(c, peer) && now >= p->looked_ns) {
		p->looked_ns = now + COLL_DELAY_NS(LIVENESS_RECONNECT);
		fd = coll_control_connect_here(c, peer);
		if (fd >= 0)
			coll_net->close(fd);
	}
	if (!p->ended || (!planted(CHANGE_UNREAD) && !accept_all(c)))
		return false;
	for (int i = 0; i < c->nlinks && !planted(CHANGE_UNREAD); i++)
		coll_control_take_words(c, c->links[i]);
	p->words_read = true;
	return true;
}

bool coll_control_is_reported(const struct coll_control *c, int peer)
{
	return c->peers[peer].dead || c->peers[peer].life.left || c->peers[peer].ended;
}
