/*
 * See paths.h.
 */
#include "transports/common/paths.h"

#include <string.h>

#include "base/hash.h"

/* A link alone has eight shares at most (topology/spread.h), so a way that is slower than an eighth of another one
 * would carry nothing of it; but its end would be that of the link. */
enum { SLOWEST = 8 };

bool coll_paths_same_network(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	const unsigned whole = bits / 8, rest = bits % 8;

	return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

uint32_t coll_paths_network(const uint8_t *ip, unsigned bits, uint32_t kind)
{
	uint8_t network[17] = {0};

	memcpy(network, ip, (bits + 7) / 8);
	if (bits % 8)
		network[bits / 8] &= (uint8_t)(0xff << (8 - bits % 8));
	network[16] = (uint8_t)bits;
	return (uint32_t)coll_hash_bytes(kind, network, sizeof(network)) | 1;
}

unsigned coll_paths_worthwhile(const uint32_t *mbps_of, unsigned count, unsigned most, unsigned *which)
{
	uint32_t best = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < count; i++)
		best = mbps_of[i] > best ? mbps_of[i] : best;
	for (unsigned i = 0; i < count && n < most; i++)
		if (mbps_of[i] > 0 && (uint64_t)mbps_of[i] * SLOWEST >= best)
			which[n++] = i;
	return n;
}

/* Each goes to the way that gives it most: for every number of connections this makes the slowest as fast as it can be
 * (the method of D'Hondt). */
void coll_paths_apportion(const uint32_t *mbps_of, unsigned count, unsigned connections, unsigned *which)
{
	unsigned given[COLL_PATHS_MAX] = {0};

	for (unsigned k = 0; k < connections; k++) {
		unsigned best = 0;

		for (unsigned i = 1; i < count; i++)
			if ((uint64_t)mbps_of[i] * (given[best] + 1) > (uint64_t)mbps_of[best] * (given[i] + 1))
				best = i;
		given[best]++;
		which[k] = best;
	}
}
