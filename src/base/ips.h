/*
 * The IP addresses of a host: which of them others may use, in what order they are told, and in what order those of a
 * peer are tried. One list serves the rendezvous, the control plane and tcp. Nothing here opens a socket.
 */
#ifndef COLL_BASE_IPS_H
#define COLL_BASE_IPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ifaddrs;
struct sockaddr;
struct sockaddr_storage;

enum { COLL_IPS_MAX = 128, COLL_INTERFACE_NAME = 16 };

struct coll_ip {
	uint8_t ip6; /* 0: the first four bytes are IPv4 */
	uint8_t loopback;
	uint8_t bridge;    /* made by container tools, often with the same address on every host */
	uint8_t prefix;    /* bits that name a network that others can be in; 0: a bridge, or no carrier now */
	uint8_t bytes[16]; /* in network order */
	char interface[COLL_INTERFACE_NAME]; /* at its own host only */
};

struct coll_ips {
	unsigned count;
	struct coll_ip at[COLL_IPS_MAX];
};

/* "eth0,eth1" admits these, "^docker0" all others, "" all. */
bool coll_ips_admit(const char *setting, const char *interface);
/* False: the setting names interfaces and none of them is there; *why says so, and which there are. */
bool coll_ips_check(const struct ifaddrs *all, const char *setting, char *why, size_t why_bytes);

/* Those that the setting admits: with a carrier, without one (it may come back), bridges, loopback; IPv4 before IPv6.
 * Link-local addresses are left out: they mean nothing without an interface. */
void coll_ips_read(struct coll_ips *l, const struct ifaddrs *all, const char *setting);

/* For the wire; what does not fit is left out. Unpacked they have no names. False: the bytes make no sense. */
size_t coll_ips_pack(const struct coll_ips *l, void *buf, size_t cap);
bool coll_ips_unpack(struct coll_ips *l, const void *buf, size_t len_bytes);

bool coll_ip_same(const struct coll_ip *a, const struct coll_ip *b);
bool coll_ip_same_network(const struct coll_ip *a, const struct coll_ip *b);
/* A mapped IPv4 address becomes one. False: no IP address. */
bool coll_ip_from(struct coll_ip *ip, const struct sockaddr *from);
/* The length of *to. */
unsigned coll_ip_to(const struct coll_ip *ip, uint16_t port, struct sockaddr_storage *to);
/* "10.0.0.1:5000", "[fd00::1]:5000". */
const char *coll_ip_text(const struct coll_ip *ip, uint16_t port, char *buf, size_t cap);

/* When a peer's address is tried: smaller is earlier, -1 never. met: the peer's address over which it met the
 * rendezvous, or NULL; near: both are in one network namespace. Loopback is tried there only, and an address that this
 * host has too elsewhere never. */
enum { COLL_IP_PROVED, COLL_IP_SHARED, COLL_IP_OTHER, COLL_IP_BRIDGE, COLL_IP_TURNS };
int coll_ip_turn(const struct coll_ips *self, const struct coll_ip *peer, const struct coll_ip *met, bool near);
/* Leaves those worth trying, in that order. */
void coll_ips_order(const struct coll_ips *self, struct coll_ips *peer, const struct coll_ip *met, bool near);

#endif
