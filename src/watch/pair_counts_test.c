/*
 * Pair counts: the lengths of the last few calls are found by number and rank, older ones are not.
 */
#include "core/comm.h"
#include "tests/plain.h"
#include "watch/pair_counts.h"

enum { SIZE = 3, ME = 1 };

static const size_t to[SIZE] = {10, 11, 12}, from[SIZE] = {20, 11, 22};

static struct coll_call all_to_all(void)
{
	return (struct coll_call){.kind = COLL_KIND_ALL_TO_ALL, .in_counts = to, .out_counts = from, .pairwise = true};
}

static bool found(const struct coll_pair_counts *t, uint64_t number, int rank, uint64_t sends, uint64_t expects)
{
	uint64_t a = 0, b = 0;

	return coll_pair_counts_find(t, number, rank, &a, &b) && a == sends && b == expects;
}

static bool kept(const struct coll_pair_counts *t, uint64_t number)
{
	uint64_t a, b;

	return coll_pair_counts_find(t, number, 0, &a, &b);
}

TEST(pair_counts, each_length_is_found_by_number_and_rank)
{
	const struct coll_call call = all_to_all();
	struct coll_pair_counts t = {.next = 0};

	coll_pair_counts_note(&t, &call, 5, ME, SIZE);
	CHECK(found(&t, 5, 0, 10, 20));
	CHECK(found(&t, 5, 2, 12, 22));
	CHECK(found(&t, 5, ME, 11, 11));
	CHECK(!kept(&t, 4));
	coll_pair_counts_free(&t);
}

TEST(pair_counts, nothing_is_found_of_nobody_or_before_the_first_call)
{
	const struct coll_call call = all_to_all();
	struct coll_pair_counts t = {.next = 0};
	uint64_t a, b;

	CHECK(!kept(&t, 5));
	coll_pair_counts_note(&t, &call, 5, ME, SIZE);
	CHECK(!kept(&t, 0), "empty sheets have number 0");
	CHECK(!coll_pair_counts_find(&t, 5, -1, &a, &b));
	CHECK(!coll_pair_counts_find(&t, 5, SIZE, &a, &b));
	coll_pair_counts_free(&t);
}

TEST(pair_counts, the_oldest_call_is_overwritten)
{
	const struct coll_call call = all_to_all();
	struct coll_pair_counts t = {.next = 0};

	for (uint64_t n = 1; n <= COLL_PAIR_COUNTS_CALLS + 1; n++)
		coll_pair_counts_note(&t, &call, n, ME, SIZE);
	CHECK(!kept(&t, 1));
	for (uint64_t n = 2; n <= COLL_PAIR_COUNTS_CALLS + 1; n++)
		CHECK(kept(&t, n), "call %d", (int)n);
	coll_pair_counts_free(&t);
}

TEST(pair_counts, rooted_calls_move_nothing_but_to_or_from_the_root)
{
	const struct coll_call gather = {.kind = COLL_KIND_GATHER, .in_counts = from, .root = 2, .pairwise = true};
	const struct coll_call scatter = {.kind = COLL_KIND_SCATTER, .in_counts = to, .root = ME, .pairwise = true};
	struct coll_pair_counts t = {.next = 0};

	coll_pair_counts_note(&t, &gather, 1, ME, SIZE);
	coll_pair_counts_note(&t, &scatter, 2, ME, SIZE);
	CHECK(found(&t, 1, 2, from[ME], 0), "a member sends its block to the root");
	CHECK(found(&t, 1, 0, 0, 0));
	CHECK(found(&t, 2, 0, to[0], 0), "the root sends to each");
	coll_pair_counts_free(&t);
}

/* Three ranks of which each sends what the next one expects, but that rank `odd` expects `odd_from` from rank 0. */
static void sums_of(int odd, size_t odd_from, uint64_t sums[COLL_PAIR_SUMS])
{
	memset(sums, 0, COLL_PAIR_SUMS * sizeof(sums[0]));
	for (int rank = 0; rank < SIZE; rank++) {
		size_t sends[SIZE], expects[SIZE];
		struct coll_pair_counts t = {.next = 0};
		struct coll_call c = all_to_all();
		uint64_t mine[COLL_PAIR_SUMS];

		for (size_t r = 0; r < SIZE; r++) {
			sends[r] = 10 * (size_t)rank + r;
			expects[r] = 10 * r + (size_t)rank;
		}
		if (rank == odd)
			expects[0] = odd_from;
		c.in_counts = sends;
		c.out_counts = expects;
		for (uint64_t number = 7; number < 9; number++) {
			coll_pair_counts_note(&t, &c, number, rank, SIZE);
			expects[0] = 10 * 0 + (size_t)rank; /* only one of its calls differs */
		}
		coll_pair_counts_sums(&t, mine);
		coll_pair_counts_free(&t);
		for (int i = 0; i < COLL_PAIR_SUMS; i++)
			sums[i] += mine[i];
	}
}

TEST(pair_counts, the_sums_of_all_ranks_show_who_differs_in_which_call)
{
	uint64_t sums[COLL_PAIR_SUMS], call;
	int64_t elements;
	int a, b;

	sums_of(-1, 0, sums);
	CHECK(!coll_pair_counts_differ(sums, SIZE, &a, &b, &call, &elements));
	sums_of(2, 0, sums);
	CHECK(coll_pair_counts_differ(sums, SIZE, &a, &b, &call, &elements));
	CHECK(a == 0 && b == 2 && call == 7 && elements == 2, "%d to %d in %d: %d", a, b, (int)call, (int)elements);
	sums_of(2, 100, sums);
	CHECK(coll_pair_counts_differ(sums, SIZE, &a, &b, &call, &elements));
	CHECK(a == 0 && b == 2 && call == 7 && elements == -98, "%d to %d in %d: %d", a, b, (int)call, (int)elements);
	sums[COLL_PAIR_SUM_HASH]++;
	CHECK(coll_pair_counts_differ(sums, SIZE, &a, &b, &call, &elements) && call == 0, "several differ");
	sums[COLL_PAIR_SUM_UNNOTED]++;
	CHECK(!coll_pair_counts_differ(sums, SIZE, &a, &b, &call, &elements), "a rank has not noted all");
}
