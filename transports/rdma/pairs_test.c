/*
 * Which ports are paired, which pairs are rails, and that both ends find the same; what is announced, and what is not
 * believed.
 */
#include "transports/rdma/pairs.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "transports/rdma/address.h"

struct want {
	unsigned network, mbps, distance;
	bool ip6, infiniband;
};

static struct coll_rdma_peer_info host(uint64_t id, const struct want *want, unsigned count)
{
	struct coll_rdma_peer_info info = {.id = {{id, ~id}}, .count = count};

	for (unsigned i = 0; i < count; i++) {
		struct coll_rdma_spot *s = &info.port[i];

		*s = (struct coll_rdma_spot){.listens = (uint16_t)(1000 + i),
		                             .family = want[i].ip6 ? 6 : 4,
		                             .prefix = want[i].ip6 ? 64 : 24,
		                             .layer = want[i].infiniband ? 1 : 2,
		                             .number = 1,
		                             .distance = (uint8_t)want[i].distance,
		                             .mbps = want[i].mbps,
		                             .ip = {10, 0, (uint8_t)want[i].network, (uint8_t)id}};
		if (want[i].ip6)
			s->ip[3] = 0, s->ip[15] = (uint8_t)id;
		snprintf(s->device, sizeof(s->device), "dev%u", i);
	}
	return info;
}

static bool mirrored(const struct coll_rdma_peer_info *a, const struct coll_rdma_peer_info *b)
{
	struct coll_rdma_route p, q;
	bool same;

	coll_rdma_route_find(a, b, &p);
	coll_rdma_route_find(b, a, &q);
	same = p.rails == q.rails;
	for (unsigned i = 0; i < p.rails && same; i++)
		same = p.rail[i].here == q.rail[i].there && p.rail[i].there == q.rail[i].here;
	return same;
}

static struct coll_rdma_route route(const struct want *x, unsigned nx, const struct want *y, unsigned ny)
{
	const struct coll_rdma_peer_info a = host(1, x, nx), b = host(2, y, ny);
	struct coll_rdma_route r;

	CHECK(mirrored(&a, &b));
	coll_rdma_route_find(&a, &b, &r);
	return r;
}

/* How many rails go by our port i. */
static unsigned over(const struct coll_rdma_route *r, unsigned port)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->rails; i++)
		n += r->rail[i].here == port;
	return n;
}

TEST(pairs, a_pair_is_a_network_and_two_ports_of_their_own)
{
	const struct want two[] = {{1, 1000}, {2, 1000}}, turned[] = {{2, 1000}, {1, 1000}};
	const struct want same[] = {{1, 1000}, {1, 1000}}, apart[] = {{3, 1000}, {4, 1000}};
	const struct want six[] = {{2, 1000, .ip6 = true}, {1, 1000}}, ib[] = {{1, 1000, .infiniband = true}};
	struct coll_rdma_route r = route(two, 2, two, 2);

	CHECK(r.rails == 2 && over(&r, 0) == 1 && over(&r, 1) == 1);
	r = route(two, 2, turned, 2);
	CHECK(r.rails == 2 && r.rail[0].there == 1 && r.rail[1].there == 0);
	r = route(two, 2, two + 1, 1);
	CHECK(r.rails == 1 && r.rail[0].here == 1, "one reaches the peer");
	r = route(same, 2, same, 2);
	CHECK(r.rails == 1, "a network carries one pair");
	r = route(two, 2, six, 2);
	CHECK(r.rails == 1 && r.rail[0].here == 0 && r.rail[0].there == 1, "of one family");
	r = route(two, 2, apart, 2);
	CHECK(r.rails == 1 && r.rail[0].here == 0 && r.rail[0].there == 0, "routers may join the first ones");
	r = route(two, 2, ib, 1);
	CHECK(r.rails == 0, "of different kinds");
}

TEST(pairs, what_is_worth_a_rail)
{
	static const struct {
		struct want want[4];
		unsigned count, rails, over[4];
	} cases[] = {
	        {{{0, 1000}, {1, 250}}, 2, 2, {1, 1}},
	        {{{0, 1000}, {1, 500}, {2, 1000}}, 3, 3, {1, 1, 1}},
	        {{{0, 100000}, {1, 1000}}, 2, 1, {1, 0}},
	        {{{0, 1000}, {1, 100000}}, 2, 1, {0, 1}},
	        {{{0, 400000}, {1, 400000}, {2, 400000}, {3, 400000}}, 4, 4, {1, 1, 1, 1}},
	        /* Where nobody knows a rate all are equal; what is not known is not used beside what is. */
	        {{{0, 0}, {1, 0}, {2, 0}}, 3, 3, {1, 1, 1}},
	        {{{0, 0}, {1, 1000}}, 2, 1, {0, 1}},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct coll_rdma_route r = route(cases[i].want, cases[i].count, cases[i].want, cases[i].count);

		CHECK(r.rails == cases[i].rails, "case %u: %u rails", i, r.rails);
		for (unsigned k = 0; k < cases[i].count; k++)
			CHECK(over(&r, k) == cases[i].over[k], "case %u, port %u: %u", i, k, over(&r, k));
	}
}

/* Rails of a path: networks, rates of the slower end, distances of both. */
TEST(pairs, rails_of_a_path)
{
	const struct want x[] = {{1, 1000}, {2, 1000, 2}, {3, 1000, 1}}, y[] = {{3, 500}, {2, 1000}, {1, 1000, 2}};
	const struct coll_rdma_peer_info a = host(1, x, 3), b = host(2, y, 3);
	struct coll_transport_path p, q;
	struct coll_rdma_route r;

	coll_rdma_route_find(&a, &b, &r);
	coll_rdma_route_path(&r, &a, &b, &p);
	coll_rdma_route_find(&b, &a, &r);
	coll_rdma_route_path(&r, &b, &a, &q);
	CHECK(p.rails == 3 && q.rails == 3);
	for (int i = 0; i < 3; i++) {
		CHECK(p.rail[i].network == q.rail[i].network && p.rail[i].network != p.rail[(i + 1) % 3].network);
		CHECK(p.rail[i].distance[0] == x[i].distance && p.rail[i].distance[1] == y[2 - i].distance);
		CHECK(q.rail[i].distance[0] == p.rail[i].distance[1] && q.rail[i].distance[1] == p.rail[i].distance[0]);
		CHECK(p.rail[i].mbps == (i == 2 ? 500 : 1000));
	}
}

static void any_port(struct coll_rng *rng, struct want *w)
{
	*w = (struct want){coll_rng_below(rng, 6), 250 * coll_rng_below(rng, 5), coll_rng_below(rng, 3),
	                   coll_rng_below(rng, 4) == 0, coll_rng_below(rng, 4) == 0};
}

TEST(pairs, both_ends_find_the_same)
{
	struct coll_rng rng = {coll_clock_ns()};

	printf("seed %llu\n", (unsigned long long)rng.state);
	for (int k = 0; k < 20000; k++) {
		struct want x[COLL_RDMA_PORTS], y[COLL_RDMA_PORTS];
		const unsigned nx = 1 + coll_rng_below(&rng, COLL_RDMA_PORTS);
		const unsigned ny = 1 + coll_rng_below(&rng, COLL_RDMA_PORTS);

		for (unsigned i = 0; i < COLL_RDMA_PORTS; i++) {
			any_port(&rng, &x[i]);
			any_port(&rng, &y[i]);
		}
		const struct coll_rdma_peer_info a = host(1, x, nx), b = host(2, y, ny);

		CHECK(mirrored(&a, &b), "case %d", k);
	}
}

static bool same_spot(const struct coll_rdma_spot *a, const struct coll_rdma_spot *b)
{
	return memcmp(a->ip, b->ip, sizeof(a->ip)) == 0 && a->listens == b->listens && a->family == b->family &&
	       a->prefix == b->prefix && a->fabric == b->fabric && a->layer == b->layer && a->number == b->number &&
	       a->distance == b->distance && a->origin == b->origin && a->mbps == b->mbps &&
	       strcmp(a->device, b->device) == 0;
}

TEST(address, as_many_ports_as_there_is_room_for)
{
	const struct want w[COLL_RDMA_PORTS] = {{1, 400000, 7},  {2, 4000000}, {3, 25000, 255}, {4, 0},
	                                        {5, 1, 0, true}, {6, 2},       {7, 3},          {8, 4}};
	struct coll_rdma_peer_info a = host(3, w, COLL_RDMA_PORTS), b;
	unsigned char text[248];
	size_t len = 0;

	CHECK(coll_rdma_address_encode(&a, text, 23, &len) == COLL_ERR_ARGUMENT);
	CHECK(coll_rdma_address_encode(&a, text, 24 + 27, &len) == COLL_ERR_ARGUMENT, "no room for one");
	CHECK(coll_rdma_address_encode(&a, text, sizeof(text), &len) == COLL_OK && len <= sizeof(text));
	CHECK(coll_rdma_address_decode(&b, text, len));
	CHECK(b.count == 7, "%u: one of them is longer", b.count);
	CHECK(memcmp(&b.id, &a.id, sizeof(a.id)) == 0);
	for (int i = 0; i < 7; i++)
		CHECK(same_spot(&b.port[i], &a.port[i]), "port %d", i);
	a.port[4] = a.port[3];
	CHECK(coll_rdma_address_encode(&a, text, sizeof(text), &len) == COLL_OK && len == 248);
	CHECK(coll_rdma_address_decode(&b, text, len) && b.count == COLL_RDMA_PORTS);
}

/* Whatever comes is refused or makes sense. From memory of its own length, so that a sanitizer sees what is read. */
TEST(address, anything_may_come)
{
	const struct want w[] = {{1, 1000}, {2, 1000, 0, true}};
	const struct coll_rdma_peer_info a = host(1, w, 2);
	struct coll_rng rng = {coll_clock_ns()};
	unsigned char text[248];
	size_t len = 0;

	printf("seed %llu\n", (unsigned long long)rng.state);
	CHECK(coll_rdma_address_encode(&a, text, sizeof(text), &len) == COLL_OK);
	for (size_t n = 0; n < len; n++) {
		struct coll_rdma_peer_info b;

		CHECK(!coll_rdma_address_decode(&b, text, n), "%zu bytes of %zu", n, len);
	}
	for (int k = 0; k < 20000; k++) {
		const size_t n = k % 2 ? len : coll_rng_below(&rng, sizeof(text));
		unsigned char *p = malloc(n + !n);
		struct coll_rdma_peer_info b;
		struct coll_rdma_route r;

		REQUIRE(p);
		memcpy(p, text, n < len ? n : len);
		for (uint32_t i = 1 + coll_rng_below(&rng, 8); i > 0 && n > 0; i--)
			p[coll_rng_below(&rng, (uint32_t)n)] = (unsigned char)coll_rng_below(&rng, 256);
		if (coll_rdma_address_decode(&b, p, n)) {
			coll_rdma_route_find(&a, &b, &r);
			CHECK(r.rails <= 2);
			for (unsigned i = 0; i < r.rails; i++)
				CHECK(r.rail[i].here < a.count && r.rail[i].there < b.count);
		}
		free(p);
	}
}
