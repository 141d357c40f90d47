/*
 * What makes a control link genuine: in the handshake both ends prove the session key; behind it each message carries a
 * seal (base/seal.h) under a key that is made of the same words.
 */
#ifndef COLL_CONTROL_SEAL_H
#define COLL_CONTROL_SEAL_H

#include "base/proof.h"
#include "base/seal.h"
#include "transport/transport.h"

/* What both ends know of a handshake, and its proofs are over; what is not known yet is 0. */
struct coll_link_ends {
	struct coll_process_id connects, accepts;
	uint64_t asked[2];    /* nonce of the accepting end, which speaks first */
	uint64_t answered[2]; /* of the connecting end */
	uint64_t size;        /* of the job */
};

enum coll_link_role {
	COLL_LINK_CHALLENGES =
	        1, /* the accepting end, before it knows who connects: it is the process that was meant */
	COLL_LINK_CONNECTS,
	COLL_LINK_ACCEPTS,
	COLL_LINK_SENDS_UP,  /* keys, not proofs: of what the connecting end says, */
	COLL_LINK_SENDS_DOWN /* and of what the accepting end says */
};

struct coll_proof coll_link_proof(const uint64_t key[2], enum coll_link_role role, const struct coll_link_ends *ends);

void coll_link_seal_begin(struct coll_seal *s, const uint64_t key[2], enum coll_link_role sends,
                          const struct coll_link_ends *ends);

#endif
