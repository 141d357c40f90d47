/*
 * The proof of the job's key: see proof.h. Pure but for the kernel's random numbers and the clock.
 */
#include "base/proof.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/siphash.h"

struct coll_proof coll_proof(const uint64_t key[2], const struct coll_proof_part *part, size_t parts)
{
	unsigned char text[COLL_PROOF_BYTES];
	struct coll_proof proof;
	size_t n = 0;

	for (size_t i = 0; i < parts; i++) {
		assert(part[i].len_bytes <= sizeof(text) - n);
		memcpy(text + n, part[i].bytes, part[i].len_bytes);
		n += part[i].len_bytes;
	}
	coll_siphash24_wide(key, text, n, proof.word);
	return proof;
}

bool coll_proof_same(const struct coll_proof *a, const struct coll_proof *b)
{
	return ((a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1])) == 0;
}

bool coll_random(void *buf, size_t len_bytes)
{
	unsigned char *p = buf;

	while (len_bytes > 0) {
		const ssize_t n = getrandom(p, len_bytes, GRND_NONBLOCK);

		if (n < 0 && errno != EINTR)
			return false;
		if (n > 0)
			p += n, len_bytes -= (size_t)n;
	}
	return true;
}

/* The number keeps them apart; the time does so in a process that was restored from an image of itself. */
void coll_nonce(struct coll_nonces *from, uint64_t nonce[2])
{
	const uint64_t at[2] = {atomic_fetch_add_explicit(&from->count, 1, memory_order_relaxed), coll_clock_ns()};

	coll_siphash24_wide(from->key, at, sizeof(at), nonce);
}
