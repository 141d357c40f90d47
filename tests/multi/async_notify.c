/*
 * coll_event_notify(): each function runs exactly once, whatever happens to its event, and with the
 * status of the event. Ranks are threads of this process.
 *
 * usage: async_notify TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include <stdatomic.h>

#include "async_ranks.h"

/* What one function has received. */
struct call {
	atomic_int times;
	_Atomic coll_status status;
};

static void count(void *arg, coll_status status)
{
	struct call *c = arg;

	atomic_store(&c->status, status);
	atomic_fetch_add(&c->times, 1);
}

static bool ran(const struct call *c, coll_status status)
{
	return atomic_load(&c->times) == 1 && atomic_load(&c->status) == status;
}

static void await_call(const struct call *c)
{
	while (atomic_load(&c->times) == 0)
		sched_yield();
}

/* ---- Which recording, which thread ---- */

TEST_OF_RANKS(async_notify, which_recording, 3, 3)
{
	struct call never = {0}, first[2] = {{0}}, second = {0}, at_once = {0};
	int x = 1, y = 1, z = 1;
	coll_event *e, *f;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_event_create(&e, comm));
	OK(comm, coll_event_create(&f, comm));
	OK(comm, coll_event_notify(e, count, &never));
	CHECK(ran(&never, COLL_OK), "one that was never recorded counts as reached");
	OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_event_record(e, s));
	OK(comm, coll_event_notify(e, count, &first[0]));
	OK(comm, coll_event_notify(e, count, &first[1]));
	OK(comm, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_event_record(e, s));
	OK(comm, coll_event_notify(e, count, &second));
	OK(comm, coll_all_reduce(&z, &z, 1, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_event_record(f, s));
	OK(comm, coll_stream_wait(s, -1));
	await_call(&first[0]);
	await_call(&first[1]);
	await_call(&second);
	CHECK(ran(&first[0], COLL_OK) && ran(&first[1], COLL_OK) && ran(&second, COLL_OK));
	OK(comm, coll_event_notify(f, count, &at_once));
	CHECK(ran(&at_once, COLL_OK), "in the caller");
	OK(comm, coll_event_destroy(&f));
	CHECK(ran(&at_once, COLL_OK));
	OK(comm, coll_event_destroy(&e));
	OK(comm, coll_stream_destroy(&s));
}

/* The other rank comes only when this one has destroyed the event. */
static void destroyed_early(coll_comm *comm, int rank, void *arg)
{
	atomic_int *stage = arg;
	struct call gone = {0}, stays = {0};
	int x = 1;
	coll_event *e, *f;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_event_create(&e, comm));
	OK(comm, coll_event_create(&f, comm));
	while (rank == 1 && atomic_load(stage) == 0)
		sched_yield();
	OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
	if (rank == 0) {
		OK(comm, coll_event_record(e, s));
		OK(comm, coll_event_record(f, s));
		OK(comm, coll_event_notify(e, count, &gone));
		OK(comm, coll_event_notify(f, count, &stays));
		CHECK(gone.times == 0);
		OK(comm, coll_event_destroy(&e));
		CHECK(ran(&gone, COLL_AGAIN));
		atomic_store(stage, 1);
	}
	OK(comm, coll_stream_destroy(&s));
	if (rank == 0) {
		await_call(&stays);
		CHECK(ran(&gone, COLL_AGAIN) && ran(&stays, COLL_OK) && x == 2);
	}
	OK(comm, coll_event_destroy(&e));
	OK(comm, coll_event_destroy(&f));
}

TEST(async_notify, a_destroyed_event)
{
	atomic_int stage = 0;

	run_ranks(2, destroyed_early, &stage);
}

/* Nothing but coll_progress() and, if there is one, the progress thread. */
TEST_OF_RANKS(async_notify, nobody_waits, 3, 3)
{
	struct call c = {0};
	int x = 1;
	coll_event *e;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_event_create(&e, comm));
	OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
	OK(comm, coll_event_record(e, s));
	OK(comm, coll_event_notify(e, count, &c));
	while (atomic_load(&c.times) == 0) {
		if (strstr(progress, "=on"))
			sched_yield();
		else
			coll_progress(comm);
	}
	CHECK(ran(&c, COLL_OK) && x == coll_comm_size(comm));
	OK(comm, coll_event_destroy(&e));
	OK(comm, coll_stream_destroy(&s));
}

/* ---- What a function may call ---- */

struct inside {
	coll_comm *comm, *child;
	coll_event *event, *later;
	coll_stream *stream;
	coll_operation *op;
	coll_request *ended;
	struct call chained;
	int x, allowed, forbidden;
	atomic_bool done;
};

static void look_around(void *arg, coll_status status)
{
	struct inside *i = arg;
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *own = i->comm, *fresh = NULL;
	coll_event *event = i->event;
	coll_stream *stream = i->stream;

	cfg.log = swallow;
	i->allowed += status == COLL_OK && coll_event_query(i->event) == COLL_OK;
	i->allowed += coll_event_notify(i->event, count, &i->chained) == COLL_OK && i->chained.times == 0;
	i->allowed += coll_comm_size(i->comm) == 2;
	i->forbidden += coll_all_reduce(&i->x, &i->x, 1, COLL_I32, COLL_SUM, i->comm, NULL) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_all_reduce(&i->x, &i->x, 1, COLL_I32, COLL_SUM, i->comm, i->stream) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_barrier(i->comm, NULL) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_send(&i->x, 1, COLL_I32, 1, i->comm, NULL) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_event_wait(i->later, 0) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_stream_wait(i->stream, 0) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_operation_start(i->op, NULL) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_operation_destroy(&i->op) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_group_begin() == COLL_ERR_ARGUMENT && coll_group_end() == COLL_ERR_ARGUMENT;
	i->forbidden += coll_progress(i->comm) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_comm_duplicate(i->comm, &i->child) == COLL_ERR_ARGUMENT;
	i->forbidden += coll_comm_create(&fresh, &cfg) == COLL_ERR_ARGUMENT && !fresh;
	i->forbidden += coll_comm_create_all(&fresh, 1, &cfg) == COLL_ERR_ARGUMENT && !fresh;
	i->forbidden += coll_comm_destroy(&own) == COLL_ERR_ARGUMENT && own;
	i->forbidden += coll_event_destroy(&event) == COLL_ERR_ARGUMENT && event;
	i->forbidden += coll_stream_destroy(&stream) == COLL_ERR_ARGUMENT && stream;
	/* Not even what would not wait: it may end the context. */
	i->forbidden += coll_request_test(&i->ended, NULL) == COLL_ERR_ARGUMENT && i->ended;
	i->forbidden += coll_request_wait(&i->ended, 0, NULL) == COLL_ERR_ARGUMENT && i->ended;
	atomic_store(&i->done, true);
}

static void inside(coll_comm *comm, int rank, void *arg)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	struct inside i = {.comm = comm};
	int x = 1, y = 1;

	d.in = d.out = &x;
	d.count = 1;
	d.type = COLL_I32;
	OK(comm, coll_operation_prepare(&i.op, &d, comm));
	OK(comm, coll_stream_create(&i.stream, comm));
	OK(comm, coll_event_create(&i.event, comm));
	OK(comm, coll_event_create(&i.later, comm));
	OK(comm, coll_irecv(NULL, 0, COLL_I32, COLL_ANY_SOURCE, 0, comm, &i.ended));
	OK(comm, coll_request_cancel(i.ended));
	OK(comm, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, i.stream));
	OK(comm, coll_event_record(i.event, i.stream));
	OK(comm, coll_event_notify(i.event, look_around, &i));
	OK(comm, coll_event_wait(i.event, -1));
	while (!atomic_load(&i.done))
		sched_yield();
	CHECK(i.allowed == 3, "%d", i.allowed);
	CHECK(i.forbidden == 18, "%d of 18", i.forbidden);
	await_call(&i.chained);
	CHECK(ran(&i.chained, COLL_OK));
	/* This thread is as before: its next call runs. */
	OK(comm, coll_all_reduce(&y, &y, 1, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(y == 4);
	CHECK(coll_request_wait(&i.ended, -1, NULL) == COLL_ERR_CANCELLED);
	OK(comm, coll_operation_destroy(&i.op));
	OK(comm, coll_event_destroy(&i.event));
	OK(comm, coll_event_destroy(&i.later));
	OK(comm, coll_stream_destroy(&i.stream));
}

TEST(async_notify, inside_a_function)
{
	run_ranks(2, inside, NULL);
}

TEST_OF_RANKS(async_notify, arguments, 1, 1)
{
	struct call c = {0};
	coll_event *e;

	OK(comm, coll_event_create(&e, comm));
	CHECK(coll_event_notify(NULL, count, &c) == COLL_ERR_ARGUMENT);
	CHECK(coll_event_notify(e, NULL, &c) == COLL_ERR_ARGUMENT);
	OK(comm, coll_event_destroy(&e));
	CHECK(c.times == 0);
}

/* ---- Many, with errors and aborts ---- */

enum { THREADS = 4, ROUNDS = 100, EVENTS = 250 };

/* A round has a communicator of its own. Every fourth is aborted in the middle, by a rank that
 * changes; then what is reached is an error. In others a rank destroys events without waiting. */
static int one_round(coll_comm *comm, int rank, int round, struct call *calls)
{
	const bool aborted = round % 4 == 1, hasty = round % 4 == 2;
	coll_event *events[EVENTS];
	coll_comm *child;
	coll_stream *s;
	int x = 1, wrong = 0, failed = 0;

	if (coll_comm_duplicate(comm, &child) != COLL_OK || coll_stream_create(&s, child) != COLL_OK)
		return EVENTS;
	for (int i = 0; i < EVENTS; i++) {
		if (aborted && i == EVENTS / 2 && rank == round / 4 % THREADS)
			coll_comm_abort(child, "the test");
		/* Once the communicator is lost, calls fail, and the event is at the end of what came before. */
		coll_all_reduce(&x, &x, 1, COLL_I32, COLL_MAX, child, s);
		wrong += coll_event_create(&events[i], child) != COLL_OK;
		wrong += coll_event_record(events[i], s) != COLL_OK;
		wrong += coll_event_notify(events[i], count, &calls[i]) != COLL_OK;
		if (hasty && i % 3 == 0)
			coll_event_destroy(&events[i]);
	}
	/* On a busy machine no event may be reached before it is destroyed, unless the rank waits. */
	if (round % 4 == 3)
		wrong += coll_stream_wait(s, -1) != COLL_OK;
	for (int i = 0; i < EVENTS; i++)
		coll_event_destroy(&events[i]);
	coll_stream_destroy(&s);
	coll_comm_destroy(&child);
	for (int i = 0; i < EVENTS; i++) {
		const coll_status st = (await_call(&calls[i]), atomic_load(&calls[i].status));

		failed += st != COLL_OK && st != COLL_AGAIN;
		wrong += st != COLL_OK && st != COLL_AGAIN && st != COLL_ERR_ABORTED;
	}
	return wrong + (!aborted && failed > 0);
}

TEST_OF_LOST_RANKS(async_notify, a_hundred_thousand, THREADS, NULL)
{
	struct call *calls = calloc(ROUNDS * EVENTS, sizeof(*calls));
	int wrong = 0, again = 0, ok = 0;

	for (int round = 0; round < ROUNDS; round++)
		wrong += one_round(comm, rank, round, calls + (size_t)round * EVENTS);
	CHECK(wrong == 0, "rank %d: %d", rank, wrong);
	/* No function ran twice, and none after its communicator had gone. */
	OK(comm, coll_barrier(comm, NULL));
	wrong = 0;
	for (int i = 0; i < ROUNDS * EVENTS; i++) {
		wrong += atomic_load(&calls[i].times) != 1;
		again += atomic_load(&calls[i].status) == COLL_AGAIN;
		ok += atomic_load(&calls[i].status) == COLL_OK;
	}
	CHECK(wrong == 0, "rank %d: %d functions did not run exactly once", rank, wrong);
	CHECK(ok > 0, "rank %d: %d reached, %d destroyed before", rank, ok, again);
	free(calls);
}

ASYNC_PROGRAM(async_notify)
