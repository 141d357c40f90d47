/*
 * Ways and their names: each has one of its own, and all fit into an entry of the flight recorder.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "algos/algos.h"
#include "core/way_name.h"

Test(way, rows_without_plans_have_names_of_their_own)
{
	for (unsigned i = 0; i < COLL_WAY_PLAN; i++)
		for (unsigned k = 0; k < i; k++)
			cr_expect_str_neq(coll_way_name((uint8_t)i), coll_way_name((uint8_t)k));
	cr_expect_str_eq(coll_way_name(COLL_WAY_UNKNOWN), "unknown");
	cr_expect_str_eq(coll_way_name(COLL_WAY_CICO), "cico");
}

Test(way, plans_are_named_by_their_algorithms)
{
	cr_expect_leq(COLL_WAY_PLAN + coll_algos_count, COLL_WAY_STAGED);
	for (size_t k = 0; k < coll_algos_count; k++) {
		const uint8_t way = coll_way_of_algo(&coll_algos[k]);

		cr_expect_eq(way, COLL_WAY_PLAN + k);
		cr_expect_str_eq(coll_way_name(way), coll_algos[k].name);
		for (unsigned i = 0; i < COLL_WAY_PLAN; i++)
			cr_expect_str_neq(coll_way_name(way), coll_way_name((uint8_t)i));
	}
}

Test(way, staged_calls_are_named_so)
{
	cr_expect_str_eq(coll_way_name(COLL_WAY_STAGED + COLL_WAY_CICO), "staged-cico");
	cr_expect_str_eq(coll_way_name(COLL_WAY_STAGED + COLL_WAY_UNKNOWN), "staged-unknown");
	cr_expect_str_eq(coll_way_name(COLL_WAY_MAX), "staged-unknown");
}

Test(way, what_is_no_way_is_unknown)
{
	cr_expect_str_eq(coll_way_name((uint8_t)(COLL_WAY_PLAN + coll_algos_count)), "unknown");
	cr_expect_str_eq(coll_way_name(255), "unknown");
}
