/*
 * Pairs of ports: which of them two processes share. Pure: the two announcements decide, so both ends find the same.
 * How much each of them carries is not decided here (src/core/rails.h).
 *
 * Two ports are a pair if they are of one kind and in one network; a port and a network are in one pair only. Where no
 * two are in one network, routers may join them: then the first two of one kind are the only pair.
 */
#include "transports/rdma/pairs.h"

#include <stdio.h>
#include <string.h>

#include "transports/common/paths.h"

struct pair {
	unsigned a, b; /* ports of the process of lower id, and of the other one */
	uint32_t mbps;
};

static_assert((int)COLL_RDMA_PORTS <= COLL_PATHS_MAX && (int)COLL_RDMA_PORTS <= COLL_RAILS_MAX,
              "each port is in one pair at most");

static bool same_kind(const struct coll_rdma_spot *a, const struct coll_rdma_spot *b)
{
	return a->fabric == b->fabric && a->layer == b->layer && a->family == b->family;
}

static bool same_network(const struct coll_rdma_spot *a, const struct coll_rdma_spot *b)
{
	return same_kind(a, b) && a->prefix == b->prefix && a->prefix > 0 &&
	       coll_paths_same_network(a->ip, b->ip, a->prefix);
}

static struct pair pair_of(const struct coll_rdma_peer_info *x, unsigned a, const struct coll_rdma_peer_info *y,
                           unsigned b)
{
	const struct coll_rdma_spot *s = &x->port[a], *t = &y->port[b];

	return (struct pair){a, b, s->mbps < t->mbps ? s->mbps : t->mbps};
}

static bool overlaps(const struct coll_rdma_peer_info *x, const struct pair *p, const struct pair *q)
{
	return p->a == q->a || p->b == q->b || same_network(&x->port[p->a], &x->port[q->a]);
}

static unsigned find_pairs(const struct coll_rdma_peer_info *x, const struct coll_rdma_peer_info *y,
                           struct pair pair[COLL_RDMA_PORTS])
{
	unsigned count = 0;

	for (unsigned k = 0; k < x->count * y->count && count < COLL_RDMA_PORTS; k++) {
		const struct pair p = pair_of(x, k / y->count, y, k % y->count);
		bool usable = same_network(&x->port[p.a], &y->port[p.b]);

		for (unsigned i = 0; i < count && usable; i++)
			usable = !overlaps(x, &pair[i], &p);
		if (usable)
			pair[count++] = p;
	}
	for (unsigned k = 0; k < x->count * y->count && count == 0; k++)
		if (same_kind(&x->port[k / y->count], &y->port[k % y->count]))
			pair[count++] = pair_of(x, k / y->count, y, k % y->count);
	return count;
}

/* Rates that nobody knows are taken for equal. */
static unsigned worthwhile(const struct pair *pair, unsigned pairs, unsigned which[COLL_RDMA_PORTS])
{
	uint32_t mbps_of[COLL_RDMA_PORTS];
	bool known = false;

	for (unsigned i = 0; i < pairs; i++)
		known |= pair[i].mbps > 0;
	for (unsigned i = 0; i < pairs; i++)
		mbps_of[i] = known ? pair[i].mbps : 1;
	return coll_paths_worthwhile(mbps_of, pairs, COLL_RDMA_PORTS, which);
}

void coll_rdma_route_find(const struct coll_rdma_peer_info *self, const struct coll_rdma_peer_info *peer,
                          struct coll_rdma_route *route)
{
	/* In the order of the process of lower id, so that both find the same. */
	const bool first = memcmp(&self->id, &peer->id, sizeof(self->id)) < 0;
	struct pair pair[COLL_RDMA_PORTS];
	const unsigned pairs = find_pairs(first ? self : peer, first ? peer : self, pair);
	unsigned which[COLL_RDMA_PORTS];

	*route = (struct coll_rdma_route){.rails = worthwhile(pair, pairs, which)};
	for (unsigned i = 0; i < route->rails; i++) {
		const struct pair *p = &pair[which[i]];

		route->rail[i].here = first ? p->a : p->b;
		route->rail[i].there = first ? p->b : p->a;
	}
}

static uint32_t network_of(const struct coll_rdma_spot *s)
{
	return coll_paths_network(s->ip, s->prefix, (uint32_t)s->fabric << 16 | (uint32_t)s->layer << 8 | s->family);
}

void coll_rdma_route_path(const struct coll_rdma_route *route, const struct coll_rdma_peer_info *self,
                          const struct coll_rdma_peer_info *peer, struct coll_transport_path *path)
{
	path->rails = route->rails > 0 ? route->rails : 1;
	for (unsigned i = 0; i < route->rails; i++) {
		const struct coll_rdma_spot *s = &self->port[route->rail[i].here],
		                            *t = &peer->port[route->rail[i].there];

		path->rail[i] = (struct coll_transport_rail){.network = same_network(s, t) ? network_of(s) : 0,
		                                             .mbps = s->mbps < t->mbps ? s->mbps : t->mbps,
		                                             .distance = {s->distance, t->distance}};
		const bool far = t->mbps != s->mbps ? t->mbps < s->mbps : t->origin > s->origin;
		const struct coll_rdma_spot *slower = far ? t : s;

		path->rail[i].teller = far;
		path->rail[i].origin = slower->mbps > 0 ? slower->origin : COLL_RATE_UNKNOWN;
		snprintf(path->rail[i].told_by, sizeof(path->rail[i].told_by), "%.*s:%u", (int)sizeof(s->device),
		         slower->device, slower->number);
		snprintf(path->rail[i].card, sizeof(path->rail[i].card), "%.*s:%u", (int)sizeof(s->device), s->device,
		         s->number);
	}
}
