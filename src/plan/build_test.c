/*
 * The builder: which waits it adds and which it leaves out, scratch, bounds, flags
 * and errors; and lowering: what it fuses and what it must not.
 */
#include <stdlib.h>

#include "plan/build.h"
#include "plan/lower.h"
#include "proof/race.h"
#include "tests/plain.h"
#include "tools/common/print.h"

static char text[4096];

/* The text of rank `rank` of size ranks, or what went wrong. */
static const char *build(coll_algo_fn fn, enum coll_kind kind, int rank, int size, bool fused)
{
	struct coll_shape shape = {.kind = kind, .rank = rank, .size = size, .uniform = true};
	static const struct coll_model truth;
	struct coll_plan *plan = NULL, *lowered = NULL;
	coll_status status = coll_build_plan(&shape, "test", fn, &plan);
	char why[256];

	snprintf(text, sizeof(text), "status %d", status);
	if (!status && fused)
		status = coll_plan_lower(plan, &lowered);
	if (!status) {
		const struct coll_plan *p = fused ? lowered : plan;

		coll_plan_print(p, text, sizeof(text));
		CHECK(coll_race_check(p, &truth, why, sizeof(why)) == COLL_OK, "%s", why);
	}
	coll_plan_free(plan);
	coll_plan_free(lowered);
	return text;
}

#define EXPECT(haystack, needle) CHECK(strstr(haystack, needle), "no \"%s\" in:\n%s", needle, haystack)
#define FORBID(haystack, needle) CHECK(!strstr(haystack, needle), "\"%s\" in:\n%s", needle, haystack)
#define GENERATOR(name)          static coll_status name(const struct coll_shape *s, struct coll_builder *b)
#define ALL_REDUCE(fn)           build(fn, COLL_KIND_ALL_REDUCE, 0, 4, false)
#define FUSED_ALL_REDUCE(fn)     build(fn, COLL_KIND_ALL_REDUCE, 0, 4, true)

/* ---- Hazards ---- */

GENERATOR(read_after_write_across_lanes)
{
	coll_build_chunks(b, 1);
	coll_build_recv(b, 1, coll_out(0));
	coll_build_lane(b, 1);
	coll_build_send(b, 2, coll_out(0));
	return coll_build_status(b);
}

TEST(build, a_read_waits_for_a_write_of_another_lane)
{
	EXPECT(ALL_REDUCE(read_after_write_across_lanes), "lane 1\n   0 send out[0] to 2 after 0:1\n");
}

GENERATOR(same_lane)
{
	coll_build_chunks(b, 1);
	coll_build_copy(b, coll_in(0), coll_out(0), false);
	coll_build_recv_reduce(b, 2, coll_out(0), coll_out(0), COLL_INCOMING_RIGHT, 1, true);
	coll_build_copy(b, coll_out(0), coll_scratch(0, 0), false);
	coll_build_send(b, 2, coll_out(0));
	return coll_build_status(b);
}

TEST(build, a_lane_needs_no_waits_for_what_completes_in_order)
{
	FORBID(ALL_REDUCE(same_lane), "after");
}

GENERATOR(overwrite_what_is_sent)
{
	coll_build_chunks(b, 2);
	coll_build_send(b, 1, coll_out(0));
	coll_build_send(b, 2, coll_out(1));
	coll_build_recv(b, 3, coll_out(1));
	coll_build_recv(b, 3, coll_out(0));
	return coll_build_status(b);
}

TEST(build, a_write_waits_for_a_send_of_its_own_lane_once)
{
	const char *t = ALL_REDUCE(overwrite_what_is_sent);

	EXPECT(t, "2 recv out[1] from 3 after 0:2\n");
	EXPECT(t, "3 recv out[0] from 3\n"); /* implied */
	EXPECT(t, "in_flight 2 ");
}

GENERATOR(send_then_overwrite_elsewhere)
{
	coll_build_chunks(b, 1);
	coll_build_copy(b, coll_in(0), coll_scratch(3, 0), false);
	coll_build_lane(b, 2);
	coll_build_recv(b, 1, coll_scratch(3, 0));
	return coll_build_status(b);
}

TEST(build, a_write_waits_for_a_write_of_another_lane)
{
	const char *t = ALL_REDUCE(send_then_overwrite_elsewhere);

	EXPECT(t, "lane 2\n   0 recv s3[0] from 1 after 0:1\n");
	EXPECT(t, "scratch 0 first 0 count 0\n");
	EXPECT(t, "scratch 3 first 0 count 1\n");
}

GENERATOR(overwrite_what_another_lane_reads)
{
	coll_build_chunks(b, 1);
	coll_build_copy(b, coll_scratch(0, 0), coll_scratch(1, 0), false);
	coll_build_lane(b, 1);
	coll_build_recv(b, 1, coll_scratch(0, 0));
	return coll_build_status(b);
}

TEST(build, a_write_waits_for_any_reader_of_another_lane)
{
	EXPECT(ALL_REDUCE(overwrite_what_another_lane_reads), "lane 1\n   0 recv s0[0] from 1 after 0:1\n");
}

GENERATOR(alias)
{
	coll_build_chunks(b, 2);
	coll_build_send(b, 1, coll_in(1));
	coll_build_recv(b, 2, coll_out(0));
	coll_build_recv(b, 2, coll_out(1));
	return coll_build_status(b);
}

TEST(build, in_and_out_count_as_one_buffer)
{
	const char *t = ALL_REDUCE(alias);

	EXPECT(t, "1 recv out[0] from 2\n");
	EXPECT(t, "2 recv out[1] from 2 after 0:1\n");
}

GENERATOR(three_lanes)
{
	coll_build_chunks(b, 2);
	coll_build_recv(b, 1, coll_out(0));
	coll_build_lane(b, 1);
	coll_build_recv(b, 2, coll_out(1));
	coll_build_lane(b, 2);
	coll_build_run(b, 2, 0, 0, false);
	coll_build_send(b, 3, coll_out(0));
	return coll_build_status(b);
}

TEST(build, a_step_with_two_waits_gets_a_wait_step)
{
	EXPECT(ALL_REDUCE(three_lanes), "lane 2\n   0 wait after 0:1\n   1 send out[0+2] to 3 after 1:1\n");
}

GENERATOR(chain_of_lanes)
{
	coll_build_chunks(b, 1);
	coll_build_recv(b, 1, coll_scratch(0, 0));
	coll_build_lane(b, 1);
	coll_build_copy(b, coll_scratch(0, 0), coll_scratch(1, 0), false);
	coll_build_lane(b, 2);
	coll_build_reduce(b, 0, 2, -1, 0, coll_out(0), true);
	return coll_build_status(b);
}

TEST(build, a_wait_that_follows_from_another_is_left_out)
{
	const char *t = ALL_REDUCE(chain_of_lanes);

	EXPECT(t, "lane 1\n   0 copy s1[0] = s0[0] after 0:1\n");
	EXPECT(t, "lane 2\n   0 reduce out[0] = s0..s1[0] post after 1:1\n");
}

GENERATOR(bounded)
{
	coll_build_chunks(b, 4);
	for (uint32_t i = 0; i < 4; i++) {
		coll_build_send(b, 1, coll_scratch(0, i % 2));
		if (i >= 1)
			coll_build_recv(b, 2, coll_scratch(0, (i + 1) % 2));
	}
	return coll_build_status(b);
}

TEST(build, sends_in_flight_are_those_not_known_retired)
{
	EXPECT(ALL_REDUCE(bounded), "in_flight 2 ");
}

/* ---- Runs, scratch, flags ---- */

GENERATOR(wrapping)
{
	coll_build_chunks(b, 8);
	coll_build_run(b, 3, 0, 0, true);
	coll_build_recv(b, 1, coll_scratch(0, 6));  /* 6 7 0 */
	coll_build_recv(b, 1, coll_scratch(1, 10)); /* 2 3 4 */
	coll_build_run(b, 4, 2, 4, false);
	coll_build_recv(b, 1, coll_scratch(2, 1)); /* 1 2 5 6 */
	coll_build_run(b, 2, 2, 5, false);         /* contiguous after all */
	coll_build_recv(b, 1, coll_scratch(3, 0));
	return coll_build_status(b);
}

TEST(build, scratch_extents_are_the_shortest_cyclic_intervals)
{
	const char *t = ALL_REDUCE(wrapping);

	EXPECT(t, "scratch 0 first 6 count 3\n");
	EXPECT(t, "scratch 1 first 2 count 3\n");
	EXPECT(t, "scratch 2 first 1 count 6\n");
	EXPECT(t, "recv s0[6+3%] from 1\n");
	EXPECT(t, "recv s1[2+3] from 1\n");
	EXPECT(t, "recv s2[1+4/2:4] from 1\n");
	EXPECT(t, "recv s3[0+2] from 1\n");
	EXPECT(t, "run 4 ");
}

GENERATOR(flags)
{
	coll_build_chunks(b, 2);
	coll_build_send(b, 1, coll_in(0));
	coll_build_recv_reduce(b, 1, coll_in(1), coll_scratch(0, 1), COLL_INCOMING_LEFT, 1, false);
	coll_build_reduce(b, 0, 1, 1, 1, coll_out(1), true);
	coll_build_copy(b, coll_out(0), coll_out(0), false); /* nothing to do */
	coll_build_copy(b, coll_in(0), coll_out(0), true);
	return coll_build_status(b);
}

TEST(build, reads_of_in_are_pre_scaled_by_reducing_kinds_only)
{
	const char *t = ALL_REDUCE(flags);

	EXPECT(t, "0 send in[0] to 1 pre\n");
	EXPECT(t, "1 recv_reduce s0[1] = from 1 op in[1] of 1+1 pre\n");
	EXPECT(t, "2 reduce out[1] = s0[1] splice 1 pre post\n");
	EXPECT(t, "3 copy out[0] = in[0] pre post after 0:1\n");
	FORBID(build(alias, COLL_KIND_BROADCAST, 0, 4, false), "pre");
}

/* ---- Errors ---- */

static int mistake;

GENERATOR(mistaken)
{
	coll_build_chunks(b, mistake == 0 ? 0 : 4);
	switch (mistake) {
	case 1: coll_build_send(b, 4, coll_in(0)); break;
	case 2: coll_build_send(b, s->rank, coll_in(0)); break;
	case 3: coll_build_recv(b, 1, coll_in(0)); break;
	case 4: coll_build_recv(b, 1, coll_out(4)); break;
	case 5:
		coll_build_run(b, 2, 0, 0, false);
		coll_build_recv(b, 1, coll_out(3));
		break;
	case 6: coll_build_lane(b, COLL_LANES_MAX); break;
	case 7: coll_build_chunks(b, 4); break;
	case 8:
		coll_build_run(b, 5, 0, 0, true);
		coll_build_recv(b, 1, coll_out(0));
		break;
	case 9: coll_build_reduce(b, 0, 1, 2, 0, coll_out(0), true); break;
	case 10: coll_build_run(b, 0, 0, 0, false); break;
	case 11: coll_build_recv(b, 1, (struct coll_at){COLL_BUF_SCRATCH + COLL_SCRATCH_MAX, 0}); break;
	default: break;
	}
	coll_build_recv(b, 1, coll_out(0)); /* later steps do not cure it */
	return coll_build_status(b);
}

TEST(build, mistakes_are_errors_and_stick)
{
	for (mistake = 0; mistake <= 11; mistake++)
		CHECK(strcmp(ALL_REDUCE(mistaken), "status 42") == 0, "mistake %d: %s", mistake, text);
	CHECK(strstr(ALL_REDUCE(mistaken), "recv out[0]"), "%s", text);
	/* Four chunks are right for four ranks of a block kind, not for five. */
	CHECK(strstr(build(mistaken, COLL_KIND_ALL_GATHER, 0, 4, false), "recv out[0]"), "%s", text);
	CHECK(strcmp(build(mistaken, COLL_KIND_ALL_GATHER, 0, 5, false), "status 42") == 0, "%s", text);
}

GENERATOR(silent)
{
	return COLL_OK;
}

TEST(build, a_generator_must_say_how_many_chunks)
{
	CHECK(strcmp(ALL_REDUCE(silent), "status 42") == 0);
}

/* ---- Lowering ---- */

GENERATOR(forward)
{
	coll_build_chunks(b, 1);
	coll_build_recv(b, 1, coll_out(0));
	coll_build_send(b, 2, coll_out(0));
	coll_build_send(b, 3, coll_out(0));
	return coll_build_status(b);
}

TEST(lower, a_receive_takes_the_send_that_follows)
{
	EXPECT(FUSED_ALL_REDUCE(forward), "   0 recv_copy_send out[0] from 1 to 2\n   1 send out[0] to 3\n");
}

GENERATOR(partial_overwritten)
{
	coll_build_chunks(b, 1);
	coll_build_recv_reduce(b, 1, coll_in(0), coll_out(0), COLL_INCOMING_LEFT, 1, false);
	coll_build_send(b, 2, coll_out(0));
	coll_build_recv(b, 3, coll_out(0));
	return coll_build_status(b);
}

TEST(lower, a_store_that_is_overwritten_unread_goes_away_and_its_wait_too)
{
	EXPECT(ALL_REDUCE(partial_overwritten), "2 recv out[0] from 3 after 0:2\n");
	EXPECT(FUSED_ALL_REDUCE(partial_overwritten),
	       "   0 recv_reduce_send from 1 op in[0] to 2 of 1+1 pre\n   1 recv out[0] from 3\n");
}

GENERATOR(partial_in_scratch)
{
	coll_build_chunks(b, 1);
	coll_build_recv_reduce(b, 1, coll_in(0), coll_scratch(0, 0), COLL_INCOMING_RIGHT, 1, false);
	coll_build_send(b, 2, coll_scratch(0, 0));
	return coll_build_status(b);
}

TEST(lower, scratch_that_only_passed_something_on_goes_away)
{
	const char *t = FUSED_ALL_REDUCE(partial_in_scratch);

	EXPECT(t, "recv_reduce_send in[0] op from 1 to 2 of 1+1 pre\n");
	FORBID(t, "scratch");
}

GENERATOR(result_forwarded)
{
	coll_build_chunks(b, 1);
	coll_build_recv_reduce(b, 1, coll_in(0), coll_out(0), COLL_INCOMING_LEFT, 1, true);
	coll_build_send(b, 2, coll_out(0));
	return coll_build_status(b);
}

TEST(lower, a_result_is_stored)
{
	EXPECT(FUSED_ALL_REDUCE(result_forwarded),
	       "recv_reduce_copy_send out[0] = from 1 op in[0] to 2 of 1+1 pre post\n");
}

GENERATOR(partial_read_by_another_lane)
{
	coll_build_chunks(b, 1);
	coll_build_recv_reduce(b, 1, coll_in(0), coll_scratch(0, 0), COLL_INCOMING_LEFT, 1, false);
	coll_build_send(b, 2, coll_scratch(0, 0));
	coll_build_lane(b, 1);
	coll_build_recv_reduce(b, 3, coll_scratch(0, 0), coll_out(0), COLL_INCOMING_LEFT, 1, true);
	return coll_build_status(b);
}

TEST(lower, a_store_that_another_lane_reads_stays_and_the_wait_is_recounted)
{
	const char *t = FUSED_ALL_REDUCE(partial_read_by_another_lane);

	EXPECT(t, "lane 0\n   0 recv_reduce_copy_send s0[0] = from 1 op in[0] to 2 of 1+1 pre\n");
	EXPECT(t, "lane 1\n   0 recv_reduce out[0] = from 3 op s0[0] of 1+2 post after 0:1\n");
}

GENERATOR(counts_shift)
{
	coll_build_chunks(b, 3);
	coll_build_recv(b, 1, coll_out(0));
	coll_build_send(b, 2, coll_out(0));
	coll_build_recv(b, 1, coll_out(1));
	coll_build_send(b, 2, coll_out(1));
	coll_build_recv(b, 1, coll_out(2));
	coll_build_lane(b, 1);
	coll_build_copy(b, coll_out(2), coll_scratch(0, 2), false);
	return coll_build_status(b);
}

TEST(lower, waits_count_fused_steps)
{
	EXPECT(ALL_REDUCE(counts_shift), "copy s0[2] = out[2] after 0:5\n");
	EXPECT(FUSED_ALL_REDUCE(counts_shift), "copy s0[2] = out[2] after 0:3\n");
}

GENERATOR(not_what_was_written)
{
	coll_build_chunks(b, 4);
	coll_build_recv(b, 1, coll_out(0));
	coll_build_send(b, 2, coll_out(1));
	coll_build_run(b, 2, 0, 0, false);
	coll_build_recv(b, 1, coll_out(2));
	coll_build_run(b, 1, 0, 0, false);
	coll_build_send(b, 2, coll_out(2));
	coll_build_recv(b, 1, coll_scratch(0, 0));
	coll_build_copy(b, coll_scratch(0, 0), coll_out(0), false);
	coll_build_send(b, 2, coll_scratch(0, 0));
	return coll_build_status(b);
}

TEST(lower, only_just_what_was_received_is_fused)
{
	FORBID(FUSED_ALL_REDUCE(not_what_was_written), "_send");
}

GENERATOR(armed)
{
	coll_build_chunks(b, 3);
	coll_build_send(b, 1, coll_in(0));
	coll_build_recv(b, 1, coll_out(1));
	coll_build_recv(b, 1, coll_out(0));
	coll_build_recv(b, 1, coll_out(1));
	coll_build_recv(b, 1, coll_out(2));
	return coll_build_status(b);
}

TEST(lower, a_receive_is_armed_where_nothing_touched_its_place)
{
	const char *t = FUSED_ALL_REDUCE(armed);

	EXPECT(t, "1 recv out[1] from 1 arm\n");
	EXPECT(t, "2 recv out[0] from 1 after 0:1\n"); /* in place it is in[0] */
	EXPECT(t, "3 recv out[1] from 1\n");
	EXPECT(t, "4 recv out[2] from 1 arm\n");
	FORBID(ALL_REDUCE(armed), "arm");
}
