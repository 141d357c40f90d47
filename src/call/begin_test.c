/*
 * The beginning and the end of a call: what is written where, and what is not.
 */
#include "call/begin.h"
#include "call/world_test.h"

enum { NUMBER = 7, SALT = 0x5a5a };

static struct coll_entry entries[COLL_RECORDER_ENTRIES];
static const struct coll_intra_op op = {.matched = true}, direct;

static void setup(void)
{
	world_open();
	memset(entries, 0, sizeof(entries));
	comm->recorder.entries = entries;
	comm->salt.next = SALT;
}

static void begin(const struct coll_call *call, const struct coll_call *shown, uint8_t flags, struct coll_job *job,
                  struct coll_record *record)
{
	job->sequence = NUMBER;
	coll_begin_collective(comm, call, shown, flags, &op, fake_select_signature(call), job, record);
}

/* A test between setup() and world_close(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), world_close())

WORLD_TEST(begin, the_record_names_the_call_and_the_frames_have_its_salt)
{
	const struct coll_call call = world_call(8);
	const uint32_t signature = fake_select_signature(&call);
	struct coll_job job = {.sequence = 0};
	struct coll_record record;

	begin(&call, &call, COLL_RECORD_MERGED, &job, &record);
	CHECK(record.sequence == NUMBER && record.count == 8 && record.flags == COLL_RECORD_MERGED && record.active);
	CHECK(record.signature == signature, "without salt");
	CHECK(job.signature == (signature ^ SALT));
	CHECK(job.intra == &op);
	CHECK(comm->handed_in == NUMBER);
	CHECK(fake_watch.noted == 0 && comm->call_runs == 1);
}

/* Whether it runs intranode. */
static bool intranode(struct coll_call call)
{
	struct coll_job job = {.sequence = 0};
	struct coll_record r;

	begin(&call, &call, 0, &job, &r);
	return job.intra != NULL;
}

WORLD_TEST(begin, after_a_pairwise_call_the_next_that_synchronises_goes_by_plan)
{
	const struct coll_call pairwise = {.kind = COLL_KIND_ALL_TO_ALL, .count = 1, .pairwise = true};
	const struct coll_call rooted = {.kind = COLL_KIND_BROADCAST, .count = 1};

	CHECK(intranode(world_call(8)) && fake_watch.noted == 0);
	CHECK(intranode(pairwise) && fake_watch.noted == 1, "its lengths are noted");
	CHECK(!intranode(rooted) && !intranode(world_call(8)) && intranode(world_call(8)));
}

/* It expects no frame, nor does it find one. */
WORLD_TEST(begin, a_way_that_does_not_need_channels_to_be_matched_is_kept)
{
	const struct coll_call pairwise = {.kind = COLL_KIND_ALL_TO_ALL, .count = 1, .pairwise = true};
	const struct coll_call call = world_call(8);
	struct coll_job job = {.sequence = NUMBER};
	struct coll_record r;

	intranode(pairwise);
	coll_begin_collective(comm, &call, &call, 0, &direct, 0, &job, &r);
	CHECK(job.intra == &direct);
	CHECK(!intranode(call), "the frame may still be there");
}

WORLD_TEST(begin, another_call_may_be_shown)
{
	const struct coll_call barrier = {.kind = COLL_KIND_BARRIER, .count = 1}, prepared = world_call(99);
	struct coll_job job = {.sequence = 0};
	struct coll_record record;

	begin(&barrier, &prepared, COLL_RECORD_PREPARING, &job, &record);
	CHECK(record.kind == COLL_KIND_ALL_REDUCE && record.count == 99 && record.flags == COLL_RECORD_PREPARING);
	CHECK(record.signature == fake_select_signature(&barrier), "of the call that is made");
}

static uint32_t salt(struct coll_call c, uint64_t number)
{
	const struct coll_job job = {.sequence = number, .signature = fake_select_signature(&c)};
	struct coll_record r;

	coll_begin_record(comm, &c, &job, &r);
	return coll_begin_salt(comm, &c, &r);
}

WORLD_TEST(begin, a_call_that_may_end_unheard_salts_all_after_it)
{
	const struct coll_call broadcast = {.kind = COLL_KIND_BROADCAST, .count = 1, .type = COLL_F32};

	comm->salt.next = 0;
	CHECK(salt(world_call(1), 1) == 0 && salt(world_call(2), 2) == 0, "whoever ends these has heard from all");
	CHECK(salt(broadcast, 3) == 0);
	CHECK(salt(world_call(1), 4) != 0);
	CHECK(salt(world_call(1), 5) == comm->salt.now && salt(world_call(2), 6) == comm->salt.now);
}

WORLD_TEST(begin, calls_in_a_row_that_are_the_same_are_one_run)
{
	struct coll_record first_of_second;

	comm->salt.next = 0;
	for (uint64_t n = 1; n <= 3; n++)
		salt(world_call(1), n);
	salt(world_call(2), 4);
	CHECK(comm->call_runs == 2);
	CHECK(coll_record_read(&comm->call_run[1], &first_of_second) && first_of_second.sequence == 4);
}

WORLD_TEST(begin, an_entry_says_what_the_call_is)
{
	const struct coll_call call = {.kind = COLL_KIND_BROADCAST, .count = 8, .type = COLL_F32, .root = 3};
	const struct coll_record record = {.sequence = NUMBER, .kind = COLL_KIND_BROADCAST, .type = COLL_F32};
	struct coll_entry *e;

	e = coll_begin_entry(comm, &call, &record, 0x1234, COLL_WAY_CICO, 5);
	REQUIRE(e == &entries[0] && comm->recorder.next == 1);
	CHECK(e->version == 2 && e->finished == 0);
	CHECK(e->what == coll_entry_what(0x1234, COLL_KIND_BROADCAST, COLL_F32, 0, COLL_WAY_CICO, true));
	CHECK(e->count == 8 && e->sequence == ((uint64_t)NUMBER << 16 | 5) && e->who == coll_entry_who(3, -1));
	e = coll_begin_entry(comm, &call, &record, 0x1234, COLL_WAY_CICO, 0);
	CHECK(!(e->what & 1), "not of a stream");
}

WORLD_TEST(begin, each_half_of_a_message_has_an_entry)
{
	const struct coll_pair pair = {.dest = 1, .source = 2, .send_count = 10, .recv_count = 20, .type = COLL_F32};

	coll_begin_pair_entry(comm, &pair, 0, 4, 0);
	coll_begin_pair_entry(comm, &pair, 1, 6, 0);
	CHECK(entries[0].count == 10 && entries[0].who == coll_entry_who(1, -1) && entries[0].sequence >> 16 == 4);
	CHECK(entries[1].count == 20 && entries[1].who == coll_entry_who(2, -1) && entries[1].sequence >> 16 == 6);
	CHECK(entries[1].what == coll_entry_what(0, COLL_KIND_SEND_RECV, COLL_F32, 1, COLL_WAY_SEND_RECV, false));
}

/* ---- Its end ---- */

static struct coll_run run;
static struct coll_record record;
static struct coll_wait waited;

static coll_status finish(struct coll_run how, bool small)
{
	const struct coll_call call = world_call(8);

	run = how;
	record = fake_record_of(comm->id, COLL_KIND_ALL_REDUCE, NUMBER, 8);
	coll_record_publish(&comm->record, &record);
	waited = (struct coll_wait){.runs = {&run},
	                            .nruns = 1,
	                            .record = &record,
	                            .entries = {coll_begin_entry(comm, &call, &record, 0, COLL_WAY_UNKNOWN, 0)}};
	fake_clock_add_ms(1);
	return coll_finish_inline(comm, &waited, &record, small);
}

WORLD_TEST(finish, record_and_entry_are_closed_with_the_way_that_was_gone)
{
	struct coll_record now;

	CHECK(finish((struct coll_run){.polls = 30, .way = COLL_WAY_CMA}, true) == COLL_OK);
	REQUIRE(coll_record_read(&comm->record, &now));
	CHECK(!now.active && now.sequence == NUMBER && !record.active);
	CHECK((entries[0].what >> 1 & COLL_WAY_MAX) == COLL_WAY_CMA);
	CHECK((entries[0].finished & 255) == COLL_OK && entries[0].finished != COLL_ENTRY_QUICK, "it was timed");
}

WORLD_TEST(finish, what_ends_in_its_first_polls_is_not_timed)
{
	CHECK(finish((struct coll_run){.polls = 3, .way = COLL_WAY_CMA}, true) == COLL_OK);
	CHECK(entries[0].finished == COLL_ENTRY_QUICK);
	CHECK(fake_context.pauses == 0);
}

WORLD_TEST(finish, an_error_is_the_entrys_too)
{
	fake_watch.inquire = COLL_ERR_PEER_DEAD;
	CHECK(finish((struct coll_run){.polls = 2, .end = COLL_ERR_PEER_DEAD}, true) == COLL_ERR_PEER_DEAD);
	CHECK(fake_watch.faulty == &run);
	CHECK((int8_t)(entries[0].finished & 255) == (int8_t)COLL_ERR_PEER_DEAD);
	CHECK(comm->failed == COLL_ERR_PEER_DEAD);
}
