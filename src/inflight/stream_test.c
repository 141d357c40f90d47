/*
 * Streams and events: the order of what was put in, the first error, and waiting for points of other streams.
 */
#include "inflight/stream.h"

#include <pthread.h>
#include <sched.h>

#include "call/world_test.h"
#include "inflight/event.h"

static struct coll_stream *a, *b;

static void setup(void)
{
	world_open();
	coll_stream_create(&a, comm);
	coll_stream_create(&b, comm);
}

static void finish(void)
{
	coll_stream_destroy(&a);
	coll_stream_destroy(&b);
	world_close();
}

/* A test between setup() and finish(). */
#define WORLD_TEST(suite, name) TEST_BETWEEN(suite, name, setup(), finish())

WORLD_TEST(stream, calls_start_one_behind_the_other)
{
	CHECK(a->number == 1 && b->number == 2 && fake_context.users == 2);
	world_hand_in(8, a);
	world_hand_in(8, a);
	CHECK(world_started(1) && !world_started(2));
	CHECK(coll_stream_query(a) == COLL_AGAIN);
	world_end(1);
	CHECK(world_started(2));
	CHECK(coll_stream_query(a) == COLL_AGAIN);
	world_end(2);
	CHECK(coll_stream_query(a) == COLL_OK);
}

WORLD_TEST(stream, what_is_behind_runs_in_the_run_of_what_was_before)
{
	world_hand_in(8, a);
	world_hand_in(8, a);
	world_end(1);
	world_end(2);
	CHECK(fake_engine.created == 1 && fake_engine_run_of(2)->starts == 2);
}

/* The second collective of the communicator is held up by its stream, and with it the third: they start in order. */
WORLD_TEST(stream, collectives_of_two_streams_start_in_the_order_of_calls)
{
	world_hand_in(8, a);
	world_hand_in(8, a);
	world_hand_in(8, b);
	CHECK(!world_started(3));
	world_end(1);
	CHECK(world_started(2) && world_started(3));
	CHECK(fake_engine.number[1] == 2 && fake_engine.number[2] == 3);
	world_end(3);
	CHECK(coll_stream_query(b) == COLL_OK && coll_stream_query(a) == COLL_AGAIN, "b is ahead of a");
	world_end(2);
}

WORLD_TEST(stream, messages_of_another_stream_do_not_wait)
{
	struct coll_request *m;

	world_hand_in(8, a);
	m = world_message(1, -1, b);
	CHECK(m->state == COLL_REQUEST_RUNNING);
	coll_pair_of(m)->run[0]->polls = 0;
	coll_drive_try(comm->ctx);
	CHECK(coll_stream_query(b) == COLL_OK && coll_stream_query(a) == COLL_AGAIN);
	world_end(1);
}

WORLD_TEST(stream, a_wait_has_a_limit)
{
	CHECK(coll_stream_wait(a, 0) == COLL_OK, "nothing is in it");
	world_hand_in(8, a);
	CHECK(coll_stream_wait(a, 20) == COLL_AGAIN);
	world_end(1);
	CHECK(coll_stream_wait(a, 0) == COLL_OK);
}

WORLD_TEST(stream, an_error_stays)
{
	world_hand_in(8, a);
	world_hand_in(8, a);
	coll_comm_lose(comm, COLL_ERR_PEER_DEAD, -1, "");
	CHECK(coll_stream_wait(a, 0) == COLL_ERR_PEER_DEAD);
	CHECK(a->failed_at == 1);
	CHECK(coll_stream_query(a) == COLL_ERR_PEER_DEAD);
	CHECK(coll_stream_query(b) == COLL_OK);
	CHECK(coll_stream_destroy(&a) == COLL_ERR_PEER_DEAD && !a);
}

WORLD_TEST(stream, wrong_arguments_are_refused)
{
	struct coll_stream *s;

	CHECK(coll_stream_create(&s, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_create(NULL, comm) == COLL_ERR_ARGUMENT && fake_core.refusals == 1);
	CHECK(coll_stream_query(NULL) == COLL_ERR_ARGUMENT && coll_stream_wait(NULL, 0) == COLL_ERR_ARGUMENT);
	CHECK(coll_stream_destroy(NULL) == COLL_OK);
}

/* ---- Events ---- */

static struct coll_event *e;

static void begin_event(void)
{
	setup();
	coll_event_create(&e, comm);
}

static void end_event(void)
{
	coll_event_destroy(&e);
	finish();
}
#define EVENT_TEST(name) TEST_BETWEEN(event, name, begin_event(), end_event())

EVENT_TEST(it_is_reached_when_what_came_before_is_complete)
{
	double at = 0;

	CHECK(coll_event_time(e, &at) == COLL_ERR_ARGUMENT, "never recorded");
	world_hand_in(8, a);
	coll_event_record(e, a);
	world_hand_in(8, a);
	CHECK(coll_event_query(e) == COLL_AGAIN && coll_event_time(e, &at) == COLL_AGAIN);
	fake_clock.now_ns = 5000000000;
	world_end(1);
	CHECK(coll_event_query(e) == COLL_OK, "whatever comes behind it");
	fake_clock_add_ms(1000);
	CHECK(coll_event_time(e, &at) == COLL_OK && at >= 5 && at < 5.5, "%g s", at);
	world_end(2);
}

EVENT_TEST(of_an_empty_stream_it_is_reached_at_once)
{
	double at = 0;

	coll_event_record(e, a);
	CHECK(coll_event_wait(e, 0) == COLL_OK && coll_event_time(e, &at) == COLL_OK && at > 0);
}

EVENT_TEST(another_stream_waits_for_it_and_not_longer)
{
	struct coll_request *m;

	world_hand_in(8, a);
	coll_event_record(e, a);
	world_hand_in(8, a);
	coll_stream_wait_event(b, e);
	m = world_message(1, -1, b);
	CHECK(m->state == COLL_REQUEST_QUEUED);
	world_end(1);
	CHECK(m->state == COLL_REQUEST_RUNNING);
	coll_pair_of(m)->run[0]->polls = 0;
	world_end(2);
	CHECK(coll_stream_query(b) == COLL_OK);
}

EVENT_TEST(all_that_came_before_it_is_waited_for)
{
	world_hand_in(8, a);
	world_hand_in(8, a);
	coll_event_record(e, a);
	coll_stream_wait_event(b, e);
	world_end(1);
	CHECK(coll_stream_query(b) == COLL_AGAIN && coll_event_query(e) == COLL_AGAIN);
	world_end(2);
	CHECK(coll_stream_query(b) == COLL_OK && coll_event_query(e) == COLL_OK);
}

EVENT_TEST(recording_it_anew_does_not_move_whoever_waits)
{
	world_hand_in(8, a);
	coll_event_record(e, a);
	coll_stream_wait_event(b, e);
	world_hand_in(8, a);
	coll_event_record(e, a);
	world_end(1);
	CHECK(coll_stream_query(b) == COLL_OK);
	CHECK(coll_event_query(e) == COLL_AGAIN);
	world_end(2);
	CHECK(coll_event_query(e) == COLL_OK);
}

EVENT_TEST(an_error_before_it_goes_on_to_the_stream_that_waits)
{
	world_hand_in(8, a);
	coll_event_record(e, a);
	coll_stream_wait_event(b, e);
	coll_comm_lose(comm, COLL_ERR_PEER_DEAD, -1, "");
	CHECK(coll_event_wait(e, 0) == COLL_ERR_PEER_DEAD);
	CHECK(coll_stream_wait(b, 0) == COLL_ERR_PEER_DEAD);
}

EVENT_TEST(an_error_behind_it_is_not_its_own)
{
	world_hand_in(8, a);
	coll_event_record(e, a);
	world_hand_in(8, a);
	world_end(1);
	coll_comm_lose(comm, COLL_ERR_PEER_DEAD, -1, "");
	CHECK(coll_event_query(e) == COLL_OK && coll_stream_query(a) == COLL_ERR_PEER_DEAD);
}

EVENT_TEST(it_outlives_its_stream)
{
	world_hand_in(8, a);
	coll_event_record(e, a);
	coll_comm_lose(comm, COLL_ERR_PEER_DEAD, -1, "");
	coll_stream_destroy(&a);
	CHECK(coll_event_query(e) == COLL_ERR_PEER_DEAD);
	coll_stream_wait_event(b, e);
	CHECK(coll_stream_query(b) == COLL_ERR_PEER_DEAD);
}

EVENT_TEST(of_the_same_stream_it_is_behind_anyway)
{
	world_hand_in(8, a);
	coll_event_record(e, a);
	CHECK(coll_stream_wait_event(a, e) == COLL_OK && a->last == 1, "nothing was put in");
	world_end(1);
}

/* ---- Queries while another thread has the lock ---- */

struct holder {
	atomic_bool holds, answered;
	bool seen; /* the query waited for the lock */
};

/* Holds the lock until the query waits for it, or has answered without it. */
static void *hold(void *arg)
{
	struct holder *h = arg;
	struct coll_async *async = comm->ctx->async;

	pthread_mutex_lock(&async->lock);
	atomic_store(&h->holds, true);
	while (!h->seen && !atomic_load(&h->answered)) {
		h->seen = atomic_load(&async->lock_waiters) > 0;
		sched_yield();
	}
	pthread_mutex_unlock(&async->lock);
	return NULL;
}

/* The answer of a query (of e, else of a) that is made while another thread holds the lock. */
static coll_status query_while_held(struct coll_event *event)
{
	struct holder h = {.seen = false};
	coll_status st;
	pthread_t t;

	if (pthread_create(&t, NULL, hold, &h) != 0)
		return COLL_ERR_SYSTEM;
	while (!atomic_load(&h.holds))
		sched_yield();
	st = event ? coll_event_query(event) : coll_stream_query(a);
	atomic_store(&h.answered, true);
	pthread_join(t, NULL);
	CHECK(h.seen, "the query did not wait for the lock");
	return st;
}

WORLD_TEST(query, a_lock_that_is_held_is_not_taken_for_pending)
{
	coll_event_create(&e, comm);
	world_hand_in(8, a);
	coll_event_record(e, a);
	fake_engine_run_of(1)->polls = 0; /* all messages are here: one look completes it */
	CHECK(query_while_held(NULL) == COLL_OK);
	world_hand_in(8, a);
	coll_event_record(e, a);
	fake_engine_run_of(2)->polls = 0;
	CHECK(query_while_held(e) == COLL_OK);
	coll_event_destroy(&e);
}

WORLD_TEST(query, a_thread_that_waits_for_the_lock_does_not_keep_it_from_looking)
{
	coll_event_create(&e, comm);
	atomic_fetch_add(&comm->ctx->async->lock_waiters, 1); /* as for one that is about to get it */
	world_hand_in(8, a);
	fake_engine_run_of(1)->polls = 0;
	CHECK(coll_stream_query(a) == COLL_OK);
	world_hand_in(8, a);
	coll_event_record(e, a);
	fake_engine_run_of(2)->polls = 0;
	CHECK(coll_event_query(e) == COLL_OK);
	atomic_fetch_sub(&comm->ctx->async->lock_waiters, 1);
	coll_event_destroy(&e);
}

WORLD_TEST(query, what_is_pending_stays_so_whoever_has_the_lock)
{
	coll_event_create(&e, comm);
	world_hand_in(8, a);
	coll_event_record(e, a);
	CHECK(query_while_held(NULL) == COLL_AGAIN && query_while_held(e) == COLL_AGAIN);
	world_end(1);
	coll_event_destroy(&e);
}
