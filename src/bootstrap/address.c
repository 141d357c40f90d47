/*
 * Addresses and listeners of address.h. Owns nothing: descriptors go to the
 * caller. Host names are resolved in resolve.c.
 */
#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/ips.h"
#include "base/own_user.h"

enum { BACKLOG = 4096 };

static struct sockaddr_in *in4(struct coll_address *a)
{
	return (struct sockaddr_in *)&a->at;
}

static struct sockaddr_in6 *in6(struct coll_address *a)
{
	return (struct sockaddr_in6 *)&a->at;
}

static const struct sockaddr_in *cin4(const struct coll_address *a)
{
	return (const struct sockaddr_in *)&a->at;
}

static const struct sockaddr_in6 *cin6(const struct coll_address *a)
{
	return (const struct sockaddr_in6 *)&a->at;
}

static const struct sockaddr_un *cun(const struct coll_address *a)
{
	return (const struct sockaddr_un *)&a->at;
}

static size_t unix_name_len(const struct coll_address *a)
{
	const size_t head = offsetof(struct sockaddr_un, sun_path) + 1;

	return a->len > head ? a->len - head : 0;
}

void coll_address_text(const struct coll_address *a, char *buf, size_t len_bytes)
{
	char host[INET6_ADDRSTRLEN] = "?";

	switch (a->at.ss_family) {
	case AF_INET:
		inet_ntop(AF_INET, &cin4(a)->sin_addr, host, sizeof(host));
		snprintf(buf, len_bytes, "%s:%u", host, coll_address_port(a));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &cin6(a)->sin6_addr, host, sizeof(host));
		snprintf(buf, len_bytes, "[%s]:%u", host, coll_address_port(a));
		break;
	case AF_UNIX: snprintf(buf, len_bytes, "unix:%.*s", (int)unix_name_len(a), cun(a)->sun_path + 1); break;
	default: snprintf(buf, len_bytes, "nowhere"); break;
	}
}

bool coll_address_is_loopback(const struct coll_address *a)
{
	if (a->at.ss_family == AF_INET)
		return (ntohl(cin4(a)->sin_addr.s_addr) >> 24) == 127;
	return a->at.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&cin6(a)->sin6_addr);
}

uint16_t coll_address_port(const struct coll_address *a)
{
	if (a->at.ss_family == AF_INET)
		return ntohs(cin4(a)->sin_port);
	return a->at.ss_family == AF_INET6 ? ntohs(cin6(a)->sin6_port) : 0;
}

void coll_address_set_port(struct coll_address *a, uint16_t port)
{
	if (a->at.ss_family == AF_INET)
		in4(a)->sin_port = htons(port);
	else if (a->at.ss_family == AF_INET6)
		in6(a)->sin6_port = htons(port);
}

bool coll_address_numeric(struct coll_address *a, const char *text, uint16_t port)
{
	memset(a, 0, sizeof(*a));
	if (inet_pton(AF_INET, text, &in4(a)->sin_addr) == 1) {
		a->at.ss_family = AF_INET;
		a->len = sizeof(struct sockaddr_in);
	} else if (inet_pton(AF_INET6, text, &in6(a)->sin6_addr) == 1) {
		a->at.ss_family = AF_INET6;
		a->len = sizeof(struct sockaddr_in6);
	} else {
		return false;
	}
	coll_address_set_port(a, port);
	return true;
}

void coll_address_unix(struct coll_address *a, const char *name)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&a->at;
	const size_t n = strnlen(name, sizeof(un->sun_path) - 1);

	memset(a, 0, sizeof(*a));
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path + 1, name, n);
	a->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

void coll_places_add(struct coll_places *p, const struct coll_address *a)
{
	for (int i = 0; i < p->count; i++)
		if (p->place[i].len == a->len && memcmp(&p->place[i].at, &a->at, a->len) == 0)
			return;
	if (p->count < COLL_PLACES_MAX)
		p->place[p->count++] = *a;
}

/* One place: length of what follows, family ('4', '6', 'u'), port, address. */
size_t coll_places_pack(const struct coll_places *p, unsigned char *buf, size_t cap)
{
	size_t at = 0;

	if (cap > COLL_PLACES_BYTES)
		cap = COLL_PLACES_BYTES;
	for (int i = 0; i < p->count; i++) {
		const struct coll_address *a = &p->place[i];
		const uint16_t port = coll_address_port(a);
		const int f = a->at.ss_family;
		const void *raw = f == AF_INET    ? (const void *)&cin4(a)->sin_addr
		                  : f == AF_INET6 ? (const void *)&cin6(a)->sin6_addr
		                                  : cun(a)->sun_path + 1;
		const size_t n = f == AF_INET ? 4 : f == AF_INET6 ? 16 : unix_name_len(a);

		if (at + 4 + n > cap)
			continue;
		buf[at] = (unsigned char)(3 + n);
		buf[at + 1] = f == AF_INET ? '4' : f == AF_INET6 ? '6' : 'u';
		buf[at + 2] = (unsigned char)(port >> 8);
		buf[at + 3] = (unsigned char)port;
		memcpy(buf + at + 4, raw, n);
		at += 4 + n;
	}
	return at;
}

static bool unpack_one(struct coll_address *a, const unsigned char *p, size_t n)
{
	char name[108] = {0};

	memset(a, 0, sizeof(*a));
	if (p[0] == '4' && n == 3 + 4) {
		a->at.ss_family = AF_INET;
		a->len = sizeof(struct sockaddr_in);
		memcpy(&in4(a)->sin_addr, p + 3, 4);
	} else if (p[0] == '6' && n == 3 + 16) {
		a->at.ss_family = AF_INET6;
		a->len = sizeof(struct sockaddr_in6);
		memcpy(&in6(a)->sin6_addr, p + 3, 16);
	} else if (p[0] == 'u' && n > 3 && n < 3 + sizeof(name)) {
		memcpy(name, p + 3, n - 3);
		coll_address_unix(a, name);
	} else {
		return false;
	}
	coll_address_set_port(a, (uint16_t)(p[1] << 8 | p[2]));
	return true;
}

bool coll_places_unpack(struct coll_places *p, const unsigned char *buf, size_t len_bytes)
{
	struct coll_address a;

	memset(p, 0, sizeof(*p));
	while (len_bytes > 0) {
		const size_t n = buf[0];

		if (n < 3 || n >= len_bytes || !unpack_one(&a, buf + 1, n))
			return false;
		coll_places_add(p, &a);
		buf += 1 + n;
		len_bytes -= 1 + n;
	}
	return true;
}

static void add(struct coll_places *p, const struct coll_ip *ip)
{
	struct coll_address a = {.len = 0};

	a.len = coll_ip_to(ip, 0, &a.at);
	coll_places_add(p, &a);
}

void coll_places_local(const struct coll_settings *settings, bool loopback, struct coll_places *p)
{
	struct coll_ips ips;
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all) < 0)
		return;
	coll_ips_read(&ips, all, settings->interface);
	for (unsigned i = 0; i < ips.count; i++)
		if (!ips.at[i].loopback)
			add(p, &ips.at[i]);
	/* The children of a rank may be on its host, whatever others are to use. */
	coll_ips_read(&ips, all, "");
	for (unsigned i = 0; loopback && i < ips.count; i++)
		if (ips.at[i].loopback)
			add(p, &ips.at[i]);
	freeifaddrs(all);
}

coll_status coll_port_range(const struct coll_settings *settings, uint16_t *first, uint16_t *last,
                            struct coll_error_box *err)
{
	const char *text = settings->port_range;
	char *end;
	unsigned long a, b;
	bool dashed; /* one port would not do: a process listens at several */

	*first = *last = 0;
	if (!*text)
		return COLL_OK;
	a = strtoul(text, &end, 10);
	dashed = end != text && *end == '-';
	text = end + dashed;
	b = strtoul(text, &end, 10);
	if (!dashed || end == text || *end || a < 1 || b > 65535 || a > b)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1106] COLL_PORT_RANGE=%s: expected first-last, 1 to 65535",
		                      settings->port_range);
	*first = (uint16_t)a;
	*last = (uint16_t)b;
	return COLL_OK;
}

static int listen_at(const struct coll_address *a, uint16_t *port)
{
	struct coll_address real = {.len = sizeof(real.at)};
	const int on = 1, off = 0;
	int fd = COLL_FD(socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

	if (fd < 0)
		return -1;
	if (a->at.ss_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)&a->at, a->len) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&real.at, &real.len) < 0) {
		const int e = errno;

		coll_fd_close(fd);
		errno = e;
		return -1;
	}
	*port = coll_address_port(&real);
	return fd;
}

int coll_listen_tcp(const struct coll_address *a, uint16_t want_port, uint16_t *port)
{
	struct coll_address any;
	int fd;

	if (a) {
		any = *a;
		coll_address_set_port(&any, want_port);
		return listen_at(&any, port);
	}
	coll_address_numeric(&any, "::", want_port);
	fd = listen_at(&any, port);
	if (fd >= 0 || errno == EADDRINUSE)
		return fd;
	coll_address_numeric(&any, "0.0.0.0", want_port);
	return listen_at(&any, port);
}

int coll_listen_unix_at(const struct coll_address *a)
{
	const int fd = COLL_FD(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	int e;

	if (fd < 0 || (bind(fd, (const struct sockaddr *)&a->at, a->len) == 0 && listen(fd, BACKLOG) == 0))
		return fd;
	e = errno;
	coll_fd_close(fd);
	errno = e;
	return -1;
}

int coll_listen_unix(const char *name, struct coll_address *a)
{
	int fd, e;

	if (name) {
		coll_address_unix(a, name);
		return coll_listen_unix_at(a);
	}
	memset(a, 0, sizeof(*a));
	a->at.ss_family = AF_UNIX;
	a->len = sizeof(sa_family_t);
	fd = coll_listen_unix_at(a);
	a->len = sizeof(a->at);
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&a->at, &a->len) == 0)
		return fd;
	e = errno;
	coll_fd_close(fd);
	errno = e;
	return -1;
}

bool coll_unix_foreign(int fd, bool keyed)
{
	struct sockaddr_storage self;
	struct ucred peer;
	socklen_t len = sizeof(self), cred_len = sizeof(peer);
	enum coll_user user;

	if (getsockname(fd, (struct sockaddr *)&self, &len) < 0 || self.ss_family != AF_UNIX)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &cred_len) < 0)
		return true;
	user = coll_user_of(peer.uid);
	return user == COLL_USER_OTHER || (user == COLL_USER_UNKNOWN && !keyed);
}
