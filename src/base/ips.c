/*
 * See ips.h. Owns nothing. Invariant: the order is a function of the two lists and of what was proved, so every plane
 * of a process tries the addresses of a peer in one order.
 */
#include "base/ips.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static bool listed(const char *list, const char *name)
{
	const size_t len = strlen(name);

	for (const char *p = list; *p != '\0';) {
		const size_t n = strcspn(p, ", ");

		if (n == len && memcmp(p, name, n) == 0)
			return true;
		p += n;
		p += strspn(p, ", ");
	}
	return false;
}

bool coll_ips_admit(const char *setting, const char *interface)
{
	if (setting[0] == '\0')
		return true;
	return setting[0] == '^' ? !listed(setting + 1, interface) : listed(setting, interface);
}

bool coll_ips_check(const struct ifaddrs *all, const char *setting, char *why, size_t why_bytes)
{
	char names[160] = "";
	size_t at = 0;

	if (setting[0] == '\0' || setting[0] == '^')
		return true;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (listed(setting, i->ifa_name))
			return true;
		if (!listed(names, i->ifa_name) && at + strlen(i->ifa_name) + 3 < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s", at ? ", " : "", i->ifa_name);
	}
	snprintf(why, why_bytes, "COLL_INTERFACE=%s: this host has no such interface, but %s", setting,
	         at ? names : "none at all");
	return false;
}

/* Container tools give these the same address on every host, or networks that end at the host. */
static bool is_bridge(const char *name)
{
	static const char *const begin[] = {"docker", "virbr", "br-",   "lxcbr", "lxdbr",  "cni",
	                                    "podman", "cali",  "weave", "kube-", "flannel"};

	for (size_t i = 0; i < sizeof(begin) / sizeof(begin[0]); i++)
		if (strncmp(name, begin[i], strlen(begin[i])) == 0)
			return true;
	return false;
}

static uint8_t prefix_of(const struct sockaddr *mask, bool ip6)
{
	unsigned char bytes[16];
	unsigned n = 0;

	if (mask == NULL)
		return 0;
	if (ip6)
		memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr, 16);
	else
		memcpy(bytes, &((const struct sockaddr_in *)(const void *)mask)->sin_addr, 4);
	while (n < (ip6 ? 128u : 32u) && (bytes[n / 8] << n % 8 & 0x80) != 0)
		n++;
	return (uint8_t)n;
}

bool coll_ip_from(struct coll_ip *ip, const struct sockaddr *from)
{
	*ip = (struct coll_ip){.ip6 = from->sa_family == AF_INET6};
	if (from->sa_family == AF_INET) {
		memcpy(ip->bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
		ip->loopback = ip->bytes[0] == 127;
	} else if (from->sa_family == AF_INET6) {
		const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;

		ip->ip6 = !IN6_IS_ADDR_V4MAPPED(a);
		memcpy(ip->bytes, (const uint8_t *)a + (ip->ip6 ? 0 : 12), ip->ip6 ? 16 : 4);
		ip->loopback = ip->ip6 ? IN6_IS_ADDR_LOOPBACK(a) : ip->bytes[0] == 127;
	} else {
		return false;
	}
	return true;
}

enum { FIRST_CLASS, NO_CARRIER = 2, BRIDGES = 4, LOOPBACK = 6, CLASSES = 8 };

/* Smaller is told earlier; -1: not at all. */
static int class_of(const struct ifaddrs *i)
{
	const struct sockaddr *sa = i->ifa_addr;
	int of_family = 0;

	if (sa == NULL || (sa->sa_family != AF_INET && sa->sa_family != AF_INET6))
		return -1;
	if (sa->sa_family == AF_INET6) {
		const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;

		if (IN6_IS_ADDR_LINKLOCAL(a) || IN6_IS_ADDR_MULTICAST(a))
			return -1;
		of_family = 1;
	}
	if (i->ifa_flags & IFF_LOOPBACK)
		return i->ifa_flags & IFF_UP ? LOOPBACK + of_family : -1;
	if (is_bridge(i->ifa_name))
		return BRIDGES + of_family;
	return ((i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING) ? FIRST_CLASS : NO_CARRIER) + of_family;
}

void coll_ips_read(struct coll_ips *l, const struct ifaddrs *all, const char *setting)
{
	l->count = 0;
	for (int class = 0; class < CLASSES; class ++)
		for (const struct ifaddrs *i = all; i && l->count < COLL_IPS_MAX; i = i->ifa_next) {
			struct coll_ip *ip = &l->at[l->count];

			if (class_of(i) != class || !coll_ips_admit(setting, i->ifa_name))
				continue;
			coll_ip_from(ip, i->ifa_addr);
			ip->loopback = class >= LOOPBACK;
			ip->bridge = class >= BRIDGES && class < LOOPBACK;
			ip->prefix = class < NO_CARRIER || ip->loopback ? prefix_of(i->ifa_netmask, ip->ip6) : 0;
			snprintf(ip->interface, sizeof(ip->interface), "%s", i->ifa_name);
			l->count++;
		}
}

/* One address: flags, prefix, 4 or 16 bytes. */
size_t coll_ips_pack(const struct coll_ips *l, void *buf, size_t cap)
{
	unsigned char *p = buf;
	size_t at = 0;

	for (unsigned i = 0; i < l->count; i++) {
		const struct coll_ip *ip = &l->at[i];
		const size_t n = ip->ip6 ? 16 : 4;

		if (at + 2 + n > cap)
			break;
		p[at] = (unsigned char)(ip->ip6 | ip->loopback << 1 | ip->bridge << 2);
		p[at + 1] = ip->prefix;
		memcpy(p + at + 2, ip->bytes, n);
		at += 2 + n;
	}
	return at;
}

bool coll_ips_unpack(struct coll_ips *l, const void *buf, size_t len_bytes)
{
	const unsigned char *p = buf;
	size_t at = 0;

	l->count = 0;
	while (at < len_bytes) {
		struct coll_ip *ip = &l->at[l->count];
		const size_t n = p[at] & 1 ? 16 : 4;

		if (at + 2 + n > len_bytes || p[at] > 7 || p[at + 1] > 8 * n || l->count == COLL_IPS_MAX)
			return false;
		*ip = (struct coll_ip){
		        .ip6 = p[at] & 1, .loopback = p[at] >> 1 & 1, .bridge = p[at] >> 2 & 1, .prefix = p[at + 1]};
		memcpy(ip->bytes, p + at + 2, n);
		l->count++;
		at += 2 + n;
	}
	return true;
}

bool coll_ip_same(const struct coll_ip *a, const struct coll_ip *b)
{
	return a->ip6 == b->ip6 && memcmp(a->bytes, b->bytes, a->ip6 ? 16 : 4) == 0;
}

bool coll_ip_same_network(const struct coll_ip *a, const struct coll_ip *b)
{
	const unsigned whole = a->prefix / 8, rest = a->prefix % 8;

	if (a->loopback || b->loopback || a->ip6 != b->ip6 || a->prefix != b->prefix || a->prefix == 0)
		return false;
	return memcmp(a->bytes, b->bytes, whole) == 0 &&
	       (rest == 0 || ((a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest)) == 0);
}

unsigned coll_ip_to(const struct coll_ip *ip, uint16_t port, struct sockaddr_storage *to)
{
	memset(to, 0, sizeof(*to));
	if (ip->ip6) {
		struct sockaddr_in6 *s = (struct sockaddr_in6 *)to;

		s->sin6_family = AF_INET6;
		s->sin6_port = htons(port);
		memcpy(&s->sin6_addr, ip->bytes, 16);
		return sizeof(*s);
	}
	struct sockaddr_in *s = (struct sockaddr_in *)to;

	s->sin_family = AF_INET;
	s->sin_port = htons(port);
	memcpy(&s->sin_addr, ip->bytes, 4);
	return sizeof(*s);
}

const char *coll_ip_text(const struct coll_ip *ip, uint16_t port, char *buf, size_t cap)
{
	char text[INET6_ADDRSTRLEN] = "?";

	inet_ntop(ip->ip6 ? AF_INET6 : AF_INET, ip->bytes, text, sizeof(text));
	snprintf(buf, cap, ip->ip6 ? "[%s]:%u" : "%s:%u", text, port);
	return buf;
}

int coll_ip_turn(const struct coll_ips *self, const struct coll_ip *peer, const struct coll_ip *met, bool near)
{
	bool shared = false;

	if (near)
		return peer->loopback ? COLL_IP_PROVED : COLL_IP_SHARED;
	if (peer->loopback)
		return -1;
	for (unsigned i = 0; i < self->count; i++) {
		if (coll_ip_same(&self->at[i], peer))
			return -1;
		shared = shared || coll_ip_same_network(&self->at[i], peer);
	}
	if (met && coll_ip_same(met, peer))
		return COLL_IP_PROVED;
	return peer->bridge ? COLL_IP_BRIDGE : shared ? COLL_IP_SHARED : COLL_IP_OTHER;
}

void coll_ips_order(const struct coll_ips *self, struct coll_ips *peer, const struct coll_ip *met, bool near)
{
	struct coll_ips sorted = {.count = 0};

	for (int turn = 0; turn < COLL_IP_TURNS; turn++)
		for (unsigned i = 0; i < peer->count; i++)
			if (coll_ip_turn(self, &peer->at[i], met, near) == turn)
				sorted.at[sorted.count++] = peer->at[i];
	*peer = sorted;
}
