/*
 * The verifier over every algorithm, as far as a test may take: all ranks up to
 * 20, and 23, 32, 61; the whole sweep is `coll-plan verify --all`. Also that the
 * text form goes there and back for all these plans, and what plans promise about
 * themselves in numbers.
 */
#include <stdlib.h>

#include "proof/verify.h"
#include "tests/plain.h"
#include "tools/common/count.h"
#include "tools/common/print.h"
#include "tools/plan_set.h"

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 23, 32, 61};
enum { NSIZES = sizeof(sizes) / sizeof(sizes[0]) };

typedef void set_fn(const struct plan_set *set);

/* Every algorithm, size, variant and (few) roots. */
static void for_each_set(set_fn *fn, int largest)
{
	for (size_t a = 0; a < coll_algos_count; a++)
		for (int i = 0; i < NSIZES && sizes[i] <= largest; i++)
			for (int v = 0; v < 2 * PLAN_LENGTHS_COUNT; v++) {
				int n = sizes[i], root = plan_kind_has_root(coll_algos[a].kind) ? (n + v) / 2 % n : 0;
				bool ordered = v >= PLAN_LENGTHS_COUNT;
				enum plan_lengths lengths = (enum plan_lengths)(v % PLAN_LENGTHS_COUNT);
				struct plan_set set;
				char why[256] = "";

				if (!plan_set_serves(&coll_algos[a], n, ordered, lengths))
					continue;
				REQUIRE(plan_set_build(&set, &coll_algos[a], n, root, ordered, lengths, why,
				                       sizeof(why)) == COLL_OK,
				        "%s %s n=%d: %s", coll_plan_kind_name(coll_algos[a].kind), coll_algos[a].name,
				        n, why);
				fn(&set);
				plan_set_free(&set);
			}
}

static void prove(const struct plan_set *set)
{
	char why[256] = "";

	for (int fused = 0; fused < 2; fused++)
		CHECK(plan_set_verify(set, fused, why, sizeof(why)) == COLL_OK, "%s %s n=%d root=%d %s: %s",
		      coll_plan_kind_name(set->algo->kind), set->algo->name, set->size, set->root,
		      fused ? "fused" : "logical", why);
}

TEST(plans, every_algorithm_is_proved)
{
	for_each_set(prove, 61);
}

/* One collective, then another: a rank enters the second while others are in the
 * first, on the same channels. Different numbers of windows and slots. */
static void prove_in_a_row(struct plan_set *sets, int count, int n, int i)
{
	for (int j = 0; j < count; j++)
		for (int fused = 0; fused < 2; fused++) {
			struct coll_verify_options opt = {.depth = fused ? 2 + (uint32_t)j % 2 : 0,
			                                  .windows = 1 + (uint32_t)(i + j) % 3,
			                                  .uniform = true,
			                                  .in_place = 0x9c9c9c9c9c9c9c9cu,
			                                  .then = plan_set_plans(&sets[j], fused)};
			char why[256] = "";

			CHECK(coll_plan_verify(plan_set_plans(&sets[i], fused), n, &opt, why, sizeof(why)) == COLL_OK,
			      "%s %s then %s %s n=%d %s: %s", coll_plan_kind_name(sets[i].algo->kind),
			      sets[i].algo->name, coll_plan_kind_name(sets[j].algo->kind), sets[j].algo->name, n,
			      fused ? "fused" : "logical", why);
		}
}

TEST(plans, every_algorithm_is_proved_before_every_other)
{
	enum { ROWS_MAX = 64 };
	struct plan_set sets[ROWS_MAX];
	char why[256] = "";

	REQUIRE(coll_algos_count <= ROWS_MAX);
	for (int n = 2; n <= 9; n += n == 3 ? 2 : n == 5 ? 4 : 1) {
		int count = 0;

		for (size_t a = 0; a < coll_algos_count; a++) {
			int root = plan_kind_has_root(coll_algos[a].kind) ? (int)a % n : 0;

			if (plan_set_serves(&coll_algos[a], n, false, PLAN_UNIFORM))
				REQUIRE(plan_set_build(&sets[count++], &coll_algos[a], n, root, false, PLAN_UNIFORM,
				                       why, sizeof(why)) == COLL_OK,
				        "%s", why);
		}
		for (int i = 0; i < count; i++)
			prove_in_a_row(sets, count, n, i);
		while (count > 0)
			plan_set_free(&sets[--count]);
	}
}

/* The text has as many lines as the plan has to say, and the length that was announced. */
static void print_one(const struct coll_plan *plan)
{
	const size_t len = coll_plan_print(plan, NULL, 0);
	char *text = malloc(len + 1);
	uint32_t lines = 0;

	REQUIRE(text);
	CHECK(coll_plan_print(plan, text, len + 1) == len && strlen(text) == len);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	CHECK(lines == 1 + plan->nscratch + (plan->block_at != NULL) + plan->nlanes + coll_plan_nsteps(plan),
	      "%s rank %d: %u lines", plan->algo, plan->rank, lines);
	free(text);
}

static void print_all(const struct plan_set *set)
{
	for (int r = 0; r < set->size; r++) {
		print_one(set->logical[r]);
		print_one(set->fused[r]);
	}
}

TEST(plans, each_step_is_a_line_of_text)
{
	for_each_set(print_all, 20);
}

static void count(const struct plan_set *set)
{
	uint64_t sent[2] = {0, 0}, received[2] = {0, 0};
	uint32_t frames[2] = {0, 0};

	for (int fused = 0; fused < 2; fused++)
		for (int r = 0; r < set->size; r++) {
			struct coll_plan_counts c;

			coll_plan_count(plan_set_plans(set, fused)[r], &c);
			sent[fused] += c.sent_chunks;
			received[fused] += c.received_chunks;
			frames[fused] += c.sends;
		}
	CHECK(sent[0] == received[0] && sent[1] == received[1]);
	CHECK(sent[0] == sent[1] && frames[0] == frames[1], "lowering changed what travels: %s", set->algo->name);
}

TEST(plans, lowering_changes_nothing_that_travels)
{
	for_each_set(count, 20);
}

static void check_counts(enum coll_kind kind, const char *name, int n, uint32_t rounds, uint64_t sent_chunks)
{
	struct plan_set set;
	uint64_t most = 0;
	uint32_t found = 0;
	char why[256] = "";

	REQUIRE(plan_set_build(&set, coll_algo_find(kind, name), n, 0, false, PLAN_UNIFORM, why, sizeof(why)) ==
	                COLL_OK,
	        "%s", why);
	CHECK(coll_plan_rounds(plan_set_plans(&set, false), n, &found) == COLL_OK && found == rounds,
	      "%s n=%d: %u rounds, not %u", name, n, found, rounds);
	CHECK(coll_plan_rounds(plan_set_plans(&set, true), n, &found) == COLL_OK && found == rounds,
	      "%s n=%d fused: %u rounds, not %u", name, n, found, rounds);
	for (int r = 0; r < n; r++) {
		struct coll_plan_counts c;

		coll_plan_count(set.logical[r], &c);
		most = c.sent_chunks > most ? c.sent_chunks : most;
	}
	CHECK(most == sent_chunks, "%s n=%d: %llu chunks sent, not %llu", name, n, (unsigned long long)most,
	      (unsigned long long)sent_chunks);
	plan_set_free(&set);
}

/* Numbers from the papers: a ring is volume-optimal in 2(n-1) rounds, circulant
 * all-reduce in 2 ceil(log2 n); one-shot takes one round of n-1 vectors. */
TEST(plans, rounds_and_volumes_are_those_of_the_papers)
{
	check_counts(COLL_KIND_ALL_REDUCE, "ring", 7, 12, 12);
	check_counts(COLL_KIND_ALL_REDUCE, "circulant", 7, 6, 12);
	check_counts(COLL_KIND_ALL_REDUCE, "circulant", 16, 8, 30);
	check_counts(COLL_KIND_ALL_REDUCE, "oneshot", 6, 1, 5);
	check_counts(COLL_KIND_ALL_REDUCE, "twoshot", 6, 2, 10);
	check_counts(COLL_KIND_ALL_GATHER, "ring", 9, 8, 8);
	check_counts(COLL_KIND_ALL_GATHER, "circulant", 9, 4, 8);
	check_counts(COLL_KIND_ALL_TO_ALL, "bruck", 8, 3, 12);
	check_counts(COLL_KIND_BROADCAST, "binomial", 16, 4, 4);
	check_counts(COLL_KIND_BARRIER, "dissemination", 9, 4, 4);
}
