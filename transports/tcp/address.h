/*
 * Addresses.
 */
#ifndef COLL_TRANSPORTS_TCP_ADDRESS_H
#define COLL_TRANSPORTS_TCP_ADDRESS_H

#include "base/link_rates.h"
#include "transports/tcp/tcp.h"

/* What a process may announce. */
struct coll_tcp_allowed {
	const char *interfaces; /* "eth0,eth1", "^docker0", "" */
	bool ip6;
	bool loopback;                                   /* one address of loopback is enough */
	struct coll_link_rate rate[COLL_LINK_RATES_MAX]; /* instead of what the system says */
	int rates;
	const struct coll_transport_env *env; /* whom to ask about interfaces; NULL: nobody */
};

/* The addresses of this process that are allowed and can be used now. why: one line on failure. */
coll_status coll_tcp_address_local(struct coll_tcp_address *a, const struct coll_tcp_allowed *allowed, char *why,
                                   size_t why_bytes);

/* To listen at. */
void coll_tcp_address_ips(const struct coll_tcp_address *a, struct coll_ips *ips);
/* There this process listens. An error: no candidate is left without IPv6. */
coll_status coll_tcp_address_listens(struct coll_tcp_address *a, uint16_t port, bool ip6);

/* As many candidates as fit in cap; ARGUMENT when none does. */
coll_status coll_tcp_address_encode(const struct coll_tcp_address *a, void *buf, size_t cap, size_t *len_bytes);
/* b gets another name of a network namespace where it is a copy of a's machine. */
void coll_tcp_address_apart(const struct coll_transport_env *env, const struct coll_tcp_address *a,
                            struct coll_tcp_address *b);
/* What was announced may lack names of interfaces: give a its own, if it is of this process. */
void coll_tcp_address_names(struct coll_tcp_address *a, const struct coll_tcp_address *self);
/* Leave only what encode had room for. */
void coll_tcp_address_reduce(struct coll_tcp_address *a, const void *buf, size_t len_bytes);
bool coll_tcp_address_decode(struct coll_tcp_address *a, const void *buf, size_t len_bytes);

/* Symmetric in a and b. */
bool coll_tcp_address_reachable(const struct coll_tcp_address *a, const struct coll_tcp_address *b, char *why,
                                size_t why_bytes);

/* Reduce peer to the candidates worth trying from self, best first. met: where it has met the others, or NULL. */
void coll_tcp_address_order(const struct coll_tcp_address *self, struct coll_tcp_address *peer,
                            const struct coll_ip *met);
socklen_t coll_tcp_candidate_sockaddr(const struct coll_tcp_candidate *c, struct sockaddr_storage *sa);
bool coll_tcp_candidate_same_ip(const struct coll_tcp_candidate *a, const struct coll_tcp_candidate *b);
/* Our end of a connected socket. */
bool coll_tcp_candidate_of(int fd, struct coll_tcp_candidate *c);
/* The two ends of a connected socket, and our interface if it is one of ours: "eth1, 10.0.1.1 to 10.0.1.2". */
void coll_tcp_address_where(const struct coll_tcp_address *self, int fd, char *buf, size_t cap);
/* The rate of our interface that a connected socket uses, as the system says; 0: unknown. */
uint32_t coll_tcp_address_mbps(const struct coll_tcp_address *self, int fd);
const char *coll_tcp_candidate_text(const struct coll_tcp_candidate *c, char *buf, size_t cap);

#endif
