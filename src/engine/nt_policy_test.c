/*
 * Stores, told the times of machines: each class of calls ends with the quicker way, whatever was assumed,
 * looks at the other one less and less, and finds out when that has become the quicker.
 */
#include <criterion/criterion.h>

#include "engine/nt_policy.h"

enum { MIB = 1 << 20 };

static const struct coll_nt_rule rule = {
        .least_bytes = 2 * MIB, .assume_bytes = 4 * MIB, .reported_bytes = 130 * MIB, .gain = 1.05};

/* Rates in bytes per ns. */
struct machine {
	double cached, streamed;
};
static const struct machine small = {6, 9}, large = {12, 6}, equal = {8, 8.2};

/* One call on a machine; whether it streamed. */
static bool call(struct coll_nt *s, const struct machine *m, enum coll_nt_pass pass, size_t bytes)
{
	const struct coll_nt_choice choice = coll_nt_choose(s, pass, bytes);

	if (choice.timed)
		coll_nt_took(s, pass, bytes, choice.stream,
		             (uint64_t)((double)bytes / (choice.stream ? m->streamed : m->cached)));
	return choice.stream;
}

static int streamed_of(struct coll_nt *s, const struct machine *m, size_t bytes, int calls)
{
	int n = 0;

	for (int i = 0; i < calls; i++)
		n += call(s, m, COLL_NT_SPREAD, bytes);
	return n;
}

Test(nt, what_fits_a_core_or_exceeds_all_caches_is_not_looked_at)
{
	struct coll_nt s;

	coll_nt_init(&s, rule);
	cr_expect_eq(streamed_of(&s, &small, 2 * MIB - 64, 1000), 0);
	cr_expect_eq(streamed_of(&s, &large, 260 * MIB, 1000), 1000);
}

Test(nt, the_quicker_way_stays_whatever_was_assumed)
{
	const size_t sizes[] = {2 * MIB, 4 * MIB, 64 * MIB};

	for (int i = 0; i < 3; i++) {
		struct coll_nt s;

		coll_nt_init(&s, rule);
		streamed_of(&s, &small, sizes[i], 9);
		cr_expect_eq(streamed_of(&s, &small, sizes[i], 16), 16, "%zu", sizes[i]);
		coll_nt_init(&s, rule);
		streamed_of(&s, &large, sizes[i], 9);
		cr_expect_eq(streamed_of(&s, &large, sizes[i], 16), 0, "%zu", sizes[i]);
	}
}

Test(nt, the_first_calls_are_as_assumed)
{
	struct coll_nt s;

	coll_nt_init(&s, rule);
	cr_expect_eq(streamed_of(&s, &equal, 3 * MIB, 5), 0);
	cr_expect_eq(streamed_of(&s, &equal, 4 * MIB, 5), 5);
}

Test(nt, little_is_gained_by_turning_and_looks_become_rare)
{
	struct coll_nt s;
	int late;

	coll_nt_init(&s, rule);
	cr_expect_leq(streamed_of(&s, &equal, 3 * MIB, 100), 3 * 4);
	streamed_of(&s, &equal, 3 * MIB, 3000);
	late = streamed_of(&s, &equal, 3 * MIB, 20000);
	cr_expect_gt(late, 0, "but always again");
	cr_expect_leq(late, 20000 / 1024 * 4 + 4);
}

Test(nt, a_machine_that_changes_is_found_out)
{
	struct coll_nt s;

	coll_nt_init(&s, rule);
	streamed_of(&s, &large, 8 * MIB, 3000);
	streamed_of(&s, &small, 8 * MIB, 2048);
	cr_expect_eq(streamed_of(&s, &small, 8 * MIB, 16), 16);
}

Test(nt, passes_and_sizes_are_judged_apart)
{
	struct coll_nt s;

	coll_nt_init(&s, rule);
	for (int i = 0; i < 9; i++) {
		call(&s, &small, COLL_NT_SPREAD, 32 * MIB);
		call(&s, &large, COLL_NT_COPY, 32 * MIB);
		call(&s, &large, COLL_NT_SPREAD, 8 * MIB);
	}
	for (int i = 0; i < 16; i++) {
		cr_expect(call(&s, &small, COLL_NT_SPREAD, 32 * MIB));
		cr_expect_not(call(&s, &large, COLL_NT_COPY, 32 * MIB));
		cr_expect_not(call(&s, &large, COLL_NT_SPREAD, 8 * MIB));
	}
}

Test(nt, one_call_that_was_interrupted_decides_nothing)
{
	struct coll_nt s;
	const struct machine interrupted = {12, 0.01};

	coll_nt_init(&s, rule);
	/* One fresh, four streamed as assumed. */
	for (int i = 0; i < 9; i++)
		call(&s, i == 3 ? &interrupted : &small, COLL_NT_SPREAD, 8 * MIB);
	cr_expect_eq(streamed_of(&s, &small, 8 * MIB, 16), 16);
}

Test(nt, calls_that_overlap_are_told_late)
{
	struct coll_nt s;
	struct coll_nt_choice choice;

	coll_nt_init(&s, rule);
	for (int i = 0; i < 100; i++) {
		/* Two begin before the first one ends. */
		choice = coll_nt_choose(&s, COLL_NT_SPREAD, 8 * MIB);
		call(&s, &small, COLL_NT_SPREAD, 8 * MIB);
		if (choice.timed)
			coll_nt_took(&s, COLL_NT_SPREAD, 8 * MIB, choice.stream,
			             choice.stream ? 8 * MIB / 9 : 8 * MIB / 6);
	}
	cr_expect_geq(streamed_of(&s, &small, 8 * MIB, 32), 28);
}
