/*
 * The seal of the messages that one end of a connection sends: keyed hashes of 128 bits with a running number, under a
 * key that only this connection and this direction have. So nothing can be altered, added, left out or repeated between
 * the ends unnoticed. Nothing is hidden.
 */
#ifndef COLL_BASE_SEAL_H
#define COLL_BASE_SEAL_H

#include "base/proof.h"

/* Zero the number for a new key. */
struct coll_seal {
	struct coll_proof key;
	uint64_t number; /* of the next message */
};

/* Over a message of any length, for the next number. Both ends call it once for each message. */
struct coll_proof coll_seal_next(struct coll_seal *s, const void *message, size_t len_bytes);

#endif
