/*
 * See paths.h. Windows take turns on the shares of a link, so each share carries the same, and the slowest sets the
 * pace: n shares over a way of rate r carry r / n each, and k shares carry k times the least of these. A way that is
 * faster gets more shares, and one that is too slow to help gets none.
 */
#include "transports/common/paths.h"

#include <string.h>

enum {
	PARTS = 840,         /* the least that 1 to COLL_PATHS_SHARES_MAX divide: rates of shares are whole */
	WORTHWHILE_PC = 103, /* more shares must gain so much, in percent of what fewer carry */
};

bool coll_paths_same_network(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	const unsigned whole = bits / 8, rest = bits % 8;

	return memcmp(a, b, whole) == 0 && (rest == 0 || (a[whole] ^ b[whole]) >> (8 - rest) == 0);
}

/* Each share goes to the way that gives it most: for every number of shares this makes the slowest as fast as it
 * can be (the method of D'Hondt). The way of each share stays when there are more. */
unsigned coll_paths_apportion(const uint32_t *mbps_of, unsigned count, unsigned set,
                              unsigned which[COLL_PATHS_SHARES_MAX], uint32_t *mbps)
{
	const unsigned most = set > 0 ? set : COLL_PATHS_SHARES_MAX;
	unsigned shares_of[COLL_PATHS_MAX] = {0}, shares = most;
	uint64_t rate[COLL_PATHS_SHARES_MAX + 1] = {0}, best = 0;

	for (unsigned k = 1; k <= most; k++) {
		uint64_t each = 0;

		for (unsigned i = 0; i < count; i++) {
			const uint64_t r = (uint64_t)mbps_of[i] * PARTS / (shares_of[i] + 1);

			if (r > each) {
				each = r;
				which[k - 1] = i;
			}
		}
		shares_of[which[k - 1]]++;
		rate[k] = k * each;
		best = rate[k] > best ? rate[k] : best;
	}
	for (unsigned k = most; k > 0 && set == 0; k--)
		if (rate[k] * WORTHWHILE_PC >= best * 100)
			shares = k;
	*mbps = (uint32_t)(rate[shares] / PARTS);
	return shares;
}
