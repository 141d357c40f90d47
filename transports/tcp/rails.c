/*
 * A link of several sockets. Each is a rail: a tcp_link of its own in the table, with its own
 * handshake, queue, channels and lock (transports/common/rails.h). Credits, running numbers, CLOSE and BYE belong to
 * each rail, as if it were alone.
 *
 * Invariant: a rail whose socket is lost goes on over the addresses of another one that is well (kept.h). The link ends
 * when one of them ends for another reason, or none is left; then all end with that cause, and link_down is called
 * once, for the first. This file does not make connections.
 */
#include "transports/tcp/rails.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/ips.h"
#include "base/log.h"
#include "tcp.h"
#include "transports/tcp/address.h"
#include "transports/tcp/kept.h"
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

	((struct tcp_link *)r)->several = way->route.sockets > 1;
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

static uint32_t round_trip_us(const struct tcp_inst *in, const struct coll_process_id *peer)
{
	return in->env.round_trip_us ? in->env.round_trip_us(in->env.ctx, peer) : 0;
}

/* Once in an instance. Four interfaces that all carry much are no long path. */
static void say_long(struct tcp_inst *in, uint32_t us)
{
	if (coll_tcp_is_long(0, us) && !atomic_exchange(&in->said_long, true))
		tcp_log(in, COLL_LOG_INFO,
		        "tcp: a round trip of %.1f ms: links of %d sockets, and bbr where the system offers it",
		        us / 1e3, TCP_LONG_SOCKETS);
}

coll_status coll_tcp_rails_open(struct tcp_inst *in, const struct coll_process_id *peer,
                                const struct coll_tcp_address *target, struct coll_peer_link **link)
{
	struct way way = {.target = *target};
	struct coll_ip met;

	coll_tcp_route_find(&in->address, target, in->sockets, round_trip_us(in, peer), &way.route);
	coll_tcp_address_order(&in->address, &way.target,
	                       in->env.met && in->env.met(in->env.ctx, peer, &met) ? &met : NULL);
	if (way.target.count == 0) {
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6103] tcp: the peer tells no address that other hosts can use");
		return COLL_ERR_PEER_DEAD;
	}
	if (in->sockets == 0 && way.route.sockets == TCP_LONG_SOCKETS)
		say_long(in, round_trip_us(in, peer));
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

/* ---- a rail is lost ----------------------------------------------------------------- */

/* What the rails of a link are, each looked at once. */
struct state {
	int over;    /* one that ended for good; -1: none */
	int lost;    /* one whose socket is lost, the longest */
	int gone;    /* one that has been silent until its host counts as gone */
	int well;    /* one that is up and acknowledged */
	bool left;   /* the peer has said goodbye on one: the end of the others is no death */
	bool others; /* up and not well, or connecting for the first time */
};

static void look(struct tcp_link *const *rail, unsigned k, struct state *s)
{
	struct tcp_link *r = rail[k];
	uint64_t now, silent_ns;

	pthread_mutex_lock(&r->base.lock);
	drain(&r->base);
	now = coll_clock_ns();
	silent_ns = r->unanswered_ns != 0 && now > r->unanswered_ns ? now - r->unanswered_ns : 0;
	coll_tcp_link_work(r);
	s->left |= r->bye_seen || r->state == LINK_ENDED;
	if (r->state == LINK_DOWN && s->over < 0)
		s->over = (int)k;
	if (r->state == LINK_CONNECTING && r->again && (s->lost < 0 || r->stranded_ns < rail[s->lost]->stranded_ns))
		s->lost = (int)k;
	/* One that tries an address is given the time that it takes. */
	s->others |= r->state == LINK_CONNECTING && r->again && !r->stranded &&
	             now < r->stranded_ns + COLL_DELAY_NS(TCP_CONNECT_FIRST);
	if (r->state == LINK_UP && silent_ns < COLL_DELAY_NS(TCP_RAIL_HEARD)) {
		s->well = (int)k;
	} else if (r->state == LINK_UP && r->unreached) {
		s->gone = (int)k;
		snprintf(r->base.cause, sizeof(r->base.cause), "%s: host unreachable: no acknowledgement for %u ms",
		         r->where, (unsigned)(silent_ns / COLL_NS_PER_MS));
	} else {
		s->others |= r->state == LINK_UP || (r->state == LINK_CONNECTING && !r->again);
	}
	pthread_mutex_unlock(&r->base.lock);
}

/* Over the addresses of a rail that is well. */
static void move(struct tcp_link *r, struct tcp_link *well)
{
	struct tcp_link by;
	char where[sizeof(well->where)];

	pthread_mutex_lock(&well->base.lock);
	memcpy(where, well->where, sizeof(where));
	by.target = well->target;
	by.sourced = well->sourced;
	by.source = well->source;
	pthread_mutex_unlock(&well->base.lock);
	pthread_mutex_lock(&r->base.lock);
	/* Over the same addresses it has lost packets of its own, which TCP sends again: as long as a host may be
	 * silent. */
	if (r->state == LINK_UP && r->silent && r != well && (r->unreached || strcmp(r->where, where) != 0))
		coll_tcp_kept_strand(r, "no acknowledgement for %u ms", (unsigned)COLL_DELAY_TCP_RAIL_SILENT_MS);
	if (r->stranded) {
		aim(r, &by.target, NULL);
		r->sourced = by.sourced;
		r->source = by.source;
		r->stranded = false;
		r->retry_ns = 0;
		coll_reactor_kick(&r->inst->service);
	}
	coll_tcp_link_work(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* Whether the rail goes by that address of ours: it may have left the one that it was meant to. */
static bool goes_by(struct tcp_link *r, const struct coll_tcp_candidate *here)
{
	struct coll_tcp_candidate at;
	bool same;

	pthread_mutex_lock(&r->base.lock);
	same = coll_tcp_candidate_same_ip(r->fd >= 0 && coll_tcp_candidate_of(r->fd, &at) ? &at : &r->source, here);
	pthread_mutex_unlock(&r->base.lock);
	return same;
}

/* All are silent, but not yet given up: one of them tries a pair of addresses that none uses, which may have worked
 * again since its rail was lost. */
static void try_unused(struct tcp_link *const *rail, unsigned count)
{
	struct tcp_link *r = rail[0];
	struct coll_tcp_route route;
	unsigned i = 0;

	pthread_mutex_lock(&r->base.lock);
	coll_tcp_route_find(&r->inst->address, &r->target, r->inst->sockets, round_trip_us(r->inst, &r->base.peer),
	                    &route);
	pthread_mutex_unlock(&r->base.lock);
	for (unsigned k = 0; route.paired && i < route.sockets && k < count;)
		if (goes_by(rail[k], &route.pair[i].here))
			i++, k = 0;
		else
			k++;
	pthread_mutex_lock(&r->base.lock);
	if (route.paired && i < route.sockets && r->state == LINK_UP && r->silent) {
		const struct coll_tcp_address target = r->target;

		coll_tcp_kept_strand(r, "no acknowledgement for %u ms", (unsigned)COLL_DELAY_TCP_RAIL_SILENT_MS);
		aim(r, &target, &route.pair[i]);
		r->stranded = false;
		r->retry_ns = 0;
	}
	coll_tcp_link_work(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* The peer is leaving: it makes no connection any more. Its goodbye was for this rail, too. */
static void leave_behind(struct tcp_link *r)
{
	pthread_mutex_lock(&r->base.lock);
	if (r->stranded)
		coll_tcp_link_ended(r);
	coll_tcp_link_work(r);
	pthread_mutex_unlock(&r->base.lock);
}

/* For the cause of the one that is over, or was lost first. */
static void end(struct tcp_link *const *rail, unsigned count, unsigned number)
{
	struct tcp_link *l = rail[0];
	char cause[sizeof(l->base.cause)];
	coll_status why;

	pthread_mutex_lock(&rail[number]->base.lock);
	why = rail[number]->state == LINK_DOWN ? rail[number]->base.why
	      : rail[number]->state == LINK_UP ? COLL_ERR_PEER_SILENT
	                                       : COLL_ERR_PEER_DEAD;
	snprintf(cause, sizeof(cause), "rail %u of %u: %.200s", number + 1, count, rail[number]->base.cause);
	pthread_mutex_unlock(&rail[number]->base.lock);
	for (unsigned k = 0; k < count; k++) {
		pthread_mutex_lock(&rail[k]->base.lock);
		coll_tcp_link_tear(rail[k], why, "%s", cause);
		coll_tcp_link_work(rail[k]);
		pthread_mutex_unlock(&rail[k]->base.lock);
	}
	/* The link_down that its end has withheld, with the cause that was found. */
	pthread_mutex_lock(&l->base.lock);
	l->judged = true;
	snprintf(l->base.cause, sizeof(l->base.cause), "%s", cause);
	pthread_mutex_unlock(&l->base.lock);
}

static void announce(struct tcp_link *l)
{
	pthread_mutex_lock(&l->base.lock);
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
	struct state s = {.over = -1, .lost = -1, .gone = -1, .well = -1};
	bool judged;

	/* Another thread may come here before its end has been told. */
	pthread_mutex_lock(&rail[0]->base.lock);
	judged = rail[0]->judged;
	pthread_mutex_unlock(&rail[0]->base.lock);
	if (judged)
		return;
	for (unsigned k = 0; k < count; k++)
		look(rail, k, &s);
	if (s.left)
		for (unsigned k = 0; k < count; k++)
			leave_behind(rail[k]);
	else if (s.over >= 0)
		end(rail, count, (unsigned)s.over);
	else if (s.well < 0 && !s.others && (s.lost >= 0 || s.gone >= 0))
		end(rail, count, (unsigned)(s.lost >= 0 ? s.lost : s.gone));
	else if (s.well >= 0)
		for (unsigned k = 0; k < count; k++)
			move(rail[k], rail[s.well]);
	else if (s.others)
		try_unused(rail, count);
	if (s.over >= 0 || rail[0]->judged)
		announce(rail[0]);
}

void coll_tcp_rails_tear(struct tcp_inst *in)
{
	coll_link_rails_look(&in->links, judge);
}

/* ---- the end ------------------------------------------------------------------------ */

/* Whether the peer has not got all that was posted. Who is doubtful asks for rails that have been silent only. */
static bool owes(struct tcp_link *r, bool doubtful, bool *left)
{
	bool more = false;
	int unsent = 0;

	pthread_mutex_lock(&r->base.lock);
	coll_tcp_tx_flush(r);
	drain(&r->base);
	*left |= r->bye_seen || r->state == LINK_ENDED || r->state == LINK_DOWN;
	if (r->state == LINK_UP && (!doubtful || r->unanswered_ns != 0))
		more = ioctl(r->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0;
	for (const struct tcp_sender *s = r->senders; r->again && s; s = s->next)
		more |= s->kept_count > 0;
	coll_tcp_link_work(r);
	pthread_mutex_unlock(&r->base.lock);
	return more;
}

static bool any_owes(struct tcp_inst *in, bool doubtful)
{
	bool more = false;

	pthread_mutex_lock(&in->links.lock);
	for (uint32_t i = 0; i < in->links.count; i++) {
		const struct coll_peer_link *l = in->links.at[i];
		bool left = false, of_link = false;

		for (unsigned k = 0; l->rails > 1 && k < l->rails; k++)
			of_link |= owes((struct tcp_link *)l->rail[k], doubtful, &left);
		more |= of_link && !left;
	}
	pthread_mutex_unlock(&in->links.lock);
	return more;
}

void coll_tcp_rails_settle(struct tcp_inst *in)
{
	const uint64_t begun_ns = coll_clock_ns();
	uint64_t waited_ns = 0;

	/* Two looks at the hosts tell a silent rail from one whose acknowledgement is on its way. */
	while (waited_ns < COLL_DELAY_NS(TCP_SETTLE) && any_owes(in, waited_ns > 2 * COLL_DELAY_NS(TCP_TICK_REMOTE))) {
		coll_reactor_try(&in->service);
		coll_tcp_rails_tear(in);
		poll(NULL, 0, COLL_DELAY_LINK_FLUSH_LOOK_MS);
		waited_ns = coll_clock_ns() - begun_ns;
	}
}
