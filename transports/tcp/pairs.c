/*
 * Pairs of interfaces: which of them two processes share, and how many sockets of a link go over each. Pure: the two
 * announcements and the agreed number of sockets decide, so both ends find the same.
 *
 * Windows take turns on the sockets, so each socket carries the same share, and the slowest sets the pace: n sockets
 * over a pair of rate r carry r / n each, and k sockets carry k times the least of these. An interface that is faster
 * gets more sockets, and one that is too slow to help gets none.
 */
#include "transports/tcp/pairs.h"

#include <string.h>

#include "tcp.h"
#include "transports/tcp/address.h"

enum {
	PARTS = 840,         /* the least that 1 to TCP_RAILS_MAX divide: rates of sockets are whole */
	WORTHWHILE_PC = 103, /* more sockets must gain so much, in percent of what fewer carry */
};

static bool same_network(const struct coll_tcp_candidate *a, const struct coll_tcp_candidate *b)
{
	const unsigned whole = a->prefix / 8, rest = a->prefix % 8;

	if (a->loopback || b->loopback || a->ip6 != b->ip6 || a->prefix != b->prefix || a->prefix == 0)
		return false;
	if (memcmp(a->ip, b->ip, whole) != 0)
		return false;
	return rest == 0 || (a->ip[whole] ^ b->ip[whole]) >> (8 - rest) == 0;
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

/* Each socket goes to the pair that gives it most: for every number of sockets this makes the slowest as fast as it
 * can be (the method of D'Hondt). The pair of each socket stays when there are more. */
unsigned coll_tcp_route_apportion(const uint32_t *mbps_of, unsigned pairs, unsigned set, unsigned which[TCP_RAILS_MAX],
                                  uint32_t *mbps)
{
	const unsigned most = set > 0 ? set : TCP_RAILS_MAX;
	unsigned sockets_of[TCP_CANDIDATES_MAX] = {0}, sockets = most;
	uint64_t rate[TCP_RAILS_MAX + 1] = {0}, best = 0;

	for (unsigned k = 1; k <= most; k++) {
		uint64_t each = 0;

		for (unsigned i = 0; i < pairs; i++) {
			const uint64_t r = (uint64_t)mbps_of[i] * PARTS / (sockets_of[i] + 1);

			if (r > each) {
				each = r;
				which[k - 1] = i;
			}
		}
		sockets_of[which[k - 1]]++;
		rate[k] = k * each;
		best = rate[k] > best ? rate[k] : best;
	}
	for (unsigned k = most; k > 0 && set == 0; k--)
		if (rate[k] * WORTHWHILE_PC >= best * 100)
			sockets = k;
	*mbps = (uint32_t)(rate[sockets] / PARTS);
	return sockets;
}

void coll_tcp_route_find(const struct coll_tcp_address *self, const struct coll_tcp_address *peer, unsigned set,
                         struct coll_tcp_route *route)
{
	/* In the order of the process of lower id, so that both find the same. */
	const bool first = memcmp(&self->id, &peer->id, sizeof(self->id)) < 0;
	struct coll_tcp_pair all[TCP_CANDIDATES_MAX];
	const unsigned pairs = find_pairs(first ? self : peer, first ? peer : self, all);
	uint32_t mbps_of[TCP_CANDIDATES_MAX];
	unsigned which[TCP_RAILS_MAX], known = 0;

	*route = (struct coll_tcp_route){.sockets = set > 0 ? set : 1};
	for (unsigned i = 0; i < pairs; i++) {
		mbps_of[i] = pair_mbps(&all[i]);
		known += mbps_of[i] > 0;
	}
	if (known == 0) /* interfaces that say nothing are not taken for equal */
		return;
	route->sockets = coll_tcp_route_apportion(mbps_of, pairs, set, which, &route->mbps);
	route->paired = pairs > 1;
	for (unsigned i = 0; i < route->sockets; i++) {
		const struct coll_tcp_pair *p = &all[which[i]];

		route->pair[i] = first ? *p : (struct coll_tcp_pair){p->there, p->here};
	}
}
