/*
 * Pairs of ports: which of them two processes share, and which part of a link goes over each. Pure: the two
 * announcements decide, so both ends find the same.
 *
 * Two ports are a pair if they are of one kind and in one network; a port and a network are in one pair only. Where no
 * two are in one network, routers may join them: then the first two of one kind are the only pair.
 */
#include "transports/rdma/pairs.h"

#include <string.h>

struct pair {
	unsigned a, b; /* ports of the process of lower id, and of the other one */
	uint32_t mbps;
	unsigned distance;
};

static_assert((int)COLL_RDMA_PORTS <= COLL_PATHS_MAX, "each port is in one pair at most");

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

	return (struct pair){a, b, s->mbps < t->mbps ? s->mbps : t->mbps, (unsigned)s->distance + t->distance};
}

static bool overlaps(const struct coll_rdma_peer_info *x, const struct pair *p, const struct pair *q)
{
	return p->a == q->a || p->b == q->b || same_network(&x->port[p->a], &x->port[q->a]);
}

/* Nearest first; those that are equally near stay as they are. */
static void insert(struct pair pair[COLL_RDMA_PORTS], unsigned count, struct pair p)
{
	for (; count > 0 && pair[count - 1].distance > p.distance; count--)
		pair[count] = pair[count - 1];
	pair[count] = p;
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
			insert(pair, count++, p);
	}
	for (unsigned k = 0; k < x->count * y->count && count == 0; k++)
		if (same_kind(&x->port[k / y->count], &y->port[k % y->count]))
			pair[count++] = pair_of(x, k / y->count, y, k % y->count);
	return count;
}

/* Which pair has which share. Rates that nobody knows are taken for equal. */
static unsigned share_out(const struct pair *pair, unsigned pairs, unsigned which[COLL_PATHS_SHARES_MAX],
                          uint32_t *mbps)
{
	uint32_t mbps_of[COLL_RDMA_PORTS];
	bool known = false;
	unsigned shares;

	for (unsigned i = 0; i < pairs; i++)
		known |= pair[i].mbps > 0;
	for (unsigned i = 0; i < pairs; i++)
		mbps_of[i] = known ? pair[i].mbps : 1;
	shares = coll_paths_apportion(mbps_of, pairs, 0, which, mbps);
	if (!known)
		*mbps = 0;
	return shares;
}

/* The rail of this pair, which is made if it has none. */
static unsigned rail_of(struct coll_rdma_route *r, const struct pair *p, bool first)
{
	const unsigned here = first ? p->a : p->b, there = first ? p->b : p->a;
	unsigned i = 0;

	while (i < r->rails && r->rail[i].here != here)
		i++;
	if (i == r->rails) {
		r->rail[i].here = here;
		r->rail[i].there = there;
		r->rails++;
	}
	return i;
}

void coll_rdma_route_find(const struct coll_rdma_peer_info *self, const struct coll_rdma_peer_info *peer,
                          struct coll_rdma_route *route)
{
	/* In the order of the process of lower id, so that both find the same. */
	const bool first = memcmp(&self->id, &peer->id, sizeof(self->id)) < 0;
	struct pair pair[COLL_RDMA_PORTS];
	const unsigned pairs = find_pairs(first ? self : peer, first ? peer : self, pair);
	unsigned which[COLL_PATHS_SHARES_MAX];

	*route = (struct coll_rdma_route){.alike = true};
	if (pairs == 0)
		return;
	route->shares = share_out(pair, pairs, which, &route->mbps);
	for (unsigned i = 0; i < route->shares; i++) {
		route->rail_of[i] = (uint8_t)rail_of(route, &pair[which[i]], first);
		route->alike &= pair[which[i]].distance == pair[which[0]].distance;
	}
}
