/*
 * Pairs of interfaces: which of them two processes share, and how many sockets of a link go over each. Pure: the two
 * announcements and the agreed number of sockets decide, so both ends find the same. How much each of them carries is
 * not decided here (src/core/rails.h).
 */
#include "transports/tcp/pairs.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "tcp.h"
#include "transports/common/paths.h"
#include "transports/tcp/address.h"

static_assert((int)TCP_RAILS_MAX == COLL_RAILS_MAX && (int)TCP_CANDIDATES_MAX <= COLL_PATHS_MAX, "sockets are rails");

static bool same_network(const struct coll_tcp_candidate *a, const struct coll_tcp_candidate *b)
{
	if (a->loopback || b->loopback || a->ip6 != b->ip6 || a->prefix != b->prefix || a->prefix == 0)
		return false;
	return coll_paths_same_network(a->ip, b->ip, a->prefix);
}

static uint32_t pair_mbps(const struct coll_tcp_pair *p)
{
	return p->here.mbps < p->there.mbps ? p->here.mbps : p->there.mbps;
}

/* An interface or a network that a pair has already carries nothing more. */
static bool overlaps(const struct coll_tcp_pair *a, const struct coll_tcp_pair *b)
{
	return a->here.interface == b->here.interface || a->there.interface == b->there.interface ||
	       same_network(&a->here, &b->here);
}

/* All of them, a's end first. */
static unsigned find_pairs(const struct coll_tcp_address *a, const struct coll_tcp_address *b,
                           struct coll_tcp_pair pair[TCP_CANDIDATES_MAX])
{
	unsigned count = 0;

	if (a->name_space == b->name_space)
		return 0;
	for (unsigned k = 0; k < a->count * b->count && count < TCP_CANDIDATES_MAX; k++) {
		const struct coll_tcp_pair p = {a->candidate[k / b->count], b->candidate[k % b->count]};
		bool usable = same_network(&p.here, &p.there) && !coll_tcp_candidate_same_ip(&p.here, &p.there);

		for (unsigned i = 0; i < count && usable; i++)
			usable = !overlaps(&pair[i], &p);
		if (usable)
			pair[count++] = p;
	}
	return count;
}

/* Networks of one building have shorter round trips, however fast they are. Interfaces that say nothing: as fast as
 * most of them. */
enum { LONG_BYTES = 256 << 10, LONG_ROUND_TRIP = 1000 /* us */, MBPS_ASSUMED = 1000 };

bool coll_tcp_is_long(uint32_t mbps, uint32_t round_trip_us)
{
	const uint64_t bits = (uint64_t)(mbps ? mbps : MBPS_ASSUMED) * round_trip_us;

	return round_trip_us >= LONG_ROUND_TRIP && bits / 8 > LONG_BYTES;
}

void coll_tcp_route_find(const struct coll_tcp_address *self, const struct coll_tcp_address *peer, unsigned set,
                         uint32_t round_trip_us, struct coll_tcp_route *route)
{
	/* In the order of the process of lower id, so that both find the same. */
	const bool first = memcmp(&self->id, &peer->id, sizeof(self->id)) < 0;
	struct coll_tcp_pair all[TCP_CANDIDATES_MAX];
	const unsigned pairs = find_pairs(first ? self : peer, first ? peer : self, all);
	uint32_t mbps_of[TCP_CANDIDATES_MAX];
	unsigned which[TCP_RAILS_MAX], worth;

	for (unsigned i = 0; i < pairs; i++)
		mbps_of[i] = pair_mbps(&all[i]);
	worth = coll_paths_worthwhile(mbps_of, pairs, TCP_RAILS_MAX, which);
	if (set == 0 && worth < TCP_LONG_SOCKETS && coll_tcp_is_long(worth > 0 ? mbps_of[which[0]] : 0, round_trip_us))
		set = TCP_LONG_SOCKETS;
	*route = (struct coll_tcp_route){.sockets = set > 0 ? set : 1};
	if (worth == 0) /* interfaces that say nothing are not taken for equal */
		return;
	if (set > 0)
		coll_paths_apportion(mbps_of, pairs, set, which);
	else
		route->sockets = worth;
	route->paired = pairs > 1;
	route->mbps = mbps_of[which[0]];
	for (unsigned i = 0; i < route->sockets; i++) {
		const struct coll_tcp_pair *p = &all[which[i]];

		route->pair[i] = first ? *p : (struct coll_tcp_pair){p->there, p->here};
	}
}

/* Of equal ends the one whose rate is believed more limits a pair. */
static void take_rate(struct coll_transport_rail *rail, const struct coll_tcp_pair *p)
{
	const struct coll_tcp_candidate *c = &p->here;

	rail->teller = p->there.mbps != p->here.mbps ? p->there.mbps < p->here.mbps : p->there.origin > p->here.origin;
	if (rail->teller)
		c = &p->there;
	rail->origin = rail->mbps > 0 ? c->origin : COLL_RATE_UNKNOWN;
	snprintf(rail->told_by, sizeof(rail->told_by), "%s", c->name);
}

void coll_tcp_route_path(const struct coll_tcp_route *route, struct coll_transport_path *path)
{
	path->rails = route->sockets;
	for (unsigned i = 0; i < route->sockets; i++) {
		const struct coll_tcp_candidate *here = &route->pair[i].here, *there = &route->pair[i].there;

		path->rail[i] = (struct coll_transport_rail){.mbps = route->mbps};
		if (route->paired)
			path->rail[i] = (struct coll_transport_rail){
			        .network = coll_paths_network(here->ip, here->prefix, here->ip6),
			        .mbps = pair_mbps(&route->pair[i]),
			        .distance = {here->distance, there->distance}};
		take_rate(&path->rail[i], &route->pair[i]);
		snprintf(path->rail[i].card, sizeof(path->rail[i].card), "%s", route->paired ? here->name : "");
	}
}
