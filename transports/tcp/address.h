/*
 * Addresses.
 */
#ifndef COLL_TRANSPORTS_TCP_ADDRESS_H
#define COLL_TRANSPORTS_TCP_ADDRESS_H

#include "transports/tcp/tcp.h"

/* The addresses of this process that the setting allows ("eth0,eth1", "^docker0",
 * ""). why: one line on failure. */
coll_status coll_tcp_address_local(struct coll_tcp_address *a, const char *interfaces, bool ip6, char *why,
                                   size_t why_bytes);

/* As many candidates as fit in cap; ARGUMENT when none does. */
coll_status coll_tcp_address_encode(const struct coll_tcp_address *a, void *buf, size_t cap, size_t *len_bytes);
bool coll_tcp_address_decode(struct coll_tcp_address *a, const void *buf, size_t len_bytes);

/* Symmetric in a and b. */
bool coll_tcp_address_reachable(const struct coll_tcp_address *a, const struct coll_tcp_address *b, char *why,
                                size_t why_bytes);

/* Reduce peer to the candidates worth trying from self, best first. */
void coll_tcp_address_order(const struct coll_tcp_address *self, struct coll_tcp_address *peer);
socklen_t coll_tcp_candidate_sockaddr(const struct coll_tcp_candidate *c, struct sockaddr_storage *sa);
const char *coll_tcp_candidate_text(const struct coll_tcp_candidate *c, char *buf, size_t cap);

/* Those of self and peer, as many as fit in TCP_RAILS_MAX; the same in the same order, turned round,
 * at the peer. */
unsigned coll_tcp_address_pairs(const struct coll_tcp_address *self, const struct coll_tcp_address *peer,
                                struct coll_tcp_pair pair[TCP_RAILS_MAX]);

#endif
