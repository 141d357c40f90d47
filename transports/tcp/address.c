/*
 * Addresses: which of this host's IP addresses are announced, whether two
 * processes can reach each other, and in what order the addresses of a peer are
 * tried. Text of the announcement: a fixed part, then 13 or 25 bytes per
 * candidate and, of one with a rate, the name of its interface. Everything that comes from a peer is checked; nothing
 * here opens a connection (a UDP socket is connected to ask the kernel for a route, no packet leaves).
 */
#include "transports/tcp/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/ips.h"
#include "base/link_rates.h"
#include "tcp.h"

enum { ADDRESS_FIXED_BYTES = 4 + 8 + 8 + 16, CANDIDATE_FIXED_BYTES = 1 + 2 + 1 + 3 + 1, INTERFACES_MAX = 64 };

static const unsigned char address_magic[3] = {'T', 'C', 5};

/* ---- this host ------------------------------------------------------- */

static size_t read_text(const char *path, char *buf, size_t cap)
{
	FILE *f = fopen(path, "re");
	size_t n;

	if (f == NULL)
		return 0;
	n = fread(buf, 1, cap, f);
	fclose(f);
	return n;
}

/* Without /proc the machine is named by its host name, and the network namespace
 * by nothing that two processes could share: they use no loopback then. */
static void identify(struct coll_tcp_address *a)
{
	char text[256] = "";
	size_t n = read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));
	ssize_t m;

	if (n == 0 && gethostname(text, sizeof(text) - 1) == 0)
		n = strlen(text);
	a->machine = coll_hash_bytes(1, text, n);
	m = readlink("/proc/self/ns/net", text, sizeof(text));
	if (m > 0)
		a->name_space = coll_hash_bytes(a->machine, text, (size_t)m);
	else
		a->name_space = coll_hash_combine(a->id.word[0], a->id.word[1]);
}

static struct coll_ip as_ip(const struct coll_tcp_candidate *c)
{
	struct coll_ip ip = {.ip6 = c->ip6, .loopback = c->loopback, .prefix = c->prefix};

	memcpy(ip.bytes, c->ip, sizeof(ip.bytes));
	return ip;
}

static void ask_rate(struct coll_tcp_candidate *c, const struct coll_transport_env *env)
{
	c->mbps = env && env->nic_mbps ? env->nic_mbps(env->ctx, c->name) : 0;
	if (c->mbps > 0 && !(env->nic_constant && env->nic_constant(env->ctx, c->name)))
		c->origin = COLL_RATE_SYSTEM;
}

static void append(struct coll_tcp_address *a, const struct coll_ip *ip, const struct coll_tcp_allowed *allowed)
{
	const uint32_t mbps = coll_link_rate_of(allowed->rate, allowed->rates, ip->interface);
	struct coll_tcp_candidate *c = &a->candidate[a->count++];

	memset(c, 0, sizeof(*c));
	c->loopback = ip->loopback;
	c->ip6 = ip->ip6;
	c->prefix = ip->prefix;
	c->interface = (uint8_t)(if_nametoindex(ip->interface) % INTERFACES_MAX);
	snprintf(c->name, sizeof(c->name), "%s", ip->interface);
	c->mbps = mbps;
	c->origin = COLL_RATE_USER;
	if (mbps == 0) {
		c->origin = COLL_RATE_UNKNOWN;
		ask_rate(c, allowed->env);
	}
	if (c->mbps > COLL_LINK_RATE_MAX)
		c->mbps = COLL_LINK_RATE_MAX;
	memcpy(c->ip, ip->bytes, sizeof(c->ip));
}

/* Loopback comes last in the list, and has room in any case. */
static void append_all(struct coll_tcp_address *a, const struct coll_ips *ips, const struct coll_tcp_allowed *allowed)
{
	for (unsigned i = 0; i < ips->count; i++)
		if (!allowed->ip6 && ips->at[i].ip6)
			continue;
		else if (allowed->loopback
		                 ? a->count == 0 && ips->at[i].loopback
		                 : a->count < (ips->at[i].loopback ? TCP_CANDIDATES_MAX : TCP_CANDIDATES_MAX - 2))
			append(a, &ips->at[i], allowed);
}

/* It takes reading the machine, so it is asked where there is a choice. */
static void find_distances(struct coll_tcp_address *a, const struct coll_transport_env *env)
{
	bool several = false;

	for (unsigned i = 1; i < a->count; i++)
		several = several ||
		          (!a->candidate[i].loopback && a->candidate[i].interface != a->candidate[0].interface);
	for (unsigned i = 0; several && env && env->nic_distance && i < a->count; i++)
		if (!a->candidate[i].loopback)
			a->candidate[i].distance = (uint8_t)env->nic_distance(env->ctx, a->candidate[i].name);
}

coll_status coll_tcp_address_local(struct coll_tcp_address *a, const struct coll_tcp_allowed *allowed, char *why,
                                   size_t why_bytes)
{
	struct ifaddrs *all;
	struct coll_ips ips;

	identify(a);
	a->count = 0;
	if (getifaddrs(&all) != 0) {
		coll_errno_keep("getifaddrs");
		snprintf(why, why_bytes, "the network interfaces cannot be listed");
		return COLL_ERR_SYSTEM;
	}
	coll_ips_read(&ips, all, allowed->interfaces);
	freeifaddrs(all);
	append_all(a, &ips, allowed);
	if (a->count == 0) {
		snprintf(why, why_bytes, "no network interface with an address%s%s",
		         allowed->interfaces[0] ? " matches COLL_INTERFACE=" : "", allowed->interfaces);
		return COLL_ERR_CONFIG;
	}
	find_distances(a, allowed->env);
	return COLL_OK;
}

void coll_tcp_address_ips(const struct coll_tcp_address *a, struct coll_ips *ips)
{
	ips->count = a->count;
	for (unsigned i = 0; i < a->count; i++)
		ips->at[i] = as_ip(&a->candidate[i]);
}

coll_status coll_tcp_address_listens(struct coll_tcp_address *a, uint16_t port, bool ip6)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < a->count; i++) {
		a->candidate[i].port = port;
		if (ip6 || !a->candidate[i].ip6)
			a->candidate[kept++] = a->candidate[i];
	}
	a->count = kept;
	return kept > 0 ? COLL_OK : COLL_ERR_CONFIG;
}

/* ---- text ---------------------------------------------------------------- */

/* Without the name: one byte is its length. */
static size_t bare_bytes(const struct coll_tcp_candidate *c)
{
	return CANDIDATE_FIXED_BYTES + (c->ip6 ? 16 : 4) + 1;
}

static size_t put_candidate(const struct coll_tcp_candidate *c, unsigned char *p, size_t name_bytes)
{
	const size_t ip = c->ip6 ? 16 : 4;

	p[0] = (unsigned char)(c->ip6 | c->loopback << 1 | c->interface << 2);
	memcpy(p + 1, &c->port, 2);
	p[3] = c->prefix;
	p[4] = (unsigned char)c->mbps;
	p[5] = (unsigned char)(c->mbps >> 8);
	p[6] = (unsigned char)(c->mbps >> 16 | (uint32_t)c->origin << 6); /* a rate has 22 bits */
	p[7] = c->distance;
	memcpy(p + CANDIDATE_FIXED_BYTES, c->ip, ip);
	p[CANDIDATE_FIXED_BYTES + ip] = (unsigned char)name_bytes;
	memcpy(p + CANDIDATE_FIXED_BYTES + ip + 1, c->name, name_bytes);
	return bare_bytes(c) + name_bytes;
}

/* How many bytes it takes up; 0: it is none. */
static size_t get_candidate(struct coll_tcp_candidate *c, const unsigned char *p, size_t len_bytes)
{
	size_t ip, name;

	if (len_bytes < CANDIDATE_FIXED_BYTES)
		return 0;
	c->ip6 = p[0] & 1;
	c->loopback = p[0] >> 1 & 1;
	c->interface = p[0] >> 2;
	c->prefix = p[3];
	c->mbps = (uint32_t)p[4] | (uint32_t)p[5] << 8 | (uint32_t)(p[6] & 63) << 16;
	c->origin = p[6] >> 6;
	c->distance = p[7];
	ip = c->ip6 ? 16 : 4;
	if (len_bytes < bare_bytes(c) || c->prefix > 8 * ip || c->mbps > COLL_LINK_RATE_MAX)
		return 0;
	memcpy(&c->port, p + 1, 2);
	memcpy(c->ip, p + CANDIDATE_FIXED_BYTES, ip);
	name = p[CANDIDATE_FIXED_BYTES + ip];
	if (name >= TCP_INTERFACE_NAME || len_bytes < bare_bytes(c) + name)
		return 0;
	memcpy(c->name, p + bare_bytes(c), name);
	for (size_t i = 0; i < name; i++)
		if (c->name[i] < ' ' || c->name[i] > '~')
			c->name[i] = '?'; /* it is for messages only */
	return bare_bytes(c) + name;
}

coll_status coll_tcp_address_encode(const struct coll_tcp_address *a, void *buf, size_t cap, size_t *len_bytes)
{
	unsigned char *p = buf;
	size_t at = ADDRESS_FIXED_BYTES, left = 0;
	unsigned count = 0;

	if (cap < at)
		return COLL_ERR_ARGUMENT;
	for (unsigned i = 0; i < a->count; i++)
		left += bare_bytes(&a->candidate[i]);
	for (unsigned i = 0; i < a->count; i++) {
		const struct coll_tcp_candidate *c = &a->candidate[i];
		size_t name = c->origin ? strlen(c->name) : 0;

		/* Names take the room that no address needs. */
		if (at + left + name > cap)
			name = 0;
		left -= bare_bytes(c);
		if (at + bare_bytes(c) > cap)
			continue;
		at += put_candidate(c, p + at, name);
		count++;
	}
	if (count == 0)
		return COLL_ERR_ARGUMENT;
	memcpy(p, address_magic, 3);
	p[3] = (unsigned char)count;
	memcpy(p + 4, &a->machine, 8);
	memcpy(p + 12, &a->name_space, 8);
	memcpy(p + 20, &a->id, 16);
	*len_bytes = at;
	return COLL_OK;
}

bool coll_tcp_address_decode(struct coll_tcp_address *a, const void *buf, size_t len_bytes)
{
	const unsigned char *p = buf;
	size_t at = ADDRESS_FIXED_BYTES;

	memset(a, 0, sizeof(*a));
	if (len_bytes < at || memcmp(p, address_magic, 3) != 0 || p[3] > TCP_CANDIDATES_MAX)
		return false;
	memcpy(&a->machine, p + 4, 8);
	memcpy(&a->name_space, p + 12, 8);
	memcpy(&a->id, p + 20, 16);
	for (unsigned i = 0; i < p[3]; i++) {
		const size_t bytes = get_candidate(&a->candidate[i], p + at, len_bytes - at);

		if (bytes == 0)
			return false;
		at += bytes;
	}
	a->count = p[3];
	return a->count > 0 && at == len_bytes;
}

void coll_tcp_address_reduce(struct coll_tcp_address *a, const void *buf, size_t len_bytes)
{
	struct coll_tcp_address announced;
	unsigned kept = 0;

	if (!coll_tcp_address_decode(&announced, buf, len_bytes))
		return;
	for (unsigned i = 0; i < a->count && kept < announced.count; i++)
		if (coll_tcp_candidate_same_ip(&a->candidate[i], &announced.candidate[kept]))
			a->candidate[kept++] = a->candidate[i];
	a->count = kept;
}

void coll_tcp_address_names(struct coll_tcp_address *a, const struct coll_tcp_address *self)
{
	for (unsigned i = 0; coll_same_process(&a->id, &self->id) && i < a->count; i++)
		for (unsigned k = 0; k < self->count; k++)
			if (coll_tcp_candidate_same_ip(&a->candidate[i], &self->candidate[k]))
				memcpy(a->candidate[i].name, self->candidate[k].name, TCP_INTERFACE_NAME);
}

/* ---- two processes -------------------------------------------------------- */

void coll_tcp_address_apart(const struct coll_transport_env *env, const struct coll_tcp_address *a,
                            struct coll_tcp_address *b)
{
	if (a->name_space == b->name_space && env->copies && env->copies(env->ctx, &a->id, &b->id))
		b->name_space = ~b->name_space;
}

/* Bit 0: IPv4, bit 1: IPv6. */
static unsigned families(const struct coll_tcp_address *a, bool loopback)
{
	unsigned f = 0;

	for (unsigned i = 0; i < a->count; i++)
		if (loopback || !a->candidate[i].loopback)
			f |= 1u << a->candidate[i].ip6;
	return f;
}

bool coll_tcp_address_reachable(const struct coll_tcp_address *a, const struct coll_tcp_address *b, char *why,
                                size_t why_bytes)
{
	const bool near = a->name_space == b->name_space;
	const unsigned fa = families(a, near);
	const unsigned fb = families(b, near);

	if ((fa & fb) != 0)
		return true;
	if (fa == 0 || fb == 0)
		snprintf(why, why_bytes, "%s has loopback addresses only (link-local IPv6 is not used)",
		         fa == 0 ? "this host" : "it");
	else
		snprintf(why, why_bytes, "no common address family: one has only IPv4, the other only IPv6");
	return false;
}

socklen_t coll_tcp_candidate_sockaddr(const struct coll_tcp_candidate *c, struct sockaddr_storage *sa)
{
	memset(sa, 0, sizeof(*sa));
	if (c->ip6) {
		struct sockaddr_in6 *s = (struct sockaddr_in6 *)sa;

		s->sin6_family = AF_INET6;
		s->sin6_port = htons(c->port);
		memcpy(&s->sin6_addr, c->ip, 16);
		return sizeof(*s);
	}
	struct sockaddr_in *s = (struct sockaddr_in *)sa;

	s->sin_family = AF_INET;
	s->sin_port = htons(c->port);
	memcpy(&s->sin_addr, c->ip, 4);
	return sizeof(*s);
}

const char *coll_tcp_candidate_text(const struct coll_tcp_candidate *c, char *buf, size_t cap)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	inet_ntop(c->ip6 ? AF_INET6 : AF_INET, c->ip, ip, sizeof(ip));
	snprintf(buf, cap, c->ip6 ? "[%s]:%u" : "%s:%u", ip, c->port);
	return buf;
}

bool coll_tcp_candidate_same_ip(const struct coll_tcp_candidate *a, const struct coll_tcp_candidate *b)
{
	return a->ip6 == b->ip6 && memcmp(a->ip, b->ip, a->ip6 ? 16 : 4) == 0;
}

/* A socket that was accepted may say ::ffff:10.0.0.1. */
static void from_sockaddr(struct coll_tcp_candidate *c, const struct sockaddr_storage *sa)
{
	const uint8_t *ip = (const uint8_t *)&((const struct sockaddr_in6 *)sa)->sin6_addr;

	memset(c, 0, sizeof(*c));
	c->ip6 = sa->ss_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)ip);
	if (c->ip6)
		memcpy(c->ip, ip, 16);
	else if (sa->ss_family == AF_INET6)
		memcpy(c->ip, ip + 12, 4);
	else
		memcpy(c->ip, &((const struct sockaddr_in *)sa)->sin_addr, 4);
}

bool coll_tcp_candidate_of(int fd, struct coll_tcp_candidate *c)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &len) != 0)
		return false;
	from_sockaddr(c, &sa);
	return true;
}

void coll_tcp_address_where(const struct coll_tcp_address *self, int fd, char *buf, size_t cap)
{
	struct sockaddr_storage a, b;
	socklen_t la = sizeof(a), lb = sizeof(b);
	struct coll_tcp_candidate here, there;
	char from[INET6_ADDRSTRLEN] = "?", to[INET6_ADDRSTRLEN] = "?";
	const char *name = "";

	if (getsockname(fd, (struct sockaddr *)&a, &la) != 0 || getpeername(fd, (struct sockaddr *)&b, &lb) != 0) {
		snprintf(buf, cap, "a socket without addresses");
		return;
	}
	from_sockaddr(&here, &a);
	from_sockaddr(&there, &b);
	for (unsigned i = 0; i < self->count && !*name; i++)
		if (coll_tcp_candidate_same_ip(&self->candidate[i], &here))
			name = self->candidate[i].name;
	inet_ntop(here.ip6 ? AF_INET6 : AF_INET, here.ip, from, sizeof(from));
	inet_ntop(there.ip6 ? AF_INET6 : AF_INET, there.ip, to, sizeof(to));
	snprintf(buf, cap, "%s%s%s to %s", name, *name ? ", " : "", from, to);
}

uint32_t coll_tcp_address_mbps(const struct coll_tcp_address *self, int fd)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	struct coll_tcp_candidate here;

	if (getsockname(fd, (struct sockaddr *)&sa, &len) != 0)
		return 0;
	from_sockaddr(&here, &sa);
	for (unsigned i = 0; i < self->count; i++)
		if (coll_tcp_candidate_same_ip(&self->candidate[i], &here))
			return self->candidate[i].mbps;
	return 0;
}

/* Which of our addresses the kernel would send from; false: no route. */
static bool route_source(const struct coll_tcp_candidate *to, struct coll_tcp_candidate *from)
{
	struct sockaddr_storage sa;
	socklen_t len = coll_tcp_candidate_sockaddr(to, &sa);
	const int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool found = false;

	if (fd < 0)
		return false;
	if (connect(fd, (struct sockaddr *)&sa, len) == 0) {
		len = sizeof(sa);
		found = getsockname(fd, (struct sockaddr *)&sa, &len) == 0;
	}
	coll_fd_close(fd);
	if (!found)
		return false;
	from_sockaddr(from, &sa);
	return true;
}

/* Later than all turns of coll_ip_turn: by the routes of this moment. */
enum { LEAVES_ELSEWHERE = COLL_IP_TURNS, NO_ROUTE, TURNS };

/* Smaller is tried earlier; -1: not at all. */
static int turn_of(const struct coll_tcp_address *self, const struct coll_ips *own, const struct coll_tcp_candidate *c,
                   const struct coll_ip *met, bool near)
{
	const struct coll_ip ip = as_ip(c);
	const int turn = coll_ip_turn(own, &ip, met, near);
	struct coll_tcp_candidate from;

	if (near || turn < 0 || turn == COLL_IP_PROVED)
		return turn;
	if (!route_source(c, &from))
		return NO_ROUTE;
	for (unsigned i = 0; i < self->count; i++)
		if (coll_tcp_candidate_same_ip(&self->candidate[i], &from))
			return turn;
	return LEAVES_ELSEWHERE; /* by an interface that is not ours to use */
}

void coll_tcp_address_order(const struct coll_tcp_address *self, struct coll_tcp_address *peer,
                            const struct coll_ip *met)
{
	const bool near = self->name_space == peer->name_space;
	struct coll_tcp_candidate sorted[TCP_CANDIDATES_MAX];
	struct coll_ips own = {.count = self->count};
	int turn[TCP_CANDIDATES_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < self->count; i++)
		own.at[i] = as_ip(&self->candidate[i]);
	for (unsigned i = 0; i < peer->count; i++)
		turn[i] = turn_of(self, &own, &peer->candidate[i], met, near);
	for (int want = 0; want < TURNS; want++)
		for (unsigned i = 0; i < peer->count; i++)
			if (turn[i] == want)
				sorted[n++] = peer->candidate[i];
	memcpy(peer->candidate, sorted, n * sizeof(sorted[0]));
	peer->count = n;
}
