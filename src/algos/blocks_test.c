/*
 * The schedules of blocks.h for all n: what is received is what the peer sends, every rank sends
 * only what it has, and any number of blocks reaches everyone in blocks - 1 + ceil(log2 n) rounds.
 */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "algos/algos.h"
#include "algos/blocks.h"
#include "algos/broadcast_blocks.h"
#include "algos/generators.h"
#include "plan/lower.h"
#include "proof/verify.h"

enum { MOST = 1100 };

static int8_t gets[MOST][COLL_BLOCKS_ROUNDS_MAX], gives[MOST][COLL_BLOCKS_ROUNDS_MAX];

static int schedules(struct coll_blocks_graph *g, int n)
{
	int most = 0;

	coll_blocks_graph(g, n);
	for (int r = 0; r < n; r++) {
		const int asked = coll_blocks_sent(g, r, gives[r]);

		most = asked > most ? asked : most;
		coll_blocks_received(g, r, gets[r]);
	}
	return most;
}

/* In q rounds: one block of its own phase (none at the root), else all of the phase before but that one. */
static void check_received(const struct coll_blocks_graph *g, int r)
{
	uint32_t seen = 0;
	int own = -1;

	for (int k = 0; k < g->q; k++) {
		const int block = gets[r][k] < 0 ? gets[r][k] + g->q : gets[r][k];

		cr_assert(!(seen & 1u << block), "n=%d rank %d gets %d twice", g->n, r, block);
		seen |= 1u << block;
		if (gets[r][k] >= 0) {
			cr_assert_eq(own, -1);
			own = block;
		}
	}
	cr_assert(r == 0 || own >= 0);
}

static void check_sent(const struct coll_blocks_graph *g, int r)
{
	for (int k = 0; k < g->q; k++) {
		const int to = (int)((r + g->skip[k]) % g->n);
		bool has = r == 0 ? gives[r][k] >= 0 : false;
		int own = -1;

		cr_assert(to == 0 || gives[r][k] == gets[to][k], "n=%d rank %d round %d", g->n, r, k);
		for (int j = 0; j < g->q; j++)
			own = gets[r][j] >= 0 ? gets[r][j] : own;
		has = has || gives[r][k] == own - g->q; /* of the phase before */
		for (int j = 0; j < k; j++)
			has = has || gives[r][k] == gets[r][j];
		cr_assert(has, "n=%d rank %d sends what it has not in round %d", g->n, r, k);
	}
}

Test(blocks, schedules_of_all_ranks_agree)
{
	for (int n = 2; n <= MOST; n += n < 300 ? 1 : n < 1000 ? 37 : 3) {
		struct coll_blocks_graph g;

		cr_assert_leq(schedules(&g, n), 4);
		for (int r = 0; r < n; r++) {
			check_received(&g, r);
			check_sent(&g, r);
		}
	}
}

/* Move blocks round by round, as broadcast_blocks.c does. */
static void move(const struct coll_blocks_graph *g, int blocks)
{
	const int first = (g->q - (blocks - 1) % g->q) % g->q;
	static bool has[MOST][70], soon[MOST][70];

	memset(has, 0, sizeof(has));
	memset(has[0], 1, sizeof(has[0]));
	for (int round = first; round < first + blocks - 1 + g->q; round++) {
		memcpy(soon, has, sizeof(has));
		for (int r = 0; r < g->n; r++) {
			const int to = (int)((r + g->skip[round % g->q]) % g->n);
			int block = gives[r][round % g->q] - first + round / g->q * g->q;

			if (block < 0 || to == 0)
				continue;
			block = block < blocks ? block : blocks - 1;
			cr_assert(has[r][block], "n=%d blocks=%d round %d rank %d", g->n, blocks, round, r);
			soon[to][block] = true;
		}
		memcpy(has, soon, sizeof(has));
	}
	for (int r = 0; r < g->n; r++)
		for (int b = 0; b < blocks; b++)
			cr_assert(has[r][b], "n=%d blocks=%d rank %d lacks %d", g->n, blocks, r, b);
}

Test(blocks, any_number_of_blocks_takes_the_fewest_rounds)
{
	for (int n = 2; n <= 130; n++) {
		struct coll_blocks_graph g;

		schedules(&g, n);
		for (int blocks = 1; blocks <= 20; blocks++)
			move(&g, blocks);
		move(&g, 64);
	}
}

/* ---- Plans, for numbers of blocks that no row has ---- */

static int plan_blocks;

static coll_status plan(const struct coll_shape *s, struct coll_builder *b)
{
	return coll_algo_broadcast_in_blocks(s, b, plan_blocks);
}

static void prove(int blocks, int n, int root)
{
	struct coll_plan *plans[2][64];
	char why[256];

	plan_blocks = blocks;
	for (int r = 0; r < n; r++) {
		const struct coll_shape shape = {.kind = COLL_KIND_BROADCAST, .rank = r, .size = n, .root = root};

		cr_assert_eq(coll_build_plan(&shape, "blocks", plan, &plans[0][r]), COLL_OK);
		cr_assert_eq(coll_plan_lower(plans[0][r], &plans[1][r]), COLL_OK);
	}
	for (int fused = 0; fused < 2; fused++) {
		const struct coll_plan *const *these = (const struct coll_plan *const *)plans[fused];
		const struct coll_verify_options opt = {
		        .depth = fused ? 2 : 0, .windows = 2, .in_place = 0x5a5a5a5a5a5a5a5au, .then = these};

		cr_assert_eq(coll_plan_verify(these, n, &opt, why, sizeof(why)), COLL_OK,
		             "blocks=%d n=%d root=%d fused=%d: %s", blocks, n, root, fused, why);
	}
	for (int r = 0; r < n; r++)
		for (int fused = 0; fused < 2; fused++)
			coll_plan_free(plans[fused][r]);
}

Test(blocks, plans_are_proved_for_any_number_of_blocks)
{
	static const int all[] = {1, 2, 3, 5, 12, 64};

	for (int n = 1; n <= 64; n += n < 20 ? 1 : 11)
		for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
			prove(all[i], n, 0);
			prove(all[i], n, n / 2);
		}
}
