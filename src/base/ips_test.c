/*
 * Tests of ips.h over made-up lists of interfaces.
 */
#include "base/ips.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#define PLAIN_OWN_MAIN
#include "tests/plain.h"

enum { MOST = 140 };

struct made {
	struct ifaddrs entry[MOST];
	struct sockaddr_storage address[MOST], mask[MOST];
	char name[MOST][16];
	int n;
};

static void add(struct made *m, const char *name, const char *ip, const char *mask, unsigned flags)
{
	const int i = m->n++;
	struct ifaddrs *e = &m->entry[i];
	const int family = strchr(ip, ':') ? AF_INET6 : AF_INET;

	snprintf(m->name[i], sizeof(m->name[i]), "%s", name);
	m->address[i].ss_family = m->mask[i].ss_family = (sa_family_t)family;
	if (family == AF_INET6) {
		inet_pton(family, ip, &((struct sockaddr_in6 *)&m->address[i])->sin6_addr);
		inet_pton(family, mask, &((struct sockaddr_in6 *)&m->mask[i])->sin6_addr);
	} else {
		inet_pton(family, ip, &((struct sockaddr_in *)&m->address[i])->sin_addr);
		inet_pton(family, mask, &((struct sockaddr_in *)&m->mask[i])->sin_addr);
	}
	*e = (struct ifaddrs){.ifa_name = m->name[i],
	                      .ifa_flags = flags,
	                      .ifa_addr = (struct sockaddr *)&m->address[i],
	                      .ifa_netmask = (struct sockaddr *)&m->mask[i]};
	if (i > 0)
		m->entry[i - 1].ifa_next = e;
}

enum { UP = IFF_UP | IFF_RUNNING };

static void host(struct made *m)
{
	*m = (struct made){.n = 0};
	add(m, "lo", "127.0.0.1", "255.0.0.0", UP | IFF_LOOPBACK);
	add(m, "docker0", "172.17.0.1", "255.255.0.0", UP);
	add(m, "eth1", "10.2.0.1", "255.255.255.0", IFF_UP);
	add(m, "eth0", "fd00::1", "ffff:ffff:ffff:ffff::", UP);
	add(m, "eth0", "fe80::1", "ffff:ffff:ffff:ffff::", UP);
	add(m, "eth0", "10.1.0.1", "255.255.255.0", UP);
}

static const char *text(const struct coll_ip *ip)
{
	static char buf[8][64];
	static int at;

	at = (at + 1) % 8;
	return coll_ip_text(ip, 7, buf[at], sizeof(buf[0]));
}

static void carriers_first_then_bridges_then_loopback(void)
{
	static const char *const want[] = {"10.1.0.1:7", "[fd00::1]:7", "10.2.0.1:7", "172.17.0.1:7", "127.0.0.1:7"};
	struct coll_ips l;
	struct made m;

	host(&m);
	coll_ips_read(&l, m.entry, "");
	REQUIRE(l.count == 5);
	for (unsigned i = 0; i < 5; i++)
		CHECK(strcmp(text(&l.at[i]), want[i]) == 0, "%u: %s", i, text(&l.at[i]));
	CHECK(l.at[0].prefix == 24 && l.at[1].prefix == 64 && l.at[2].prefix == 0 && l.at[3].bridge &&
	      l.at[4].loopback);
}

static void settings_choose_or_are_refused(void)
{
	struct coll_ips l;
	struct made m;
	char why[240] = "";

	host(&m);
	coll_ips_read(&l, m.entry, "eth1,nonesuch");
	CHECK(l.count == 1 && strcmp(text(&l.at[0]), "10.2.0.1:7") == 0);
	coll_ips_read(&l, m.entry, "^eth0,lo");
	CHECK(l.count == 2);
	CHECK(coll_ips_check(m.entry, "", why, sizeof(why)) && coll_ips_check(m.entry, "^nonesuch", why, sizeof(why)));
	CHECK(coll_ips_check(m.entry, "nonesuch,lo", why, sizeof(why)));
	CHECK(!coll_ips_check(m.entry, "eth", why, sizeof(why)));
	CHECK(strstr(why, "COLL_INTERFACE=eth:") && strstr(why, "lo, docker0, eth1, eth0"), "%s", why);
}

static void long_lists_travel_whole(void)
{
	unsigned char buf[4096];
	struct coll_ips l, other;
	struct made m = {.n = 0};
	char ip[32];
	size_t len;

	for (int i = 0; i < 64; i++) {
		snprintf(ip, sizeof(ip), i % 2 ? "10.%d.0.1" : "fd00:%d::1", i);
		add(&m, "eth0", ip, i % 2 ? "255.255.0.0" : "ffff::", UP);
	}
	coll_ips_read(&l, m.entry, "");
	REQUIRE(l.count == 64);
	len = coll_ips_pack(&l, buf, sizeof(buf));
	REQUIRE(coll_ips_unpack(&other, buf, len) && other.count == 64);
	for (unsigned i = 0; i < 64; i++)
		CHECK(coll_ip_same(&l.at[i], &other.at[i]) && l.at[i].prefix == other.at[i].prefix);
	for (size_t cut = 1; cut < 6; cut++)
		CHECK(!coll_ips_unpack(&other, buf, len - cut), "%zu bytes less", cut);
	CHECK(coll_ips_unpack(&other, buf, coll_ips_pack(&l, buf, 100)) && other.count > 3 && other.count < 64);
}

static struct coll_ips ips_of(const char *const *ip, unsigned n)
{
	struct made m = {.n = 0};
	struct coll_ips l;

	for (unsigned i = 0; i < n; i++)
		add(&m, strncmp(ip[i], "172.17", 6) ? "eth0" : "docker0", ip[i], "255.255.255.0",
		    strncmp(ip[i], "127.", 4) ? UP : UP | IFF_LOOPBACK);
	coll_ips_read(&l, m.entry, "");
	return l;
}

/* Five networks of each host that lead nowhere, equal bridges, and the one that joins them, last. */
static void what_was_proved_goes_first(void)
{
	static const char *const here[] = {"10.21.1.1", "10.21.2.1", "172.17.0.1", "10.97.0.1", "127.0.0.1"};
	static const char *const there[] = {"10.22.1.1",  "10.22.2.1", "172.17.0.1",
	                                    "172.17.0.9", "10.97.0.2", "127.0.0.1"};
	const struct coll_ips self = ips_of(here, 5);
	struct coll_ips peer = ips_of(there, 6);
	struct coll_ip met = peer.at[1];

	coll_ips_order(&self, &peer, &met, false);
	REQUIRE(peer.count == 4); /* not the loopback of another host, not an address of this one */
	CHECK(strcmp(text(&peer.at[0]), "10.22.2.1:7") == 0, "met: %s", text(&peer.at[0]));
	CHECK(strcmp(text(&peer.at[1]), "10.97.0.2:7") == 0, "shared: %s", text(&peer.at[1]));
	CHECK(strcmp(text(&peer.at[2]), "10.22.1.1:7") == 0);
	CHECK(strcmp(text(&peer.at[3]), "172.17.0.9:7") == 0, "a bridge comes last: %s", text(&peer.at[3]));
}

static void loopback_is_for_one_namespace(void)
{
	static const char *const here[] = {"10.21.1.1", "127.0.0.1"};
	const struct coll_ips self = ips_of(here, 2);
	struct coll_ips peer = self;

	coll_ips_order(&self, &peer, NULL, true);
	CHECK(peer.count == 2 && peer.at[0].loopback && !peer.at[1].loopback);
}

static void mapped_addresses_are_ipv4(void)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct coll_ip ip;

	inet_pton(AF_INET6, "::ffff:10.1.2.3", &six.sin6_addr);
	CHECK(coll_ip_from(&ip, (struct sockaddr *)&six) && !ip.ip6 && strcmp(text(&ip), "10.1.2.3:7") == 0);
	inet_pton(AF_INET6, "::1", &six.sin6_addr);
	CHECK(coll_ip_from(&ip, (struct sockaddr *)&six) && ip.ip6 && ip.loopback);
}

int main(void)
{
	PLAIN_RUN(carriers_first_then_bridges_then_loopback);
	PLAIN_RUN(settings_choose_or_are_refused);
	PLAIN_RUN(long_lists_travel_whole);
	PLAIN_RUN(what_was_proved_goes_first);
	PLAIN_RUN(loopback_is_for_one_namespace);
	PLAIN_RUN(mapped_addresses_are_ipv4);
	return plain_summary();
}
