/*
 * Late ranks: the search among answers that come or do not, the text, and the list that is read from it.
 */
#include "watch/late.h"

#include <stdlib.h>

#include "base/delay.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_context.h"
#include "tests/fakes/fake_control.h"
#include "tests/fakes/fake_core.h"
#include "tests/fakes/fake_record.h"
#include "tests/plain.h"

enum { RANKS = 12, NUMBER = 9, PEER = 1 };

static struct coll_comm *comm;
static struct coll_record record;
static struct coll_wait wait;
static struct coll_wait_timer timer;
static char text[COLL_LATE_TEXT];

static void setup(void)
{
	fake_clock_reset();
	fake_context_reset();
	fake_control_reset();
	comm = fake_comm_open(0, RANKS);
	comm->ctx->control = fake_control.plane;
	record = fake_record_of(comm->id, COLL_KIND_ALL_REDUCE, NUMBER, 0);
	wait = (struct coll_wait){.record = &record};
	timer = (struct coll_wait_timer){.since_ns = coll_clock_ns()};
}

static void finish(void)
{
	free(comm->late.ranks);
	comm->late = (struct coll_late){0};
}

/* Rank r is in call `number`, and waits there for `peer`; -1: it does not wait. */
static void says(int r, uint64_t number, int peer)
{
	struct coll_record doing = fake_record_of(FAKE_COMM_ID, COLL_KIND_ALL_REDUCE, number, 0);

	doing.waits_for = peer;
	doing.active = peer >= 0;
	fake_control_answers(r, &doing);
}

static bool find(void)
{
	return coll_late_find(comm, &wait, &timer, PEER, coll_clock_ns());
}

static bool list_is(const int *ranks, int n)
{
	const int *list = comm->late.ranks ? comm->late.ranks : &comm->late.one;
	bool same = comm->late.count == n;

	for (int i = 0; i < n && same; i++)
		same = list[i] == ranks[i];
	return same;
}

/* A test between setup() and finish(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), finish())

WORLD_TEST(late, who_is_behind_and_waits_for_nobody_is_late)
{
	CHECK(!find(), "it has asked");
	CHECK(fake_control.asked[0] == 0 && fake_control.asked[1] == 1 && fake_control.asked[RANKS - 1] == 1);
	for (int r = 1; r < RANKS; r++)
		says(r, NUMBER, PEER);
	says(1, NUMBER - 1, -1);
	says(4, NUMBER - 2, -1);
	says(5, NUMBER - 1, 4); /* held up by a late one */
	says(6, NUMBER + 1, -1);
	CHECK(find());
	CHECK(list_is((const int[]){1, 4}, 2), "%d", comm->late.count);
	coll_late_describe(comm, "all_reduce", text);
	CHECK(strcmp(text, "ranks 1 and 4 have not called all_reduce; ") == 0, "%s", text);
}

WORLD_TEST(late, who_does_not_answer_is_not_waited_for_long)
{
	CHECK(!find());
	says(PEER, NUMBER - 1, -1);
	says(3, NUMBER - 1, -1);
	fake_clock_add_ms(COLL_DELAY_LATE_TURN_MS - 1);
	CHECK(!find());
	fake_clock_add_ms(1);
	CHECK(find());
	CHECK(list_is((const int[]){1, 3}, 2));
}

/* A note of a member that has failed came before its answer. */
WORLD_TEST(late, a_note_is_read_first)
{
	CHECK(!find());
	says(PEER, NUMBER - 1, -1);
	for (int r = 1; r < RANKS; r++)
		if (r != PEER)
			says(r, NUMBER, PEER);
	atomic_fetch_add(&comm->ctx->alarm, 1);
	CHECK(!find(), "the list is a verdict, and a note waits");
	comm->alarm_seen++;
	CHECK(find() && list_is((const int[]){PEER}, 1));
}

WORLD_TEST(late, an_answer_from_before_counts_for_nothing)
{
	says(3, NUMBER - 1, -1);
	fake_clock_add_ms(10);
	CHECK(!find());
	fake_clock_add_ms(COLL_DELAY_LATE_TURN_MS);
	CHECK(find());
	CHECK(list_is((const int[]){PEER}, 1));
	coll_late_describe(comm, "all_reduce", text);
	CHECK(text[0] == 0, "%s", text);
}

WORLD_TEST(late, a_new_wait_searches_anew)
{
	CHECK(!find());
	fake_clock_add_ms(COLL_DELAY_LATE_TURN_MS);
	timer.since_ns = coll_clock_ns();
	CHECK(!find());
	CHECK(fake_control.asked[3] == 2);
}

WORLD_TEST(late, of_a_message_the_peer_alone_is_late)
{
	record.kind = COLL_KIND_SEND_RECV;
	CHECK(find() && list_is((const int[]){PEER}, 1) && fake_control.asked[3] == 0);
}

WORLD_TEST(late, the_text_is_read_as_it_was_written)
{
	static const int ranks[] = {1, 2, 4, 5, 6, 9, 11};

	comm->late.ranks = calloc(RANKS, sizeof(int));
	comm->late.count = 7;
	memcpy(comm->late.ranks, ranks, sizeof(ranks));
	coll_late_describe(comm, "barrier", text);
	CHECK(strcmp(text, "ranks 1, 2, 4-6, 9 and 11 have not called barrier; ") == 0, "%s", text);
	comm->late.count = 0;
	coll_late_read(comm, 2, text);
	CHECK(list_is(ranks, 7), "%d", comm->late.count);
}

/* Its own numbers mean nothing to the program: it is still being made. */
WORLD_TEST(late, of_a_group_the_text_has_ranks_of_the_job)
{
	static const int ranks[] = {1, 2, 3, 9};

	comm->parent = 7;
	comm->late.ranks = calloc(RANKS, sizeof(int));
	comm->late.count = 4;
	memcpy(comm->late.ranks, ranks, sizeof(ranks));
	coll_late_describe(comm, "comm_create_group", text);
	CHECK(strcmp(text, "ranks 1-3 and 9 of the job have not called comm_create_group; ") == 0, "%s", text);
	comm->late.count = 0;
	coll_late_read(comm, 2, text);
	CHECK(list_is(ranks, 4), "%d", comm->late.count);
	/* The order of the group may be another one than that of the job. */
	coll_late_read(comm, 2, "ranks 9 and 4-5 of the job have not called comm_create_group; ");
	CHECK(list_is((const int[]){9, 4, 5}, 3), "%d", comm->late.count);
	coll_late_read(comm, 2, "ranks 9 and 4000 of the job have not called comm_create_group; ");
	CHECK(list_is((const int[]){9}, 1), "%d", comm->late.count);
	comm->parent = 0;
}

WORLD_TEST(late, what_is_cut_and_what_is_wrong_is_not_read)
{
	coll_late_read(comm, 2, "ranks 1, 3-4 and 7 more have not called barrier; ");
	CHECK(list_is((const int[]){1, 3, 4}, 3), "%d", comm->late.count);
	coll_late_read(comm, 2, "rank 2 on host a is late");
	CHECK(list_is((const int[]){2}, 1));
	coll_late_read(comm, 2, "ranks 5-4000 have not called barrier; ");
	CHECK(list_is((const int[]){2}, 1), "%d", comm->late.count);
	coll_late_read(comm, 2, "ranks x have not called barrier; ");
	CHECK(list_is((const int[]){2}, 1));
	coll_late_read(comm, -1, "");
	CHECK(comm->late.count == 0);
}

TEST(late, a_long_list_is_cut)
{
	setup();
	comm->size = 4000;
	comm->late.ranks = calloc(4000, sizeof(int));
	for (int i = 0; i < 1000; i++)
		comm->late.ranks[comm->late.count++] = 4 * i;
	coll_late_describe(comm, "all_reduce", text);
	CHECK(strlen(text) < COLL_LATE_TEXT - 1 && strstr(text, " more have not called all_reduce; "), "%s", text);
	comm->late.count = 0;
	coll_late_read(comm, 0, text);
	CHECK(comm->late.count > 10 && comm->late.ranks[3] == 12, "%d", comm->late.count);
	finish();
	comm->size = RANKS;
}
