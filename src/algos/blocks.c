/*
 * The schedules of blocks.h. Pure arithmetic; what it promises is tested for all n up to 1025 in
 * blocks_test.c, which also moves blocks by them.
 */
#include "algos/blocks.h"

#include <assert.h>
#include <stdbool.h>

void coll_blocks_graph(struct coll_blocks_graph *g, int n)
{
	int q = 0;

	assert(n >= 2);
	while (((int64_t)1 << q) < n)
		q++;
	*g = (struct coll_blocks_graph){.n = n, .q = q};
	g->skip[q] = n;
	for (int k = q; k > 0; k--)
		g->skip[k - 1] = (g->skip[k] + 1) / 2;
}

/* q at the root. */
static int base_block(const struct coll_blocks_graph *g, int r)
{
	int64_t left = r;
	int k = g->q;

	while (left > 0) {
		k--;
		if (left >= g->skip[k])
			left -= g->skip[k];
	}
	return k;
}

/*
 * The search walks ways of decreasing skips, larger ones first, to a place in (low, high]. These are the
 * ranks that reach r by skips below skip[k] after round k - 1. r and the place are shifted by n, so that
 * nothing wraps. A place of round k is before that of round k - 1 (without this, ways to one place by different skips
 * would give r two blocks of one rank). The lower end itself is taken when no smaller skip is left.
 */
void coll_blocks_received(const struct coll_blocks_graph *g, int r, int8_t block[COLL_BLOCKS_ROUNDS_MAX])
{
	const int base = base_block(g, r);
	uint32_t unused = ((2u << g->q) - 1) & ~(1u << base); /* skips whose ranks' base blocks r has not got yet */
	int way[COLL_BLOCKS_ROUNDS_MAX + 1], steps = 0, last = g->q;
	int64_t at = g->n, before = INT64_MAX;

	way[steps++] = last;
	for (int k = 0; k < g->q;) {
		const int64_t high = (int64_t)r + g->n - g->skip[k], low = (int64_t)r + g->n - g->skip[k + 1];
		const uint32_t smaller = unused & ((1u << last) - 1);

		if (at > high || at >= before) {
			assert(steps > 0);
			at -= g->skip[way[--steps]];
		} else if (at < low || (at == low && smaller)) {
			assert(smaller);
			last = 31 - __builtin_clz(smaller);
			way[steps++] = last;
			at += g->skip[last];
		} else {
			assert(steps > 0);
			last = way[--steps];
			before = at;
			at -= g->skip[last];
			unused &= ~(1u << last);
			block[k++] = (int8_t)(last == g->q ? base : last - g->q);
		}
	}
}

/*
 * From the largest skip down, v is r within the part of the ranks, e long, that r lies in: each
 * round cuts it in two. A rank of the upper part sends on what the part's first rank gave, one of the lower
 * part what it has from larger rounds, its base block at first, when the peer exists.
 */
int coll_blocks_sent(const struct coll_blocks_graph *g, int r, int8_t block[COLL_BLOCKS_ROUNDS_MAX])
{
	const int base = base_block(g, r);
	int8_t peer[COLL_BLOCKS_ROUNDS_MAX];
	int64_t v = r, e = g->n;
	int sent = base, asked = 0;

	for (int k = 0; r == 0 && k < g->q; k++)
		block[k] = (int8_t)k;
	if (r == 0)
		return 0;
	block[0] = (int8_t)(base - g->q);
	for (int k = g->q - 1; k > 0; k--) {
		const int64_t skip = g->skip[k];
		const bool upper = v >= skip;

		if (upper)
			sent = k - g->q;
		block[k] = (int8_t)sent;
		if (upper ? v == skip : v + skip >= e) {
			coll_blocks_received(g, (int)((r + skip) % g->n), peer);
			block[k] = peer[k];
			asked++;
		}
		if (upper) {
			v -= skip;
			e -= skip;
		} else if (e > skip) {
			e = skip;
		}
	}
	return asked;
}
