/*
 * The proof that a peer has the key of the job: a keyed hash of 128 bits over what is said, by whom and to whom, and a
 * nonce of the other side, without which a recorded proof could be played back. It keeps out other jobs and other
 * programs. It encrypts nothing. Keys of single links are derived from the job's in the same way.
 *
 * Random bytes come from the kernel or not at all: nothing here falls back to what others could foresee.
 */
#ifndef COLL_BASE_PROOF_H
#define COLL_BASE_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_PROOF_BYTES = 512 };

struct coll_proof {
	uint64_t word[2];
};

struct coll_proof_part {
	const void *bytes;
	size_t len_bytes;
};

/* Over the parts as if they lay side by side, COLL_PROOF_BYTES at most. */
struct coll_proof coll_proof(const uint64_t key[2], const struct coll_proof_part *part, size_t parts);

/* The same: COLL_PROOF(key, COLL_SAID(message), {nonce, 16}). */
#define COLL_SAID(object)                 \
	{                                 \
		&(object), sizeof(object) \
	}
#define COLL_PROOF(key, ...)                                           \
	coll_proof(key, (const struct coll_proof_part[]){__VA_ARGS__}, \
	           sizeof((const struct coll_proof_part[]){__VA_ARGS__}) / sizeof(struct coll_proof_part))

/* Takes the same time wherever they differ, so that nobody finds a proof word by word. */
bool coll_proof_same(const struct coll_proof *a, const struct coll_proof *b);

/* Bytes that nobody can foresee, for keys and nonces. False: the kernel refuses them, and errno says why; EAGAIN on a
 * machine that has just started and has none yet, for which nobody waits here. */
bool coll_random(void *buf, size_t len_bytes) __attribute__((warn_unused_result));

/* Nonces of one owner, from random bytes that it drew when it began: later no system call can fail. */
struct coll_nonces {
	uint64_t key[2];
	_Atomic uint64_t count;
};

/* Never the same twice, foreseen by nobody. Any thread. */
void coll_nonce(struct coll_nonces *from, uint64_t nonce[2]);

#endif
