/*
 * coll_last_error(NULL) is the last failure of the calling thread: of every function of coll.h that returns a status,
 * and of what ends later, on a stream, in a group, as an operation or a request. Ranks are threads of this process.
 *
 * usage: thread_errors COLL.H [PART-OF-A-TEST'S-NAME]
 */
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "thread_ranks.h"

static const char *header;

/* ---- Every function refuses something ---- */

static coll_comm *comm;
static coll_stream *stream;
static coll_event *event;
static char bytes[64];

static coll_status aborted(void)
{
	coll_comm *child = NULL;
	coll_status st = coll_comm_duplicate(comm, &child);

	CHECK(st == COLL_OK && coll_comm_abort(child, "a test") == COLL_OK);
	st = coll_barrier(child, NULL);
	coll_comm_destroy(&child);
	return st;
}

static coll_status in_group(coll_status (*call)(void))
{
	coll_status st;

	coll_group_begin();
	coll_all_reduce(bytes, bytes, 1, COLL_I8, COLL_SUM, comm, stream);
	st = call();
	coll_group_end();
	return st;
}

static coll_status destroy_comm(void)
{
	coll_comm *it = comm;

	return coll_comm_destroy(&it);
}

static coll_status destroy_stream(void)
{
	coll_stream *it = stream;

	return coll_stream_destroy(&it);
}

static coll_operation *noted;

static coll_status destroy_noted(void)
{
	coll_operation *it = noted;

	coll_operation_start(noted, NULL);
	return coll_operation_destroy(&it);
}

static coll_status in_notice;

static void calls_begin(void *arg, coll_status status)
{
	coll_status (*call)(void) = (coll_status(*)(void))arg;

	in_notice = call();
}

/* In a function of an event. */
static coll_status noticed(coll_status (*call)(void))
{
	coll_event_notify(event, calls_begin, (void *)call);
	return in_notice;
}

static coll_status destroy_event(void)
{
	coll_event *it = event;

	return coll_event_destroy(&it);
}

#define ROW(name, ...)                       \
	static coll_status fail_##name(void) \
	{                                    \
		return (__VA_ARGS__);        \
	}
#include "thread_errors_rows.h"
#undef ROW

static const struct row {
	const char *name;
	coll_status (*call)(void);
} rows[] = {
#define ROW(name, ...) {"coll_" #name, fail_##name},
#include "thread_errors_rows.h"
#undef ROW
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct row *row_of(const char *name, size_t len)
{
	for (int i = 0; i < ROWS; i++)
		if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0)
			return &rows[i];
	return NULL;
}

/* A failure that has nothing to do with the call. */
static void fail_elsewhere(void)
{
	CHECK(coll_comm_set_timeout(NULL, 1, 1) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(NULL)->message, "comm_set_timeout: the communicator is NULL"), "%s",
	      coll_last_error(NULL)->message);
}

static void check_row(const struct row *row)
{
	const coll_error *e;
	char before[200];
	coll_status st;

	fail_elsewhere();
	snprintf(before, sizeof(before), "%s", coll_last_error(NULL)->message);
	st = row->call();
	e = coll_last_error(NULL);
	CHECK(st > COLL_AGAIN, "%s: %s", row->name, coll_status_string(st));
	CHECK(e->status == st, "%s returned %s, but the thread has: %s", row->name, coll_status_string(st), e->message);
	CHECK(e->message[0] && (strcmp(e->message, before) != 0 || strstr(before, row->name + 5)), "%s: %s", row->name,
	      e->message);
	CHECK(e->kind[0] && e->host && e->link, "%s: %s", row->name, e->message);
}

/* Every function of the header that returns a status has a row. */
static void check_complete(void)
{
	static const char mark[] = "COLL_API coll_status ";
	static char text[200000];
	FILE *f = fopen(header, "r");
	const size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	int found = 0;

	REQUIRE(n > 0 && n < sizeof(text) - 1, "%s", header);
	fclose(f);
	for (const char *at = text; (at = strstr(at, mark)); found++) {
		const size_t len = strcspn(at += sizeof(mark) - 1, "(");

		CHECK(row_of(at, len), "%.*s has no row", (int)len, at);
	}
	CHECK(found == ROWS, "%d functions, %d rows", found, ROWS);
}

TEST(thread_errors, every_function)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;

	check_complete();
	REQUIRE(create(&comm, 1));
	d.in = d.out = bytes;
	d.count = 1;
	CHECK(coll_stream_create(&stream, comm) == COLL_OK && coll_event_create(&event, comm) == COLL_OK);
	CHECK(coll_operation_prepare(&noted, &d, comm) == COLL_OK);
	for (int i = 0; i < ROWS; i++)
		check_row(&rows[i]);
	CHECK(coll_all_reduce(bytes, bytes, 1, COLL_I8, COLL_SUM, comm, NULL) == COLL_OK);
	CHECK(coll_last_error(NULL)->status != COLL_OK, "a call that succeeds changes nothing");
	coll_event_destroy(&event);
	coll_stream_destroy(&stream);
	coll_operation_destroy(&noted);
	coll_comm_destroy(&comm);
	CHECK(coll_last_error(NULL)->message[0], "it outlives the communicator");
}

/* ---- What ends later ---- */

enum {
	LATER_STREAM,
	LATER_QUERY,
	LATER_EVENT,
	LATER_CHAIN,
	LATER_REQUEST,
	LATER_OPERATION,
	LATER_GROUP,
	LATER_CALL,
	LATERS
};

struct later {
	coll_stream *stream, *second;
	coll_event *event, *chained;
	coll_request *request;
	coll_operation *operation;
};

static coll_status end_of(int what, struct later *l, coll_comm *c)
{
	coll_message_info info;
	coll_status st = COLL_AGAIN;
	int x = 1;

	switch (what) {
	case LATER_STREAM: return coll_stream_wait(l->stream, -1);
	case LATER_QUERY:
		while ((st = coll_stream_query(l->stream)) == COLL_AGAIN)
			;
		return st;
	case LATER_EVENT: return coll_event_wait(l->event, -1);
	case LATER_CHAIN: return coll_event_wait(l->chained, -1);
	case LATER_REQUEST: return coll_request_wait(&l->request, -1, &info);
	case LATER_OPERATION: return coll_operation_wait(l->operation, -1);
	case LATER_GROUP:
		coll_group_begin();
		st = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, c,
		                     NULL); /* refused at once if the abort has come */
		return coll_group_end() == COLL_OK ? st : coll_last_error(NULL)->status;
	default: return coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, c, NULL);
	}
}

static void check_text(coll_status st, const char *what)
{
	const coll_error *e = coll_last_error(NULL);

	CHECK(st == COLL_ERR_ABORTED, "%s: %s", what, coll_status_string(st));
	CHECK(e->status == st && e->rank == 1 && strstr(e->message, "planned by the test") &&
	              strstr(e->message, "rank 0 of 2"),
	      "%s: %d, rank %d: %s", what, e->status, e->rank, e->message);
}

/* Rank 0 has work of all kinds under way when rank 1 aborts. */
static void waits(coll_comm **at, int rank, void *arg)
{
	const int what = *(const int *)arg;
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	struct later l = {NULL};
	int x[4] = {0}, y = 0;
	coll_status st;

	d.type = COLL_I32;
	d.in = d.out = &x[1];
	d.count = 1;
	CHECK(coll_operation_prepare(&l.operation, &d, *at) == COLL_OK);
	for (int i = 0; i < 3; i++)
		CHECK(coll_all_reduce(&x[0], &x[0], 1, COLL_I32, COLL_SUM, *at, NULL) == COLL_OK);
	if (rank == 1) {
		coll_comm_abort(*at, "planned by the test");
		coll_operation_destroy(&l.operation);
		coll_comm_destroy(at);
		return;
	}
	CHECK(coll_stream_create(&l.stream, *at) == COLL_OK && coll_stream_create(&l.second, *at) == COLL_OK);
	CHECK(coll_event_create(&l.event, *at) == COLL_OK && coll_event_create(&l.chained, *at) == COLL_OK);
	st = coll_irecv(&y, 1, COLL_I32, 1, 3, *at, &l.request);
	if (st == COLL_OK && what != LATER_CALL && what != LATER_GROUP && what != LATER_OPERATION)
		st = coll_all_reduce(&x[2], &x[2], 1, COLL_I32, COLL_SUM, *at, l.stream);
	if (st == COLL_OK && what == LATER_OPERATION)
		st = coll_operation_start(l.operation, NULL);
	/* The abort may come before any of these: an event that was not recorded has nothing to wait for. */
	if (st == COLL_OK)
		st = coll_event_record(l.event, l.stream);
	if (st == COLL_OK)
		st = coll_stream_wait_event(l.second, l.event);
	if (st == COLL_OK)
		st = coll_event_record(l.chained, l.second);
	fail_elsewhere();
	if (st == COLL_OK)
		check_text(end_of(what, &l, *at), (const char *[]){"stream", "query", "event", "chain", "request",
		                                                   "operation", "group", "call"}[what]);
	else
		check_text(coll_barrier(*at, NULL), "begin");
	/* What is left of it outlives stream and communicator. */
	coll_operation_wait(l.operation, -1);
	coll_stream_destroy(&l.stream);
	coll_stream_destroy(&l.second);
	coll_comm_destroy(at);
	if (st == COLL_OK && (what == LATER_EVENT || what == LATER_CHAIN)) {
		fail_elsewhere();
		check_text(coll_event_query(what == LATER_EVENT ? l.event : l.chained), "event");
	}
	if (l.request) {
		fail_elsewhere();
		check_text(coll_request_wait(&l.request, -1, NULL), "request");
	}
	coll_event_destroy(&l.event);
	coll_event_destroy(&l.chained);
	coll_operation_destroy(&l.operation);
}

TEST(thread_errors, what_ends_later)
{
	for (int what = 0; what < LATERS; what++) {
		coll_comm *comms[2];

		REQUIRE(create(comms, 2));
		each_rank(comms, 2, waits, &what);
	}
}

/* ---- Threads ---- */

static void *has_none(void *arg)
{
	CHECK(coll_last_error(NULL)->status == COLL_OK && strcmp(coll_last_error(NULL)->message, "no error") == 0);
	return NULL;
}

TEST(thread_errors, other_threads_keep_theirs)
{
	pthread_t t;

	fail_elsewhere();
	pthread_create(&t, NULL, has_none, NULL);
	pthread_join(t, NULL);
	CHECK(coll_last_error(NULL)->status == COLL_ERR_ARGUMENT);
}

/* Each names all that are late, as the communicator does. */
static void late(coll_comm **at, int rank, void *arg)
{
	pthread_barrier_t *end = arg;
	const coll_error *e, *mine;
	int x = 0;

	CHECK(coll_comm_set_timeout(*at, -1, 300) == COLL_OK);
	if (rank == 0) {
		CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, *at, NULL) == COLL_ERR_PEER_LATE);
		e = coll_last_error(*at);
		mine = coll_last_error(NULL);
		CHECK(mine->status == e->status && mine->rank == e->rank && mine->late_count == e->late_count &&
		              mine->late_count >= 1 && mine->late != e->late &&
		              memcmp(mine->late, e->late, (size_t)e->late_count * sizeof(int)) == 0,
		      "%s", mine->message);
		CHECK(strcmp(mine->message, e->message) == 0 && strcmp(mine->link, e->link) == 0, "%s, %s",
		      mine->message, e->message);
	}
	pthread_barrier_wait(end);
	coll_comm_destroy(at);
}

TEST(thread_errors, late_ranks)
{
	pthread_barrier_t end;
	coll_comm *comms[3];

	pthread_barrier_init(&end, NULL, 3);
	REQUIRE(create(comms, 3));
	each_rank(comms, 3, late, &end);
	pthread_barrier_destroy(&end);
}

PROGRAM(thread_errors, "COLL.H [PART-OF-A-TEST'S-NAME]")
{
	header = argv[1];
	threads_over("shm");
	return 2;
}
