/*
 * The handshake of a control link: what each end says, and whether it believes the other.
 *
 *   CHALLENGE  accepting end: nonce, proof that it is the process that was meant
 *   HELLO      connecting end: rank, nonce, proof
 *   WELCOME    accepting end: proof
 *
 * Nobody tells who it is: ids are in the peer infos, by rank, and in the proofs.
 */
#ifndef COLL_CONTROL_HANDSHAKE_H
#define COLL_CONTROL_HANDSHAKE_H

#include "control/state.h"

void coll_handshake_challenge(struct coll_control *c, struct coll_control_link *l, struct coll_hello *say);

/* The other end's message, and what to say to it. False: it is none of this job, or out of order. From then on what is
 * said on the link carries checks. welcome finds l->peer. */
bool coll_handshake_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *challenge,
                          struct coll_hello *say);
bool coll_handshake_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *hello,
                            struct coll_hello *say);
bool coll_handshake_done(const struct coll_control_link *l, const struct coll_hello *welcome);

#endif
