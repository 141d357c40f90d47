/*
 * Which interfaces are paired, which pairs have sockets, and that both ends find the same.
 */
#include "transports/tcp/pairs.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "transport/transport.h"
#include "transports/tcp/address.h"

struct port {
	unsigned network, interface, mbps;
	bool ip6;
};

static struct coll_tcp_address host(uint64_t id, const struct port *port, unsigned count)
{
	struct coll_tcp_address a = {.name_space = id, .id = {{id, ~id}}};

	for (unsigned i = 0; i < count; i++) {
		struct coll_tcp_candidate c = {.prefix = 24,
		                               .interface = (uint8_t)port[i].interface,
		                               .ip6 = port[i].ip6,
		                               .mbps = port[i].mbps,
		                               .port = (uint16_t)id};

		memcpy(c.ip, (uint8_t[4]){10, 0, (uint8_t)port[i].network, (uint8_t)id}, 4);
		if (c.ip6) {
			c.prefix = 28;
			c.ip[3] = 0x10;
			c.ip[15] = (uint8_t)id;
		}
		a.candidate[a.count++] = c;
	}
	a.candidate[a.count++] = (struct coll_tcp_candidate){.loopback = 1, .prefix = 8, .ip = {127, 0, 0, 1}};
	return a;
}

/* The rates of its networks. */
static unsigned together(const struct coll_tcp_route *r)
{
	struct coll_transport_path p;
	unsigned mbps = 0;

	coll_tcp_route_path(r, &p);
	CHECK(p.rails == r->sockets);
	for (uint32_t i = 0; i < p.rails; i++) {
		bool again = false;

		for (uint32_t k = 0; k < i; k++)
			again |= p.rail[k].network == p.rail[i].network;
		mbps += again ? 0 : p.rail[i].mbps;
	}
	return mbps;
}

static bool mirrored(const struct coll_tcp_address *a, const struct coll_tcp_address *b, unsigned set)
{
	struct coll_tcp_route p, q;

	coll_tcp_route_find(a, b, set, 0, &p);
	coll_tcp_route_find(b, a, set, 0, &q);
	for (unsigned i = 0; i < p.sockets && i < q.sockets && p.paired && q.paired; i++)
		if (!coll_tcp_candidate_same_ip(&p.pair[i].here, &q.pair[i].there) ||
		    !coll_tcp_candidate_same_ip(&p.pair[i].there, &q.pair[i].here))
			return false;
	return p.sockets == q.sockets && p.paired == q.paired && together(&p) == together(&q);
}

static struct coll_tcp_route route(const struct port *x, unsigned nx, const struct port *y, unsigned ny, unsigned set)
{
	const struct coll_tcp_address a = host(1, x, nx), b = host(2, y, ny);
	struct coll_tcp_route r;

	CHECK(mirrored(&a, &b, set));
	coll_tcp_route_find(&a, &b, set, 0, &r);
	return r;
}

/* Sockets over that network. */
static unsigned over(const struct coll_tcp_route *r, unsigned network)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->sockets && r->paired; i++)
		n += r->pair[i].here.ip[2] == network;
	return n;
}

TEST(pairs, a_pair_is_a_network_and_two_interfaces_of_their_own)
{
	const struct port two[] = {{1, 1, 1000, 0}, {2, 2, 1000, 0}}, turned[] = {{2, 5, 1000, 0}, {1, 9, 1000, 0}};
	const struct port same[] = {{1, 1, 1000, 0}, {1, 2, 1000, 0}};
	const struct port both[] = {{1, 1, 1000, 0}, {1, 1, 1000, 1}};
	const struct port apart[] = {{3, 1, 1000, 0}, {4, 2, 1000, 0}};
	struct coll_tcp_address near = host(1, two, 2), too = host(2, two, 2);
	struct coll_tcp_route r = route(two, 2, two, 2, 0);

	CHECK(r.sockets == 2 && over(&r, 1) == 1 && over(&r, 2) == 1 && together(&r) == 2000);
	r = route(two, 2, turned, 2, 0);
	CHECK(r.sockets == 2 && over(&r, 1) == 1 && over(&r, 2) == 1 && together(&r) == 2000);
	r = route(two, 1, two, 2, 0);
	CHECK(r.sockets == 1 && !r.paired && together(&r) == 1000, "one pair: the route of the kernel");
	r = route(same, 2, same, 2, 0);
	CHECK(r.sockets == 1 && together(&r) == 1000, "two interfaces of one network: the route takes one of them");
	r = route(both, 2, both, 2, 0);
	CHECK(r.sockets == 1, "two families of one interface");
	r = route(two, 2, apart, 2, 0);
	CHECK(r.sockets == 1 && !r.paired && together(&r) == 0);
	near.name_space = too.name_space;
	coll_tcp_route_find(&near, &too, 0, 0, &r);
	CHECK(r.sockets == 1 && !r.paired && together(&r) == 0, "loopback has no second interface");
}

TEST(pairs, what_is_worth_a_socket)
{
	static const struct {
		struct port port[4];
		unsigned ports, set;
		unsigned sockets, over[4], mbps;
	} cases[] = {
	        {{{0, 1, 1000, 0}, {1, 2, 250, 0}}, 2, 0, 2, {1, 1}, 1250},
	        {{{0, 1, 1000, 0}, {1, 2, 125, 0}}, 2, 0, 2, {1, 1}, 1125},
	        {{{0, 1, 1000, 0}, {1, 2, 124, 0}}, 2, 0, 1, {1, 0}, 1000},
	        {{{0, 1, 1000, 0}, {1, 2, 10000, 0}}, 2, 0, 1, {0, 1}, 10000},
	        {{{0, 1, 100, 0}, {1, 2, 10000, 0}, {2, 3, 10000, 0}}, 3, 0, 2, {0, 1, 1}, 20000},
	        {{{0, 1, 400, 0}, {1, 2, 200, 0}, {2, 3, 200, 0}}, 3, 0, 3, {1, 1, 1}, 800},
	        {{{0, 1, 4000000, 0}, {1, 2, 4000000, 0}}, 2, 0, 2, {1, 1}, 8000000},
	        /* What is not known is not used beside what is, and not taken for equal. */
	        {{{0, 1, 0, 0}, {1, 2, 1000, 0}}, 2, 0, 1, {0, 1}, 1000},
	        {{{0, 1, 0, 0}, {1, 2, 0, 0}}, 2, 0, 1, {0, 0}, 0},
	        /* As many as the user wants. */
	        {{{0, 1, 1000, 0}, {1, 2, 250, 0}}, 2, 1, 1, {1, 0}, 1000},
	        {{{0, 1, 1000, 0}, {1, 2, 250, 0}}, 2, 8, 8, {7, 1}, 1250},
	        {{{0, 1, 1000, 0}, {1, 2, 1000, 0}}, 2, 3, 3, {2, 1}, 2000},
	        {{{0, 1, 1000, 0}}, 1, 4, 4, {0}, 1000},
	        {{{0, 1, 0, 0}, {1, 2, 0, 0}}, 2, 3, 3, {0, 0}, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct coll_tcp_route r =
		        route(cases[i].port, cases[i].ports, cases[i].port, cases[i].ports, cases[i].set);

		CHECK(r.sockets == cases[i].sockets && together(&r) == cases[i].mbps, "case %zu: %u sockets, %u Mb/s",
		      i, r.sockets, together(&r));
		for (unsigned k = 0; k < cases[i].ports; k++)
			CHECK(over(&r, k) == cases[i].over[k], "case %zu: %u sockets over network %u", i, over(&r, k),
			      k);
	}
}

TEST(pairs, a_pair_is_as_fast_as_its_slower_end)
{
	const struct port fast[] = {{1, 1, 1000, 0}, {2, 2, 1000, 0}}, mixed[] = {{1, 1, 250, 0}, {2, 2, 4000, 0}};
	const struct coll_tcp_route r = route(fast, 2, mixed, 2, 0);

	CHECK(r.sockets == 2 && over(&r, 1) == 1 && over(&r, 2) == 1 && together(&r) == 1250);
}

TEST(pairs, a_long_path_has_several_sockets)
{
	static const struct {
		unsigned ports, mbps, us, set, sockets;
	} cases[] = {
	        {1, 200, 40000, 0, TCP_LONG_SOCKETS},
	        {1, 200, 10485, 0, 1}, /* 256 KiB less a few bytes */
	        {1, 200, 10486, 0, TCP_LONG_SOCKETS},
	        {1, 100000, 999, 0, 1}, /* a fast network of one building */
	        {1, 100000, 1000, 0, TCP_LONG_SOCKETS},
	        {1, 0, 2000, 0, 1}, /* 1000 Mb/s, if nobody knows */
	        {1, 0, 2100, 0, TCP_LONG_SOCKETS},
	        {0, 0, 40000, 0, TCP_LONG_SOCKETS}, /* no network in common: routers between them */
	        {2, 200, 40000, 0, TCP_LONG_SOCKETS},
	        {1, 200, 40000, 1, 1}, /* as the user wants */
	        {1, 200, 40000, 6, 6},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct port port[] = {{1, 1, cases[i].mbps, 0}, {2, 2, cases[i].mbps, 0}};
		const struct coll_tcp_address a = host(1, port, cases[i].ports), b = host(2, port, cases[i].ports);
		struct coll_tcp_route r, back;

		coll_tcp_route_find(&a, &b, cases[i].set, cases[i].us, &r);
		coll_tcp_route_find(&b, &a, cases[i].set, cases[i].us, &back);
		CHECK(r.sockets == cases[i].sockets && back.sockets == r.sockets, "case %zu: %u and %u sockets", i,
		      r.sockets, back.sockets);
		CHECK(r.paired == (cases[i].ports > 1), "case %zu", i);
	}
}

TEST(pairs, both_ends_find_the_same)
{
	struct coll_rng rng = {coll_clock_ns()};

	printf("seed %llu\n", (unsigned long long)rng.state);
	for (int k = 0; k < 20000; k++) {
		struct port x[9], y[9];
		const unsigned nx = coll_rng_below(&rng, 10), ny = coll_rng_below(&rng, 10);

		for (unsigned i = 0; i < 9; i++) {
			x[i] = (struct port){coll_rng_below(&rng, 6), coll_rng_below(&rng, 5),
			                     250 * coll_rng_below(&rng, 5), coll_rng_below(&rng, 2)};
			y[i] = (struct port){coll_rng_below(&rng, 6), coll_rng_below(&rng, 5),
			                     250 * coll_rng_below(&rng, 5), coll_rng_below(&rng, 2)};
		}
		const struct coll_tcp_address a = host(1, x, nx), b = host(2, y, ny);

		CHECK(mirrored(&a, &b, k % 3 ? 0 : 1 + coll_rng_below(&rng, TCP_RAILS_MAX)), "case %d", k);
	}
}

/* The end that limits a pair says who tells its rate; what software always reports, nobody does. */
TEST(pairs, the_slower_end_is_who_tells_the_rate)
{
	static const struct {
		uint32_t mbps[2];
		uint8_t origin[2], expected, teller;
	} cases[] = {
	        {{1000, 100}, {COLL_RATE_SYSTEM, COLL_RATE_USER}, COLL_RATE_USER, 1},
	        {{100, 1000}, {COLL_RATE_SYSTEM, COLL_RATE_USER}, COLL_RATE_SYSTEM, 0},
	        {{1000, 1000}, {COLL_RATE_SYSTEM, COLL_RATE_USER}, COLL_RATE_USER, 1},
	        {{1000, 1000}, {COLL_RATE_USER, COLL_RATE_USER}, COLL_RATE_USER, 0},
	        {{10000, 20000}, {COLL_RATE_UNKNOWN, COLL_RATE_USER}, COLL_RATE_UNKNOWN, 0},
	        {{0, 1000}, {COLL_RATE_UNKNOWN, COLL_RATE_USER}, COLL_RATE_UNKNOWN, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct port port[2] = {{1, 1, cases[i].mbps[0], 0}, {1, 1, cases[i].mbps[1], 0}};
		struct coll_tcp_address a[2] = {host(1, &port[0], 1), host(2, &port[1], 1)};
		struct coll_transport_path path;
		struct coll_tcp_route r;

		for (int k = 0; k < 2; k++) {
			a[k].candidate[0].origin = cases[i].origin[k];
			snprintf(a[k].candidate[0].name, TCP_INTERFACE_NAME, "eth%d", k);
		}
		coll_tcp_route_find(&a[0], &a[1], 0, 0, &r);
		coll_tcp_route_path(&r, &path);
		CHECK(path.rail[0].origin == cases[i].expected, "case %zu: %d", i, path.rail[0].origin);
		CHECK(cases[i].mbps[0] == 0 || path.rail[0].teller == cases[i].teller, "case %zu", i);
		CHECK(cases[i].mbps[0] == 0 || path.rail[0].told_by[3] == '0' + cases[i].teller, "case %zu: %s", i,
		      path.rail[0].told_by);
	}
}
