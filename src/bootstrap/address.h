/*
 * Places a rendezvous can be reached at: Internet and abstract Unix socket
 * addresses, the interfaces of this host, listeners. No protocol.
 */
#ifndef COLL_BOOTSTRAP_ADDRESS_H
#define COLL_BOOTSTRAP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/config.h"
#include "base/error.h"

struct coll_address {
	struct sockaddr_storage at;
	socklen_t len;
};

enum { COLL_PLACES_MAX = 72, COLL_PLACES_BYTES = 1300 };

/* Several ways to one listener, best first. */
struct coll_places {
	int count;
	struct coll_address place[COLL_PLACES_MAX];
};

/* "10.0.0.1:5000", "[fe80::1]:5000", "unix:name". */
void coll_address_text(const struct coll_address *a, char *buf, size_t len_bytes);
bool coll_address_is_loopback(const struct coll_address *a);
uint16_t coll_address_port(const struct coll_address *a);
void coll_address_set_port(struct coll_address *a, uint16_t port);
/* A numeric IPv4 or IPv6 address; false for anything else. */
bool coll_address_numeric(struct coll_address *a, const char *text, uint16_t port);
/* Abstract Unix socket of that name. */
void coll_address_unix(struct coll_address *a, const char *name);

/* Append, unless it is there already or the list is full. */
void coll_places_add(struct coll_places *p, const struct coll_address *a);
/* Compact form for the wire: returns the length, at most COLL_PLACES_BYTES and
 * cap; places that do not fit are left out. */
size_t coll_places_pack(const struct coll_places *p, unsigned char *buf, size_t cap);
/* False when the bytes make no sense. */
bool coll_places_unpack(struct coll_places *p, const unsigned char *buf, size_t len_bytes);

/* Addresses of this host in the order of base/ips.h, filtered by COLL_INTERFACE; loopback last and only if wanted. */
void coll_places_local(const struct coll_settings *settings, bool loopback, struct coll_places *p);

/* COLL_PORT_RANGE; 0, 0 when empty. */
coll_status coll_port_range(const struct coll_settings *settings, uint16_t *first, uint16_t *last,
                            struct coll_error_box *err);

/* Non-blocking listeners; -1 with errno on failure. a NULL: every address of this
 * host (IPv6 and IPv4 where both exist) at port. *port receives the real port. */
int coll_listen_tcp(const struct coll_address *a, uint16_t want_port, uint16_t *port);
int coll_listen_unix_at(const struct coll_address *a);
/* name NULL: the kernel chooses; *a receives the address. */
int coll_listen_unix(const char *name, struct coll_address *a);

/* The other end of a connected or accepted Unix socket is a process of another user, or, unless keyed, may be: anybody
 * may bind or connect to an abstract name. keyed: a proof will tell who it is. False for other sockets. */
bool coll_unix_foreign(int fd, bool keyed);

#endif
