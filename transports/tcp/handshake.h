/*
 * Handshake messages.
 */
#ifndef COLL_TRANSPORTS_TCP_HANDSHAKE_H
#define COLL_TRANSPORTS_TCP_HANDSHAKE_H

#include "transports/tcp/tcp.h"

/* A message of type from self to peer; other is the other side's nonce (zeros
 * when not known yet). */
void coll_tcp_hello_make(struct coll_tcp_hello *m, const struct tcp_inst *in, enum coll_tcp_hello_type type,
                         const struct coll_process_id *to, const uint64_t nonce[2], const uint64_t other[2]);
void coll_tcp_hello_seal(struct coll_tcp_hello *m, const uint64_t key[2], const uint64_t other[2]);

/* NULL when good, else what is wrong with it. from may be NULL: anybody. */
const char *coll_tcp_hello_check(const struct coll_tcp_hello *m, const struct tcp_inst *in,
                                 enum coll_tcp_hello_type type, const struct coll_process_id *from,
                                 const uint64_t other[2]);

/* The key of one connection, from the job's and the nonces of both ends: for the checks of its frames. It never
 * travels.
 */
struct coll_tcp_key coll_tcp_hello_key(const uint64_t key[2], const uint64_t client[2], const uint64_t server[2]);
/* A name for a link that goes on over other sockets, by the key of the first one, which it does not tell. */
uint64_t coll_tcp_hello_line(const struct coll_tcp_key *key);

/* As it travels, and back: nobody without the key learns who speaks to whom. */
void coll_tcp_hello_mask(struct coll_tcp_hello *m, const uint64_t key[2]);
bool coll_tcp_say(const struct tcp_inst *in, int fd, const struct coll_tcp_hello *m);

/* More of a message; 1: complete, 0: not yet, -1: the other side is gone. */
int coll_tcp_hear(const struct tcp_inst *in, struct tcp_handshake *h);
void coll_tcp_hang_up(struct tcp_handshake *h);

#endif
