/*
 * A link of several connections. Each is a rail over one pair of ports: an rdma_link of its own in the table, with its
 * own handshake, queue, channels, credits and lock, under the peer's id and the rail's number. The first is the link
 * that users hold; it points to the others. A channel belongs to one rail, which its key names, so
 * nothing has to be reordered, and a rail that breaks is mended as if it were alone.
 *
 * Invariant: the rails of a link are opened together and closed together. When one has broken for good the link is
 * over: link_down is called once, and LOST tells the peer on the rails that are left. Those go on until the link is
 * closed, so that what users lent comes back in order. This file does not make connections.
 */
#include "transports/rdma/rails.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "transports/rdma/device.h"
#include "transports/rdma/link.h"
#include "transports/rdma/pairs.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/tx.h"

/* ---- joining ---------------------------------------------------------------------- */

/* One that the peer has made already, or a new one; the table's lock held, so that it stays. What the peer has closed
 * meanwhile is none: its goodbye is read first. The first may be in use here already. */
static struct rdma_link *take_rail(struct rdma_inst *in, const struct coll_process_id *peer, unsigned number)
{
	struct rdma_link *r = (struct rdma_link *)coll_link_table_find(&in->links, peer, number);
	bool usable = false;

	if (r) {
		pthread_mutex_lock(&r->base.lock);
		while (r->state == LINK_UP && coll_rdma_rx_poll(r) > 0)
			;
		usable = (r->base.opens == 0 || number == 0) && coll_peer_link_works(&r->base);
		coll_rdma_link_leave(r);
		pthread_mutex_unlock(&r->base.lock);
	}
	return usable ? r : (struct rdma_link *)coll_link_table_new(&in->links, peer, number);
}

/* To the peer's port of its pair. */
static void aim(struct rdma_link *r, const struct coll_rdma_peer_info *peer, const struct coll_rdma_route *route,
                unsigned number)
{
	struct rdma_port *port = &r->inst->port[route->rail[number].here];

	pthread_mutex_lock(&r->base.lock);
	r->base.opens += number > 0; /* the first is counted by its users */
	r->target = peer->port[route->rail[number].there];
	r->have_target = true;
	if (!r->port)
		r->port = port;
	else if (r->port != port)
		coll_rdma_link_fail(r, COLL_ERR_CORRUPT, "rdma: the peer has rail %u at %s, which belongs to %s",
		                    number, r->port->where, port->where);
	coll_rdma_link_leave(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* The rails of l, taken from now on; how many there are then, itself counted. */
static unsigned take_rails(struct rdma_link *l, const struct coll_rdma_peer_info *peer,
                           const struct coll_rdma_route *route, struct rdma_link *rail[RDMA_RAILS_MAX])
{
	unsigned n = 0;

	for (; n < route->rails; n++) {
		rail[n] = n == 0 ? l : take_rail(l->inst, &peer->id, n);
		if (!rail[n])
			break;
		aim(rail[n], peer, route, n);
	}
	return n;
}

/* Count one handle more; l has its rails from the first on. False: some cannot be had. */
static bool hold(struct rdma_link *l, const struct coll_rdma_peer_info *peer, const struct coll_rdma_route *route)
{
	struct rdma_link *rail[RDMA_RAILS_MAX] = {l};
	const bool first = l->rails == 0; /* written under the table's lock */
	const unsigned count = first ? take_rails(l, peer, route, rail) : l->rails;

	pthread_mutex_lock(&l->base.lock);
	l->base.opens++;
	if (first) {
		memcpy(l->rail, rail, sizeof(rail));
		l->rails = count;
	}
	pthread_mutex_unlock(&l->base.lock);
	/* One that the peer made may have ended since it was taken. */
	if (first && count > 1) {
		atomic_store(&l->inst->torn, true);
		atomic_fetch_add(&l->inst->links.notices, 1);
	}
	return count == route->rails;
}

coll_status coll_rdma_rails_open(struct rdma_inst *in, const struct coll_rdma_peer_info *peer, struct rdma_link **link)
{
	struct coll_rdma_route route;
	struct rdma_link *l;
	bool held;

	coll_rdma_route_find(&in->info, peer, &route);
	if (route.rails == 0) {
		rdma_log(in, COLL_LOG_ERROR, "[COLL-6506] rdma: no port of the peer is of the kind of one of ours");
		return COLL_ERR_PEER_DEAD;
	}
	rdma_log(in, COLL_LOG_DEBUG, "rdma: a link of %u rails", route.rails);
	pthread_mutex_lock(&in->links.lock);
	l = take_rail(in, &peer->id, 0);
	held = l && hold(l, peer, &route);
	pthread_mutex_unlock(&in->links.lock);
	if (l && !held)
		coll_rdma_link_close(l);
	*link = l;
	return held ? COLL_OK : COLL_ERR_MEMORY;
}

/* ---- one link to those outside ---------------------------------------------------- */

struct rdma_link *coll_rdma_rails_of(struct rdma_link *l, const struct coll_channel_key *key)
{
	return l->rails > 1 ? l->rail[key->rail % l->rails] : l;
}

/* Up when all are. A rail that is still connecting delays no other: the frames of its channels wait in its queue. */
coll_status coll_rdma_rails_status(void *link)
{
	const struct rdma_link *l = link;
	coll_status status = coll_peer_link_status(link);

	for (unsigned i = 1; i < l->rails && (status == COLL_OK || status == COLL_AGAIN); i++) {
		const coll_status s = coll_peer_link_status(l->rail[i]);

		if (s != COLL_OK)
			status = s;
	}
	return status;
}

/* ---- the end ------------------------------------------------------------------------ */

void coll_rdma_rails_lost(struct rdma_link *l, uint32_t number)
{
	if (number < RDMA_RAILS_MAX)
		l->lost = number + 1;
	atomic_store(&l->inst->torn, true);
	atomic_fetch_add(&l->inst->links.notices, 1);
}

struct break_of {
	bool any;
	bool leaving;    /* the peer has said goodbye on one: the end of the others is no death */
	unsigned number; /* of the rail to blame */
	unsigned lost;   /* as in struct rdma_link */
	coll_status why;
	char cause[sizeof(((struct coll_peer_link *)NULL)->cause)];
};

static void look(struct rdma_link *r, unsigned number, struct break_of *b)
{
	pthread_mutex_lock(&r->base.lock);
	b->leaving |= r->state == LINK_ENDED;
	b->lost = r->lost > 0 ? r->lost : b->lost;
	if (r->state == LINK_DOWN && !b->any) {
		b->any = true;
		b->number = number;
		b->why = r->base.why;
		memcpy(b->cause, r->base.cause, sizeof(b->cause));
	}
	pthread_mutex_unlock(&r->base.lock);
}

/* The peer has noticed first that one is lost. */
static void follow(struct rdma_link *const *rail, unsigned count, struct break_of *b)
{
	const unsigned number = b->lost - 1;
	char path[160];

	if (b->lost == 0 || number >= count)
		return;
	pthread_mutex_lock(&rail[number]->base.lock);
	coll_rdma_path_text(rail[number], path, sizeof(path));
	coll_rdma_link_fail(rail[number], COLL_ERR_PEER_DEAD, "rdma %s: the peer has lost it", path);
	coll_rdma_link_leave(rail[number]);
	pthread_mutex_unlock(&rail[number]->base.lock);
	b->leaving = b->any = false;
	look(rail[number], number, b);
}

static void tell_peer(struct rdma_link *r, const struct break_of *b)
{
	const struct coll_rdma_note lost = {.type = COLL_RDMA_NOTE_LOST, .id = b->number};

	pthread_mutex_lock(&r->base.lock);
	if (r->state == LINK_UP && !r->lost_told) {
		r->lost_told = true;
		coll_rdma_tx_note(r, &lost);
		coll_rdma_tx_push(r);
	}
	coll_rdma_link_leave(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* The first rail speaks for all. */
static void tell_users(struct rdma_link *l, unsigned count, const struct break_of *b)
{
	pthread_mutex_lock(&l->base.lock);
	if (!l->down_told) {
		l->down_told = true;
		l->base.notice = true;
		l->base.why = b->why;
		atomic_fetch_add(&l->inst->links.notices, 1);
	}
	if (l->base.notice)
		snprintf(l->base.cause, sizeof(l->base.cause), "rail %u of %u: %.200s", b->number + 1, count, b->cause);
	l->news = true;
	coll_rdma_link_leave(l);
	pthread_mutex_unlock(&l->base.lock);
}

/* The rails of a link stay while the table is locked: they are swept and used again under that lock only. */
void coll_rdma_rails_tear(struct rdma_inst *in)
{
	if (!atomic_load_explicit(&in->torn, memory_order_relaxed) || !atomic_exchange(&in->torn, false))
		return;
	pthread_mutex_lock(&in->links.lock);
	for (uint32_t i = 0; i < in->links.count; i++) {
		struct rdma_link *l = (struct rdma_link *)in->links.at[i], *rail[RDMA_RAILS_MAX];
		struct break_of b = {0};
		unsigned count;

		pthread_mutex_lock(&l->base.lock);
		count = l->rails;
		memcpy(rail, l->rail, sizeof(rail));
		pthread_mutex_unlock(&l->base.lock);
		for (unsigned k = 0; k < count && count > 1; k++)
			look(rail[k], k, &b);
		if (count > 1 && !b.any)
			follow(rail, count, &b);
		if (!b.any || (b.leaving && b.lost == 0))
			continue;
		for (unsigned k = 0; k < count; k++)
			tell_peer(rail[k], &b);
		tell_users(l, count, &b);
	}
	pthread_mutex_unlock(&in->links.lock);
}
