/*
 * Keepalive messages on control links over TCP, so that they are never idle. The kernel
 * checks an idle connection with one probe per second. Since the death of a host must be
 * detected within 2 s, the loss of one probe would count as a death. Data, in contrast, is
 * resent several times within TCP_USER_TIMEOUT. No keepalive is sent to a process that sends
 * nothing itself because it is stopped: its buffer would fill up, which also looks like
 * death. The kernel's probes watch that connection.
 *
 * And which links must be there: they are made anew when they are missing.
 */
#include "control/keepalive.h"

#include "base/clock.h"
#include "base/delay.h"
#include "control/connect.h"
#include "control/gossip.h"
#include "control/state.h"
#include "net/net.h"

static bool over_tcp(const struct coll_control_link *l)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return coll_net->getsockopt(l->fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain != AF_UNIX;
}

void coll_control_say_alive(struct coll_control *c, uint64_t now)
{
	const struct coll_message m = {.type = COLL_MSG_ALIVE};

	if (now < c->alive_ns)
		return;
	c->alive_ns = now + COLL_DELAY_NS(KEEPALIVE);
	c->watches = false;
	for (int i = 0; i < c->nlinks; i++) {
		struct coll_control_link *l = c->links[i];

		if (!l->ready || l->bye || l->said_bye || !over_tcp(l))
			continue;
		c->watches = true;
		/* A link that fails here is found by its event. */
		if (l->count == 0 && now < l->heard_ns + COLL_DELAY_NS(KEEPALIVE_SILENT) && coll_link_queue(l, &m))
			coll_control_write(c, l);
	}
}

bool coll_control_is_cut(struct coll_control *c)
{
	bool cut = false;

	pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->nlinks && !cut; i++) {
		const struct coll_control_link *l = c->links[i];

		cut = l->ready && !l->bye && coll_link_is_owed(l, COLL_DELAY_HOST_SILENT_MS);
	}
	pthread_mutex_unlock(&c->lock);
	return cut;
}

int coll_control_alive_ms(const struct coll_control *c, int ms)
{
	return c->watches && ms > COLL_DELAY_KEEPALIVE_MS ? COLL_DELAY_KEEPALIVE_MS : ms;
}

/* The links of the ring and the tree must exist before they are needed; an overloaded listener may
 * have refused them. Process number i of these neighbours, -1 for none. */
static int wanted(const struct coll_control *c, int i)
{
	const int peer = i == 0 ? (c->rank + 1) % c->size : c->rank > 0 ? (c->rank - 1) / 2 : c->rank;

	return peer == c->rank || c->peers[peer].life.left || c->peers[peer].dead ? -1 : peer;
}

void coll_control_keep_links(struct coll_control *c, uint64_t now)
{
	if (now < c->keep_ns)
		return;
	c->keep_ns = now + COLL_DELAY_NS(CONTROL_KEEP_LINKS);
	for (int i = 0; i < 2; i++)
		if (wanted(c, i) >= 0)
			coll_control_open_link(c, wanted(c, i), false);
}

bool coll_control_lacks_links(const struct coll_control *c)
{
	for (int i = 0; i < 2 && c->size > 1; i++)
		if (wanted(c, i) >= 0 && !coll_control_find_link(c, wanted(c, i)))
			return true;
	return false;
}
