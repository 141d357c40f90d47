/*
 * The proof of the job's key: see proof.h. Pure but for the kernel's random numbers.
 */
#include "base/proof.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/siphash.h"

uint64_t coll_proof(const uint64_t key[2], const struct coll_proof_part *part, size_t parts)
{
	unsigned char text[COLL_PROOF_BYTES];
	size_t n = 0;

	for (size_t i = 0; i < parts; i++) {
		assert(part[i].len_bytes <= sizeof(text) - n);
		memcpy(text + n, part[i].bytes, part[i].len_bytes);
		n += part[i].len_bytes;
	}
	return coll_siphash24(key, text, n);
}

void coll_random(void *buf, size_t len_bytes)
{
	unsigned char *p = buf;

	while (len_bytes > 0) {
		const ssize_t n = getrandom(p, len_bytes, 0);

		if (n < 0 && errno != EINTR)
			abort(); /* no kernel that this library runs on lacks it */
		if (n > 0)
			p += n, len_bytes -= (size_t)n;
	}
}
