/*
 * TCP listeners of one port: one socket for every address of this host, or one for each of some addresses.
 */
#ifndef COLL_NET_LISTEN_H
#define COLL_NET_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ips.h"

enum { COLL_LISTENERS_MAX = 16 };

struct coll_listeners {
	int fd[COLL_LISTENERS_MAX];
	bool loopback[COLL_LISTENERS_MAX];
	int count; /* 0: none */
	uint16_t port;
	bool ip6; /* one of them takes IPv6 */
};

struct coll_listen_how {
	const struct coll_ips *at; /* more than COLL_LISTENERS_MAX, or none: every address of this host */
	unsigned first, last;      /* ports; 0, 0: any */
	unsigned start;            /* where in the range the search begins */
	int backlog;
	void (*prepare)(void *arg, int fd); /* before it listens; may be NULL */
	void *arg;
};

/* Non-blocking. False: none is open, errno says why. */
bool coll_listeners_open(struct coll_listeners *l, const struct coll_listen_how *how);
void coll_listeners_close(struct coll_listeners *l);
/* Close those that take anything but loopback. False: there is none for loopback alone, and nothing is closed. */
bool coll_listeners_keep_loopback(struct coll_listeners *l);

#endif
