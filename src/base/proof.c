/*
 * The proof of the job's key: see proof.h. Pure but for the kernel's random numbers.
 */
#include "base/proof.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
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

/* Differs from call to call and from thread to thread, and may be foreseen. */
static void fill_with_time(unsigned char *p, size_t len_bytes)
{
	uint64_t seed[4] = {0, (uint64_t)getpid(), (uint64_t)(uintptr_t)seed, 0};

	for (size_t n; len_bytes > 0; p += n, len_bytes -= n) {
		uint64_t word;

		seed[0] = coll_clock_ns();
		seed[3]++;
		word = coll_siphash24(seed, seed, sizeof(seed));
		n = len_bytes < sizeof(word) ? len_bytes : sizeof(word);
		memcpy(p, &word, n);
	}
}

bool coll_random(void *buf, size_t len_bytes)
{
	unsigned char *p = buf;

	while (len_bytes > 0) {
		const ssize_t n = getrandom(p, len_bytes, 0);

		if (n < 0 && errno != EINTR) {
			fill_with_time(p, len_bytes);
			return false;
		}
		if (n > 0)
			p += n, len_bytes -= (size_t)n;
	}
	return true;
}
