/*
 * A link of several sockets. Each is a rail: a tcp_link of its own in the table, with its own
 * handshake, queue, channels and lock, under the peer's id and the rail's number. The first is the
 * link that users hold; it has pointers to the others. A channel belongs to one rail, which its key
 * names, so nothing has to be reordered: credits, sequence numbers, CLOSE and BYE
 * belong to each rail, as if it were alone.
 *
 * Invariant: the rails of a link share their state. They are opened together, closed
 * together, and when one breaks the others are broken with its cause. link_down is
 * called once, for the first. This file does not make connections.
 */
#include "transports/tcp/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/ips.h"
#include "base/log.h"
#include "tcp.h"
#include "transports/tcp/address.h"
#include "transports/tcp/closing.h"
#include "transports/tcp/link.h"
#include "transports/tcp/pairs.h"
#include "transports/tcp/rx.h"
#include "transports/tcp/tx.h"

bool coll_tcp_rails_parse(const char *text, unsigned *sockets)
{
	char *end;
	unsigned long n;

	*sockets = 0;
	if (text[0] == '\0' || strcmp(text, "auto") == 0)
		return true;
	n = strtoul(text, &end, 10);
	if (text[0] < '1' || text[0] > '9' || *end != '\0' || n > TCP_RAILS_MAX)
		return false;
	*sockets = (unsigned)n;
	return true;
}

/* ---- joining ------------------------------------------------------------------ */

/* This pair of addresses first; the others, by the kernel's routes, if it leads nowhere. */
static void prefer(struct tcp_link *r, const struct coll_tcp_pair *p)
{
	struct coll_tcp_address *t = &r->target;
	unsigned n = 1;
	struct coll_tcp_candidate sorted[TCP_CANDIDATES_MAX] = {p->there};

	for (unsigned i = 0; i < t->count && n < TCP_CANDIDATES_MAX; i++)
		if (!coll_tcp_candidate_same_ip(&t->candidate[i], &p->there))
			sorted[n++] = t->candidate[i];
	memcpy(t->candidate, sorted, n * sizeof(sorted[0]));
	t->count = n;
	r->sourced = true;
	r->source = p->here;
}

static void aim(struct tcp_link *r, const struct coll_tcp_address *target, const struct coll_tcp_pair *p)
{
	r->target = *target;
	r->target_next = 0;
	r->round = 0;
	r->short_ns = r->cut_off_ns = 0;
	r->target_other = 0;
	r->answered = false;
	r->sourced = false;
	r->deadline_ns = coll_clock_ns() + r->inst->timeout_ns;
	if (p != NULL)
		prefer(r, p);
}

/* Where the sockets go. */
struct way {
	struct coll_tcp_address target;
	struct coll_tcp_route route;
};

static void aim_rail(struct coll_peer_link *r, const void *ways, unsigned number)
{
	const struct way *way = ways;

	aim((struct tcp_link *)r, &way->target, way->route.paired ? &way->route.pair[number] : NULL);
}

static void drain(struct coll_peer_link *base)
{
	struct tcp_link *r = (struct tcp_link *)base;

	while (r->state == LINK_UP && coll_tcp_rx(r, 1 << 20) > 0)
		;
}

static void leave(struct coll_peer_link *r)
{
	coll_tcp_link_work((struct tcp_link *)r);
}

/* The rest of the flush, and the peer's end, are service()'s. */
static void bye(struct coll_peer_link *base)
{
	struct tcp_link *r = (struct tcp_link *)base;
	struct coll_tcp_head head = {.type = COLL_TCP_BYE};

	if (r->state != LINK_UP && r->state != LINK_CONNECTING)
		return;
	coll_tcp_tx_control(r, &head);
	coll_tcp_tx_flush(r);
}

static const struct coll_link_rails_table rails_table = {drain, aim_rail, bye, leave};

coll_status coll_tcp_rails_open(struct tcp_inst *in, const struct coll_process_id *peer,
                                const struct coll_tcp_address *target, struct coll_peer_link **link)
{
	struct way way = {.target = *target};
	struct coll_ip met;

	coll_tcp_route_find(&in->address, target, in->sockets, &way.route);
	coll_tcp_address_order(&in->address, &way.target,
	                       in->env.met && in->env.met(in->env.ctx, peer, &met) ? &met : NULL);
	if (way.target.count == 0) {
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6103] tcp: the peer tells no address that other hosts can use");
		return COLL_ERR_PEER_DEAD;
	}
	if (way.route.paired)
		tcp_log(in, COLL_LOG_DEBUG, "tcp: a link of %u sockets", way.route.sockets);
	return coll_link_rails_open(&in->links, &rails_table, peer, way.route.sockets, &way, link);
}

void coll_tcp_link_close(void *link)
{
	struct tcp_inst *in = ((struct tcp_link *)link)->inst;

	coll_link_rails_close(&in->links, &rails_table, link);
	coll_reactor_kick(&in->service);
}

/* ---- the end ---------------------------------------------------------------------- */

struct break_of {
	bool any;
	bool leaving;    /* the peer has said goodbye on one: the end of the others is no death */
	unsigned number; /* of the rail to blame */
	unsigned lost;   /* as in struct tcp_link */
	coll_status why;
	char cause[sizeof(((struct coll_peer_link *)NULL)->cause)];
	/* That has not been acknowledged for longest, of those that are up. */
	uint64_t silent_ns;
	unsigned silent;
};

static void look(struct tcp_link *r, unsigned number, unsigned count, struct break_of *b)
{
	const uint64_t now = coll_clock_ns();

	pthread_mutex_lock(&r->base.lock);
	while (r->state == LINK_UP && coll_tcp_rx(r, 1 << 20) > 0)
		;
	b->leaving |= r->bye_seen || r->state == LINK_ENDED;
	b->lost = r->lost <= count && r->lost > 0 ? r->lost : b->lost;
	coll_tcp_link_work(r);
	if (r->state == LINK_DOWN && !b->any) {
		b->any = true;
		b->number = number;
		b->why = r->base.why;
		snprintf(b->cause, sizeof(b->cause), "rail %u of %u: %.200s", number + 1, count, r->base.cause);
	}
	if (r->state == LINK_UP && r->unanswered_ns != 0 && now > r->unanswered_ns + b->silent_ns) {
		b->silent_ns = now - r->unanswered_ns;
		b->silent = number;
	}
	pthread_mutex_unlock(&r->base.lock);
}

/* The peer ends all rails when it has lost one, and its end of that one reaches nobody. So the rail to blame is the
 * one that it names, or else one that is silent, not the first whose stream ended. */
static void blame(struct tcp_link *const *rail, unsigned count, struct break_of *b)
{
	const bool silent = b->silent_ns >= COLL_DELAY_NS(TCP_UNACKNOWLEDGED) / 2;
	const char *where;

	if (b->why != COLL_ERR_PEER_DEAD || (b->lost == 0 && !silent))
		return;
	b->number = b->lost > 0 ? b->lost - 1 : b->silent;
	pthread_mutex_lock(&rail[b->number]->base.lock);
	where = rail[b->number]->where;
	snprintf(b->cause, sizeof(b->cause), "rail %u of %u: %s%sthe peer no longer reaches this host", b->number + 1,
	         count, where, *where ? ": " : "");
	pthread_mutex_unlock(&rail[b->number]->base.lock);
}

static void tear(struct tcp_link *r, const struct break_of *b)
{
	const struct coll_tcp_head lost = {.type = COLL_TCP_LOST, .channel = b->number};

	pthread_mutex_lock(&r->base.lock);
	if (r->state == LINK_UP)
		coll_tcp_closing_begin(r, &lost);
	coll_tcp_link_tear(r, b->why, "%s", b->cause);
	coll_tcp_link_work(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* The link_down that its end has withheld, with the cause that was found. */
static void announce(struct tcp_link *l, const struct break_of *b)
{
	pthread_mutex_lock(&l->base.lock);
	if (!b->leaving) {
		l->judged = true;
		snprintf(l->base.cause, sizeof(l->base.cause), "%s", b->cause);
	}
	if (l->unjudged) {
		l->unjudged = false;
		l->base.notice = true;
		atomic_fetch_add(&l->inst->links.notices, 1);
	}
	pthread_mutex_unlock(&l->base.lock);
}

static void judge(struct coll_peer_link *const *base, unsigned count)
{
	struct tcp_link *const *rail = (struct tcp_link *const *)base;
	struct break_of b = {0};
	bool judged;

	/* Another thread may come here before its end has been told. */
	pthread_mutex_lock(&rail[0]->base.lock);
	judged = rail[0]->judged;
	pthread_mutex_unlock(&rail[0]->base.lock);
	if (judged)
		return;
	for (unsigned k = 0; k < count; k++)
		look(rail[k], k, count, &b);
	if (!b.any)
		return;
	if (!b.leaving)
		blame(rail, count, &b);
	for (unsigned k = 0; k < count && !b.leaving; k++)
		tear(rail[k], &b);
	announce(rail[0], &b);
}

void coll_tcp_rails_tear(struct tcp_inst *in)
{
	coll_link_rails_look(&in->links, judge);
}
