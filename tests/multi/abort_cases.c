/*
 * Abort at awkward moments: twice, by all ranks at once, before the first call, while others
 * split or destroy, with operations of every kind on their way, beside a communicator that
 * goes on. Ranks are threads of this process, each with another thread that aborts, so
 * that ThreadSanitizer sees who meets whom.
 *
 * usage: abort_cases TRANSPORT
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "coll/coll.h"
#include "plain.h"
#include "starved.h"

enum { RANKS_MAX = 4, COUNT = 40000, TIMES = 12, PROMISED_MS = 2000 };

struct rank {
	int rank, size;
	coll_comm *world;
	void (*run)(struct rank *me);
	pthread_t thread;
	pthread_barrier_t *all;
	/* The other thread. */
	pthread_t other;
	coll_comm *victim;
	const char *reason;
	unsigned after_us;
	int32_t in[COUNT], out[COUNT];
};

static const char *transport, *more_settings;
static uint64_t seed = 4711;

/* ---- Ranks ---- */

static void *run_rank(void *arg)
{
	struct rank *me = arg;

	me->run(me);
	coll_comm_destroy(&me->world);
	return NULL;
}

static void run_ranks(int size, void (*run)(struct rank *me))
{
	char transports[64];
	const char *settings[] = {transports, "COLL_LOG_FILE=/dev/null", more_settings, NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[RANKS_MAX];
	struct rank *ranks = calloc((size_t)size, sizeof(*ranks));
	pthread_barrier_t all;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	cfg.settings = settings;
	REQUIRE(ranks && coll_comm_create_all(comms, size, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	pthread_barrier_init(&all, NULL, (unsigned)size);
	for (int r = 0; r < size; r++) {
		ranks[r].rank = r;
		ranks[r].size = size;
		ranks[r].world = comms[r];
		ranks[r].run = run;
		ranks[r].all = &all;
		if (pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]) != 0)
			exit(9);
	}
	for (int r = 0; r < size; r++)
		pthread_join(ranks[r].thread, NULL);
	pthread_barrier_destroy(&all);
	free(ranks);
}

static coll_comm *duplicate(struct rank *me)
{
	coll_comm *c = NULL;

	CHECK(coll_comm_duplicate(me->world, &c) == COLL_OK, "%s", coll_last_error(me->world)->message);
	if (!c)
		exit(1);
	return c;
}

/* ---- Aborting by another thread ---- */

static void *abort_it(void *arg)
{
	struct rank *me = arg;

	usleep(me->after_us);
	CHECK(coll_comm_abort(me->victim, me->reason) == COLL_OK);
	return NULL;
}

static void abort_by_another_thread(struct rank *me, coll_comm *victim, const char *reason, unsigned after_us)
{
	me->victim = victim;
	me->reason = reason;
	me->after_us = after_us;
	if (pthread_create(&me->other, NULL, abort_it, me) != 0)
		exit(9);
}

static void join_other(struct rank *me)
{
	pthread_join(me->other, NULL);
}

/* ---- Calls ---- */

static coll_status call(struct rank *me, coll_comm *c, int number)
{
	const size_t count = number % 3 ? (size_t)(number % 50 + 1) : COUNT;
	coll_status st;

	for (size_t i = 0; i < count; i++)
		me->in[i] = me->rank + number;
	st = coll_all_reduce(me->in, me->out, count, COLL_I32, COLL_SUM, c, NULL);
	for (size_t i = 0; st == COLL_OK && i < count; i++)
		if (me->out[i] != me->size * (me->size - 1) / 2 + me->size * number) {
			CHECK(false, "rank %d, call %d: a wrong sum", me->rank, number);
			break;
		}
	return st;
}

/* Call after call until one fails; the time from since_ns on is what is promised. */
static void call_until_aborted(struct rank *me, coll_comm *c, int culprit, const char *reason)
{
	const uint64_t since_ns = coll_clock_ns();
	coll_status st = COLL_OK;
	const coll_error *e;

	for (int i = 0; st == COLL_OK; i++)
		st = call(me, c, i);
	e = coll_last_error(c);
	CHECK(st == COLL_ERR_ABORTED && e->status == st, "rank %d: %s", me->rank, e->message);
	CHECK(culprit < 0 || e->rank == culprit, "rank %d: %s", me->rank, e->message);
	CHECK(strstr(e->message, reason), "rank %d: %s", me->rank, e->message);
	CHECK(coll_clock_ns() - since_ns < PROMISED_MS * UINT64_C(1000000) + starved_ns(), "rank %d: %s", me->rank,
	      e->message);
	CHECK(coll_barrier(c, NULL) == COLL_ERR_ABORTED);
}

/* ---- Cases ---- */

static void twice(struct rank *me)
{
	coll_comm *c = duplicate(me);

	if (me->rank == 1) {
		CHECK(coll_comm_abort(c, "the first reason") == COLL_OK);
		CHECK(coll_comm_abort(c, "another reason") == COLL_OK);
	}
	call_until_aborted(me, c, 1, "the first reason");
	CHECK(coll_comm_abort(c, "much too late") == COLL_OK);
	CHECK(strstr(coll_last_error(c)->message, "the first reason"));
	coll_comm_destroy(&c);
}

/* Everyone is told by somebody who did. */
static void by_all(struct rank *me)
{
	char reason[32], told[32];
	coll_comm *c = duplicate(me);

	snprintf(reason, sizeof(reason), "reason of %d", me->rank);
	pthread_barrier_wait(me->all);
	abort_by_another_thread(me, c, reason, 0);
	call_until_aborted(me, c, -1, "reason of");
	snprintf(told, sizeof(told), "reason of %d", coll_last_error(c)->rank);
	CHECK(strstr(coll_last_error(c)->message, told), "%s", coll_last_error(c)->message);
	join_other(me);
	coll_comm_destroy(&c);
}

static void before_the_first_call(struct rank *me)
{
	if (me->rank == 0)
		CHECK(coll_comm_abort(me->world, "changed my mind") == COLL_OK);
	call_until_aborted(me, me->world, 0, "changed my mind");
}

/* Who aborted is gone before others have noticed. */
static void and_gone(struct rank *me)
{
	coll_comm *c = duplicate(me);

	pthread_barrier_wait(me->all);
	if (me->rank == 2) {
		CHECK(coll_comm_abort(c, "leaving") == COLL_OK);
		coll_comm_destroy(&c);
		coll_comm_destroy(&me->world);
		return;
	}
	call_until_aborted(me, c, 2, "leaving");
	coll_comm_destroy(&c);
}

static void one_of_two(struct rank *me)
{
	coll_comm *c = duplicate(me), *d = duplicate(me);
	coll_stream *s = NULL;

	CHECK(coll_stream_create(&s, d) == COLL_OK);
	if (me->rank == 0)
		abort_by_another_thread(me, c, "this one", 2000);
	call_until_aborted(me, c, 0, "this one");
	for (int i = 0; i < TIMES; i++)
		CHECK(call(me, d, i) == COLL_OK, "%s", coll_last_error(d)->message);
	CHECK(coll_barrier(d, s) == COLL_OK && coll_stream_wait(s, -1) == COLL_OK);
	if (me->rank == 0)
		join_other(me);
	coll_comm_destroy(&c);
	CHECK(call(me, d, 1) == COLL_OK);
	CHECK(coll_stream_destroy(&s) == COLL_OK);
	coll_comm_destroy(&d);
}

/* Some ranks have the last child and some have not: no call on it may hang. */
static void while_splitting(struct rank *me)
{
	coll_comm *parent = duplicate(me), *children[64] = {NULL};
	const uint64_t since_ns = coll_clock_ns();
	coll_status st = COLL_OK;
	int n = 0;

	if (me->rank == 1)
		abort_by_another_thread(me, parent, "no more children", 500);
	while (st == COLL_OK) {
		if (n == 64)
			st = coll_barrier(parent, NULL);
		else if (n % 2)
			st = coll_comm_split(parent, 0, -me->rank, &children[n]);
		else
			st = coll_comm_duplicate(parent, &children[n]);
		n += st == COLL_OK && n < 64;
	}
	CHECK(st == COLL_ERR_ABORTED && strstr(coll_last_error(parent)->message, "no more children"), "%s",
	      coll_last_error(parent)->message);
	for (int i = 0; i < n; i++) {
		st = coll_barrier(children[i], NULL);
		CHECK(st == COLL_OK || (st == COLL_ERR_ABORTED && i == n - 1), "rank %d, child %d of %d: %s", me->rank,
		      i, n, coll_last_error(children[i])->message);
	}
	CHECK(coll_clock_ns() - since_ns < PROMISED_MS * UINT64_C(1000000) + starved_ns(), "rank %d", me->rank);
	if (me->rank == 1)
		join_other(me);
	/* In any order. */
	if (me->rank % 2)
		coll_comm_destroy(&parent);
	while (n > 0)
		coll_comm_destroy(&children[--n]);
	coll_comm_destroy(&parent);
}

/* The end of one rank meets the abort of another. */
static void while_destroying(struct rank *me)
{
	struct coll_rng rng = {coll_mix64(seed) + (uint64_t)me->rank};

	for (int i = 0; i < TIMES; i++) {
		coll_comm *c = duplicate(me);

		coll_status st = call(me, c, i);

		/* The aborter may be through with it first. */
		CHECK(st == COLL_OK || st == COLL_ERR_ABORTED, "%s", coll_last_error(c)->message);
		usleep(coll_rng_below(&rng, 2000));
		if (me->rank == i % me->size)
			CHECK(coll_comm_abort(c, "too late, or not") == COLL_OK);
		coll_comm_destroy(&c);
	}
}

/* Started and left to itself; another call fails in between. */
static void persistent_between(struct rank *me)
{
	coll_operation_desc desc = COLL_OPERATION_DESC_INIT;
	int32_t in[64] = {0}, out[64];

	desc.in = in;
	desc.out = out;
	desc.count = 64;
	desc.type = COLL_I32;
	for (int i = 0; i < TIMES; i++) {
		coll_comm *c = duplicate(me);
		coll_operation *op = NULL;
		coll_status st;

		CHECK(coll_operation_prepare(&op, &desc, c) == COLL_OK, "%s", coll_last_error(c)->message);
		pthread_barrier_wait(me->all);
		if (me->rank == 0) {
			/* The others' operations cannot end: this rank does not take part. */
			CHECK(coll_comm_abort(c, "not taking part") == COLL_OK);
			CHECK(coll_operation_start(op, NULL) == COLL_ERR_ABORTED);
		} else {
			st = coll_operation_start(op, NULL);
			while (st == COLL_OK && i % 3 == 0 && coll_progress(c) == COLL_AGAIN &&
			       coll_comm_abort(NULL, "") == COLL_ERR_ARGUMENT && coll_barrier(c, NULL) == COLL_OK) {
			}
			if (st == COLL_OK && i % 3 == 1)
				CHECK(coll_barrier(c, NULL) == COLL_ERR_ABORTED);
			if (st == COLL_OK && i % 4 < 2)
				CHECK(coll_operation_wait(op, i % 2 ? -1 : PROMISED_MS) == COLL_ERR_ABORTED);
			CHECK(st == COLL_OK || st == COLL_ERR_ABORTED);
		}
		/* With the operation on its way, or not. */
		if (i % 2)
			coll_operation_destroy(&op);
		coll_comm_destroy(&c);
		coll_operation_destroy(&op);
	}
}

/* A stream of one waits for an event of another whose communicator is aborted. */
static void streams_and_events(struct rank *me)
{
	coll_comm *c = duplicate(me), *d = duplicate(me);
	coll_stream *s = NULL, *t = NULL;
	coll_event *e = NULL;
	int32_t x[2] = {1, 1};

	CHECK(coll_stream_create(&s, c) == COLL_OK && coll_stream_create(&t, d) == COLL_OK);
	CHECK(coll_event_create(&e, c) == COLL_OK);
	if (me->rank != 0) {
		for (int i = 0; i < 6; i++)
			CHECK(coll_all_reduce(me->in, me->out, COUNT, COLL_I32, COLL_SUM, c, s) == COLL_OK);
		CHECK(coll_event_record(e, s) == COLL_OK && coll_stream_wait_event(t, e) == COLL_OK);
	}
	CHECK(coll_all_reduce(x, x, 2, COLL_I32, COLL_SUM, d, t) == COLL_OK);
	pthread_barrier_wait(me->all);
	if (me->rank == 0)
		CHECK(coll_comm_abort(c, "never came") == COLL_OK);
	else {
		CHECK(coll_event_wait(e, PROMISED_MS) == COLL_ERR_ABORTED);
		CHECK(coll_stream_wait(s, PROMISED_MS) == COLL_ERR_ABORTED);
	}
	/* The other communicator goes on, behind an event that failed too. */
	CHECK(coll_stream_wait(t, PROMISED_MS) == (me->rank ? COLL_ERR_ABORTED : COLL_OK));
	CHECK(x[0] == me->size, "%d", x[0]);
	CHECK(call(me, d, 5) == COLL_OK, "%s", coll_last_error(d)->message);
	coll_comm_destroy(&c);
	coll_stream_destroy(&s);
	coll_stream_destroy(&t);
	coll_event_destroy(&e);
	coll_comm_destroy(&d);
}

/* A group with calls on both. A rank may have ended a group that fails for another: so d is
 * aborted too, by whoever has seen the end. */
static void in_a_group(struct rank *me)
{
	coll_comm *c = duplicate(me), *d = duplicate(me);
	int32_t x = 1, y = 1;
	coll_status st = COLL_OK, handed, end;

	if (me->rank == 1)
		abort_by_another_thread(me, c, "out of the group", 1000);
	while (st == COLL_OK) {
		x = y = 1;
		coll_group_begin();
		st = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, c, NULL);
		handed = coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, d, NULL);
		CHECK(handed == COLL_OK || handed == COLL_ERR_ABORTED);
		end = coll_group_end();
		CHECK(end == COLL_OK || end == COLL_ERR_ABORTED);
		/* A call that was refused is no part of the group. */
		CHECK(handed != COLL_OK || end != COLL_OK || y == me->size, "%d", y);
		st = st == COLL_OK ? end : st;
	}
	CHECK(st == COLL_ERR_ABORTED, "%s", coll_last_error(c)->message);
	if (me->rank == 1)
		join_other(me);
	coll_comm_destroy(&c);
	coll_comm_abort(d, "done");
	coll_comm_destroy(&d);
}

static void alone(struct rank *me)
{
	coll_comm *c = duplicate(me);

	CHECK(coll_barrier(c, NULL) == COLL_OK);
	CHECK(coll_comm_abort(c, NULL) == COLL_OK);
	CHECK(coll_barrier(c, NULL) == COLL_ERR_ABORTED);
	CHECK(strstr(coll_last_error(c)->message, "no reason given"), "%s", coll_last_error(c)->message);
	coll_comm_destroy(&c);
	CHECK(coll_barrier(me->world, NULL) == COLL_OK);
}

static void in_the_middle(struct rank *me)
{
	for (int i = 0; i < TIMES; i++) {
		coll_comm *c = duplicate(me);

		if (me->rank == i % me->size)
			abort_by_another_thread(me, c, "in the middle", (unsigned)(i * 100));
		call_until_aborted(me, c, i % me->size, "in the middle");
		if (me->rank == i % me->size)
			join_other(me);
		coll_comm_destroy(&c);
	}
}

#define CASE(name, ranks, fn)             \
	TEST(abort_cases, name)           \
	{                                 \
		run_ranks((ranks), (fn)); \
	}
CASE(an_abort_counts_once, 3, twice)
CASE(all_ranks_abort_at_once, 4, by_all)
CASE(aborted_before_the_first_call, 3, before_the_first_call)
CASE(the_aborter_is_gone, 3, and_gone)
CASE(another_communicator_goes_on, 3, one_of_two)
CASE(aborted_while_children_are_made, 3, while_splitting)
CASE(aborted_while_others_destroy, 3, while_destroying)
CASE(a_persistent_operation_on_its_way, 3, persistent_between)
CASE(streams_and_events_on_their_way, 3, streams_and_events)
CASE(a_group_on_its_way, 3, in_a_group)
CASE(a_communicator_of_one, 1, alone)
CASE(aborted_in_the_middle, 2, in_the_middle)

TEST(abort_cases, without_a_service_thread)
{
	more_settings = "COLL_SERVICE_THREAD=0";
	run_ranks(3, in_the_middle);
	more_settings = NULL;
}

PROGRAM(abort_cases, "TRANSPORT")
{
	transport = argv[1];
	printf("seed %llu\n", (unsigned long long)seed);
	alarm(240);
	return 2;
}
