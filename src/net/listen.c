/*
 * See listen.h. An address that is tentative or away for a moment is bound all the same, and the port of the first
 * socket is that of all. Owns the descriptors.
 */
#include "net/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "net/net.h"

enum { TRIES = 16 }; /* ports of the kernel's choice that another socket has at one of the addresses */

static void close_fd(int fd)
{
	const int why = errno;

	coll_net->close(fd);
	errno = why;
}

/* A range is used again soon, while connections of the job before still linger; a port of the kernel's choice is free
 * anyway. */
static bool set_options(int fd, int family, bool only6, bool chosen_port)
{
	const int one = 1, six = only6;

	if (chosen_port)
		coll_net->setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (family == AF_INET6 && coll_net->setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &six, sizeof(six)) < 0)
		return false;
	if (only6 || family == AF_INET) {
		coll_net->setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof(one));
		if (family == AF_INET6)
			coll_net->setsockopt(fd, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof(one));
	}
	return true;
}

/* ip NULL: every address of the family. *port 0: any, which is found out. */
static int listen_at(const struct coll_listen_how *how, const struct coll_ip *ip, int family, uint16_t *port)
{
	struct coll_ip any = {.ip6 = family == AF_INET6};
	struct sockaddr_storage at;
	struct coll_ip bound;
	socklen_t len = coll_ip_to(ip ? ip : &any, *port, &at);
	const int fd = coll_net->socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (set_options(fd, family, ip != NULL, how->first > 0)) {
		if (how->prepare)
			how->prepare(how->arg, fd);
		if (coll_net->bind(fd, (struct sockaddr *)&at, len) == 0 && coll_net->listen(fd, how->backlog) == 0) {
			len = sizeof(at);
			if (coll_net->getsockname(fd, (struct sockaddr *)&at, &len) == 0 &&
			    coll_ip_from(&bound, (struct sockaddr *)&at)) {
				*port = ntohs(family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
				                                 : ((struct sockaddr_in *)&at)->sin_port);
				return fd;
			}
		}
	}
	close_fd(fd);
	return -1;
}

static void add(struct coll_listeners *l, int fd, bool loopback, bool ip6)
{
	l->fd[l->count] = fd;
	l->loopback[l->count++] = loopback;
	l->ip6 = l->ip6 || ip6;
}

/* One dual-stack socket, or IPv4 where there is no IPv6. */
static bool open_any(struct coll_listeners *l, const struct coll_listen_how *how, uint16_t port)
{
	int fd = listen_at(how, NULL, AF_INET6, &port);
	const bool six = fd >= 0;

	if (!six && errno != EADDRINUSE)
		fd = listen_at(how, NULL, AF_INET, &port);
	if (fd < 0)
		return false;
	add(l, fd, false, six);
	l->port = port;
	return true;
}

/* Two interfaces may have one address. */
static bool is_there(const struct coll_ips *ips, unsigned at)
{
	for (unsigned i = 0; i < at; i++)
		if (coll_ip_same(&ips->at[i], &ips->at[at]))
			return true;
	return false;
}

static bool open_each(struct coll_listeners *l, const struct coll_listen_how *how, uint16_t port)
{
	for (unsigned i = 0; i < how->at->count; i++) {
		const struct coll_ip *ip = &how->at->at[i];
		int fd;

		if (is_there(how->at, i))
			continue;
		fd = listen_at(how, ip, ip->ip6 ? AF_INET6 : AF_INET, &port);
		if (fd < 0) {
			coll_listeners_close(l);
			return false;
		}
		add(l, fd, ip->loopback, ip->ip6);
	}
	l->port = port;
	return true;
}

bool coll_listeners_open(struct coll_listeners *l, const struct coll_listen_how *how)
{
	const bool each = how->at && how->at->count > 0 && how->at->count <= COLL_LISTENERS_MAX;
	const unsigned ports = how->first > 0 ? how->last - how->first + 1 : each ? TRIES : 1;

	*l = (struct coll_listeners){.count = 0};
	for (unsigned i = 0; i < ports; i++) {
		const unsigned port = how->first > 0 ? how->first + (how->start + i) % ports : 0;

		if (each ? open_each(l, how, (uint16_t)port) : open_any(l, how, (uint16_t)port))
			return true;
		if (errno != EADDRINUSE)
			break;
	}
	return false;
}

void coll_listeners_close(struct coll_listeners *l)
{
	for (int i = 0; i < l->count; i++)
		close_fd(l->fd[i]);
	l->count = 0;
}

bool coll_listeners_keep_loopback(struct coll_listeners *l)
{
	int kept = 0;

	for (int i = 0; i < l->count; i++)
		kept += l->loopback[i];
	if (kept == 0)
		return false;
	kept = 0;
	for (int i = 0; i < l->count; i++) {
		if (!l->loopback[i]) {
			close_fd(l->fd[i]);
			continue;
		}
		l->loopback[kept] = true;
		l->fd[kept++] = l->fd[i];
	}
	l->count = kept;
	return true;
}
