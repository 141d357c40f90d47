/*
 * A link of several connections. Each is a rail over one pair of ports: an rdma_link of its own in the table, with its
 * own handshake, queue, channels, credits and lock, under the peer's id and the rail's number. The first is the link
 * that users hold; it points to the others. A channel belongs to one rail, which its key names, so
 * nothing has to be reordered, and a rail that breaks is mended as if it were alone: over its own pair of ports, or
 * over that of another rail. The end that asks chooses which, and the other one follows.
 *
 * Invariant: the rails of a link are opened together and closed together. When one has broken for good the link is
 * over: link_down is called once, and LOST tells the peer on the rails that are left. Those go on until the link is
 * closed, so that what users loaned comes back in order. This file does not make connections.
 */
#include "transports/rdma/rails.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/log.h"
#include "transports/common/pending.h"
#include "transports/rdma/cm.h"
#include "transports/rdma/device.h"
#include "transports/rdma/link.h"
#include "transports/rdma/pairs.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/tx.h"

/* ---- one link to those outside ---------------------------------------------------- */

/* Where the connections go. */
struct ways {
	const struct coll_rdma_peer_info *peer;
	struct coll_rdma_route route;
};

static void drain(struct coll_peer_link *base)
{
	struct rdma_link *r = (struct rdma_link *)base;

	while (r->state == LINK_UP && coll_rdma_rx_poll(r) > 0)
		;
}

/* To the peer's port of its pair; where the peer has asked already, to that by which it came. */
static void aim(struct coll_peer_link *base, const void *arg, unsigned number)
{
	const struct ways *ways = arg;
	struct rdma_link *r = (struct rdma_link *)base;

	r->ways = ways->route.rails;
	for (unsigned i = 0; i < r->ways; i++)
		r->way[i] = (struct rdma_way){&r->inst->port[ways->route.rail[i].here],
		                              ways->peer->port[ways->route.rail[i].there]};
	if (!r->port) {
		r->at = r->broke_at = number;
		r->port = r->way[number].port;
		r->since_ns = coll_clock_ns();
	}
	r->target = r->way[r->at < r->ways ? r->at : number].target;
	r->have_target = true;
	if (r->at >= r->ways || r->port != r->way[r->at].port)
		coll_rdma_link_fail(r, COLL_ERR_CORRUPT, "rdma: the peer has rail %u at %s, which is not of the link",
		                    number, r->port->where);
}

static void bye(struct coll_peer_link *base)
{
	const struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_BYE};
	struct rdma_link *r = (struct rdma_link *)base;

	atomic_fetch_add(&r->inst->lingering, 1);
	if (r->state != LINK_UP)
		return;
	coll_rdma_tx_note(r, &note);
	coll_rdma_tx_push(r);
}

static void leave(struct coll_peer_link *r)
{
	coll_rdma_link_leave((struct rdma_link *)r);
}

static const struct coll_link_rails_table rails_table = {drain, aim, bye, leave};

coll_status coll_rdma_rails_open(struct rdma_inst *in, const struct coll_rdma_peer_info *peer,
                                 struct coll_peer_link **link)
{
	struct ways ways = {.peer = peer};

	coll_rdma_route_find(&in->info, peer, &ways.route);
	if (ways.route.rails == 0) {
		rdma_log(in, COLL_LOG_ERROR, "[COLL-6506] rdma: no port of the peer is of the kind of one of ours");
		return COLL_ERR_PEER_DEAD;
	}
	rdma_log(in, COLL_LOG_DEBUG, "rdma: a link of %u rails", ways.route.rails);
	return coll_link_rails_open(&in->links, &rails_table, &peer->id, ways.route.rails, &ways, link);
}

void coll_rdma_link_close(void *link)
{
	struct rdma_inst *in = ((struct rdma_link *)link)->inst;

	coll_link_rails_close(&in->links, &rails_table, link);
	coll_rdma_kick(in);
}

/* ---- another way ------------------------------------------------------------------ */

/* It finds none where it is; one that was never up waits for longer. */
static bool needs_way(const struct rdma_link *r, uint64_t now_ns)
{
	const uint64_t patience_ns = r->mending ? COLL_DELAY_NS(RDMA_MEND_CONNECT) : COLL_DELAY_NS(RDMA_RAIL_FIRST);

	return r->ways > 1 && r->state == LINK_CONNECTING && r->base.opens > 0 && r->stage != STAGE_ACCEPTED &&
	       (now_ns >= r->since_ns + patience_ns || !coll_rdma_device_active(r->port));
}

/* Where a rail goes on. */
struct choice {
	int way; /* -1: nowhere */
	bool up; /* any rail is */
	uint64_t heard_ns;
	uint32_t used;
};

static void consider(const struct rdma_link *r, const struct rdma_link *l, struct choice *c)
{
	if (l == r || !coll_same_process(&l->base.peer, &r->base.peer) || l->base.lingering || !rdma_works(l))
		return;
	c->used |= 1u << l->at;
	c->up |= l->state == LINK_UP;
	if (l->state != LINK_UP || l->at == r->at || l->at >= r->ways || l->moved_ns < c->heard_ns)
		return;
	c->way = (int)l->at;
	c->heard_ns = l->moved_ns;
}

/* Over the pair of a rail that is up, the one heard of last. While none is, the first rail tries pairs that none uses:
 * one may work again. No lock of a link held; r stays, as the service lock is held. */
static struct choice choose(const struct rdma_link *r)
{
	struct choice c = {.way = -1, .used = 1u << r->at};
	struct rdma_link *l;

	for (uint32_t i = 0; (l = coll_rdma_link_at(r->inst, i)); i++) {
		pthread_mutex_lock(&l->base.lock);
		consider(r, l, &c);
		pthread_mutex_unlock(&l->base.lock);
	}
	for (unsigned w = 0; w < r->ways && !c.up && r->mending && r->base.part == 0 && c.way < 0; w++)
		if (!(c.used & 1u << w) && coll_rdma_device_active(r->way[w].port))
			c.way = (int)w;
	/* What its channels send must fit. */
	if (c.way >= 0 && r->way[c.way].port->message_max < r->port->message_max)
		c.way = -1;
	return c;
}

void coll_rdma_rails_pursue(struct rdma_link *r, uint64_t now_ns)
{
	struct choice c;
	unsigned from;
	bool needs;

	pthread_mutex_lock(&r->base.lock);
	needs = needs_way(r, now_ns);
	from = r->at;
	pthread_mutex_unlock(&r->base.lock);
	if (!needs)
		return;
	c = choose(r);
	if (c.way < 0)
		return;
	pthread_mutex_lock(&r->base.lock);
	if (needs_way(r, now_ns) && r->at == from)
		coll_rdma_cm_aim(r, (unsigned)c.way);
	coll_rdma_link_leave(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* Nothing of ours was completed for so long, which a device may take its time to report. */
static bool silent(struct rdma_link *r, uint64_t now_ns)
{
	if (r->sq_signalled <= r->sq_done || r->sq_done != r->done_at_tick)
		r->waits_ns = now_ns;
	r->done_at_tick = r->sq_done;
	return r->ways > 1 && r->state == LINK_UP && now_ns - r->waits_ns >= r->inst->silent_ns;
}

void coll_rdma_rails_listen(struct rdma_link *r, uint64_t now_ns)
{
	char path[180];
	struct choice c;
	bool quiet;

	pthread_mutex_lock(&r->base.lock);
	quiet = silent(r, now_ns);
	pthread_mutex_unlock(&r->base.lock);
	if (!quiet)
		return;
	c = choose(r);
	pthread_mutex_lock(&r->base.lock);
	if (silent(r, now_ns) && c.up && c.way >= 0 && c.heard_ns > r->waits_ns + r->inst->silent_ns / 2) {
		coll_rdma_path_text(r, path, sizeof(path));
		coll_rdma_link_torn(r, COLL_ERR_PEER_DEAD, "rdma %s: no acknowledgement for %u ms", path,
		                    (unsigned)((now_ns - r->waits_ns) / COLL_NS_PER_MS));
		r->since_ns = 0;
	}
	coll_rdma_link_leave(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* ---- the end ------------------------------------------------------------------------ */

void coll_rdma_rails_lost(struct rdma_link *l, uint32_t number)
{
	if (number < RDMA_RAILS_MAX)
		l->lost = number + 1;
	coll_link_rails_notice(&l->inst->links);
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

static void report_peer(struct rdma_link *r, const struct break_of *b)
{
	const struct coll_rdma_note lost = {.type = COLL_RDMA_NOTE_LOST, .id = b->number};

	pthread_mutex_lock(&r->base.lock);
	if (r->state == LINK_UP && !r->lost_reported) {
		r->lost_reported = true;
		coll_rdma_tx_note(r, &lost);
		coll_rdma_tx_push(r);
	}
	coll_rdma_link_leave(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* The first rail speaks for all. */
static void report_users(struct rdma_link *l, unsigned count, const struct break_of *b)
{
	pthread_mutex_lock(&l->base.lock);
	if (!l->down_reported) {
		l->down_reported = true;
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

static void judge(struct coll_peer_link *const *base, unsigned count)
{
	struct rdma_link *const *rail = (struct rdma_link *const *)base;
	struct break_of b = {0};

	for (unsigned k = 0; k < count; k++)
		look(rail[k], k, &b);
	if (!b.any)
		follow(rail, count, &b);
	if (!b.any || (b.leaving && b.lost == 0))
		return;
	for (unsigned k = 0; k < count; k++)
		report_peer(rail[k], &b);
	report_users(rail[0], count, &b);
}

void coll_rdma_rails_tear(struct rdma_inst *in)
{
	coll_link_rails_look(&in->links, judge);
}
