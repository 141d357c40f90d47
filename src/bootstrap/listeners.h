/*
 * The listeners of a rendezvous: a Unix socket, and TCP sockets of one port.
 */
#ifndef COLL_BOOTSTRAP_LISTENERS_H
#define COLL_BOOTSTRAP_LISTENERS_H

#include "bootstrap/address.h"
#include "net/listen.h"

enum { COLL_RENDEZVOUS_LISTENERS = COLL_LISTENERS_MAX + 2, COLL_RENDEZVOUS_PORTS = 17 };

/* Zeroed: none. */
struct coll_rendezvous_listeners {
	int fd[COLL_RENDEZVOUS_LISTENERS];
	int count;
};

/* False, with errno: fd is -1, and nothing was added. */
bool coll_rendezvous_add(struct coll_rendezvous_listeners *l, int fd);
void coll_rendezvous_unlisten(struct coll_rendezvous_listeners *l);

/* Where ranks come to over TCP: the addresses of COLL_INTERFACE, and those of besides (NULL: none) that this host has;
 * none where nothing is chosen. AGAIN: COLL_INTERFACE leaves none. */
coll_status coll_rendezvous_addresses(const struct coll_settings *settings, const struct coll_places *besides,
                                      struct coll_ips *at, struct coll_error_box *err);
/* TCP at a port of first..last, 0, 0: any, at these addresses, at all of this host where they are none. False: errno
 * says why. */
bool coll_rendezvous_listen(struct coll_rendezvous_listeners *l, const struct coll_ips *at, uint16_t first,
                            uint16_t last, uint16_t *port);

/* Addresses that COLL_INTERFACE chooses, and those of the name that are ours: the others look for rank 0 there. */
coll_status coll_rendezvous_root_addresses(const struct coll_settings *settings, const char *host, struct coll_ips *at,
                                           struct coll_error_box *err);

/* Ports at which rank 0 may be when its own may be taken, also by somebody who means to: the named one (0: none), then
 * ports chosen by the seed, inside COLL_PORT_RANGE (0, 0: none). */
void coll_rendezvous_ports(uint64_t seed, uint16_t named, uint16_t first, uint16_t last,
                           uint16_t ports[COLL_RENDEZVOUS_PORTS]);

#endif
