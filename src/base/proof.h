/*
 * The proof that a peer has the key of the job: a keyed hash over what is said, by whom and to whom, and a nonce of the
 * other side, without which a recorded proof could be played back. It keeps out other jobs and other programs. It
 * encrypts nothing.
 */
#ifndef COLL_BASE_PROOF_H
#define COLL_BASE_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_PROOF_BYTES = 256 };

struct coll_proof_part {
	const void *bytes;
	size_t len_bytes;
};

/* Over the parts as if they lay side by side, COLL_PROOF_BYTES at most. */
uint64_t coll_proof(const uint64_t key[2], const struct coll_proof_part *part, size_t parts);

/* The same: COLL_PROOF(key, COLL_SAID(message), {nonce, 16}). */
#define COLL_SAID(object)                 \
	{                                 \
		&(object), sizeof(object) \
	}
#define COLL_PROOF(key, ...)                                           \
	coll_proof(key, (const struct coll_proof_part[]){__VA_ARGS__}, \
	           sizeof((const struct coll_proof_part[]){__VA_ARGS__}) / sizeof(struct coll_proof_part))

/* Bytes that nobody can foresee, for keys and nonces. False: the kernel refuses them, errno says why, and they only
 * differ from call to call: good enough for a nonce of a connection, not for a key. */
bool coll_random(void *buf, size_t len_bytes);

#endif
