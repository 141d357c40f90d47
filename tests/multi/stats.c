/*
 * coll_comm_stats(): every call that has ended is counted once, whatever path it took, with its bytes, in the row of
 * its transport and way. The flight recorder's ring goes round several times. Ranks are threads of this process.
 *
 * usage: stats TRANSPORT [PART-OF-A-TEST'S-NAME]
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/guards.h"
#include "plain.h"
#include "thread_ranks.h"

enum { ROWS = 64, SMALL = 3000, LONG = 40, LONG_COUNT = 100000 };

/* All rows, or those of one way; over: the transport of all of them. */
static coll_stats total(coll_comm *comm, const char *way, const char *over)
{
	coll_stats rows[ROWS] = {COLL_STATS_INIT}, all = COLL_STATS_INIT;
	int n = ROWS;

	CHECK(coll_comm_stats(comm, rows, &n) == COLL_OK && n <= ROWS, "%d rows", n);
	for (int i = 0; i < n && i < ROWS; i++) {
		CHECK(rows[i].struct_size == sizeof(rows[i]) && rows[i].calls > 0 && rows[i].waited_s >= 0);
		CHECK(strcmp(rows[i].way, "unknown") != 0);
		if (way && strcmp(rows[i].way, way) != 0)
			continue;
		CHECK(!over || strcmp(rows[i].transport, over) == 0, "%s, not %s", rows[i].transport, over);
		all.calls += rows[i].calls;
		all.bytes += rows[i].bytes;
		all.waited_s += rows[i].waited_s;
	}
	return all;
}

static const char *to_other(coll_comm *comm, int rank)
{
	return coll_comm_transport(comm, !rank);
}

/* ---- Blocking calls ---- */

static void blocking(coll_comm **at, int rank, void *arg)
{
	coll_comm *comm = *at;
	float *x = calloc(2 * (size_t)LONG_COUNT, sizeof(float));
	uint64_t bytes = 0;
	coll_stats s;

	REQUIRE(x);
	for (int i = 0; i < SMALL; i++)
		CHECK(coll_all_reduce(x, x, 2, COLL_F32, COLL_SUM, comm, NULL) == COLL_OK);
	bytes += (uint64_t)SMALL * 8;
	s = total(comm, NULL, to_other(comm, rank));
	CHECK(s.calls == SMALL && s.bytes == bytes, "%d and %d", (int)s.calls, (int)s.bytes);
	for (int i = 0; i < LONG; i++) {
		CHECK(coll_all_reduce(x, x, LONG_COUNT, COLL_F32, COLL_SUM, comm, NULL) == COLL_OK);
		CHECK(coll_all_gather(x + rank * 5, x, 5, COLL_F32, comm, NULL) == COLL_OK);
		CHECK(coll_gather(x, x + 100, 7, COLL_F64, 1, comm, NULL) == COLL_OK);
		CHECK(coll_barrier(comm, NULL) == COLL_OK);
		CHECK(coll_send_recv(x, 3, !rank, x + 10, 3, !rank, COLL_I16, comm, NULL) == COLL_OK);
	}
	/* A send and a receive are two. */
	bytes += LONG * (LONG_COUNT * 4ull + 2 * 5 * 4 + (rank == 1 ? 2 : 1) * 7 * 8 + 2 * 3 * 2);
	s = total(comm, NULL, to_other(comm, rank));
	CHECK(s.calls == SMALL + LONG * 6 && s.bytes == bytes, "%d and %d, not %d", (int)s.calls, (int)s.bytes,
	      (int)bytes);
	s = total(comm, "send-recv", NULL);
	CHECK(s.calls == LONG * 2 && s.bytes == LONG * 12);
	free(x);
}

TEST(stats, each_call_counts_once)
{
	coll_comm *comms[2];

	REQUIRE(create(comms, 2));
	each_rank(comms, 2, blocking, NULL);
	each_rank(comms, 2, destroys, NULL);
}

/* ---- In streams, groups, persistent, with tags ---- */

static void elsewhere(coll_comm **at, int rank, void *arg)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_comm *comm = *at;
	coll_operation *op;
	coll_stream *stream;
	coll_request *req;
	double x[8] = {0}, y[8];
	uint64_t calls = 0;
	coll_stats s;

	CHECK(coll_stream_create(&stream, comm) == COLL_OK);
	d.in = d.out = x;
	d.count = 4;
	d.type = COLL_F64;
	CHECK(coll_operation_prepare(&op, &d, comm) == COLL_OK);
	calls = total(comm, NULL, NULL).calls;
	CHECK(calls == 1, "the preparation");
	for (int i = 0; i < 700; i++) {
		CHECK(coll_all_reduce(x, x, 8, COLL_F64, COLL_MAX, comm, stream) == COLL_OK);
		CHECK(coll_operation_start(op, NULL) == COLL_OK && coll_operation_wait(op, -1) == COLL_OK);
		CHECK(coll_irecv(y, 1, COLL_F64, !rank, 5, comm, &req) == COLL_OK);
		CHECK(coll_send_tag(x, 1, COLL_F64, !rank, 5, comm, NULL) == COLL_OK);
		CHECK(coll_request_wait(&req, -1, NULL) == COLL_OK);
		CHECK(coll_group_begin() == COLL_OK);
		CHECK(coll_broadcast(x, x, 8, COLL_F64, 0, comm, stream) == COLL_OK);
		CHECK(coll_scan(x, y, 8, COLL_F64, COLL_SUM, comm, NULL) == COLL_OK);
		CHECK(coll_group_end() == COLL_OK);
		CHECK(coll_stream_wait(stream, -1) == COLL_OK);
		calls += 6;
		s = total(comm, NULL, to_other(comm, rank));
		CHECK(s.calls == calls, "%d, not %d", (int)s.calls, (int)calls);
	}
	CHECK(coll_operation_destroy(&op) == COLL_OK && coll_stream_destroy(&stream) == COLL_OK);
}

TEST(stats, calls_in_flight_count_when_they_end)
{
	coll_comm *comms[2];

	REQUIRE(create(comms, 2));
	each_rank(comms, 2, elsewhere, NULL);
	each_rank(comms, 2, destroys, NULL);
}

/* ---- Time ---- */

/* Rank 1 is late, again and again. */
static void late(coll_comm **at, int rank, void *arg)
{
	const uint64_t began = coll_clock_ns();
	coll_stats s;

	for (int i = 0; i < 50; i++) {
		const uint64_t now = coll_clock_ns();

		while (rank == 1 && coll_clock_ns() - now < 1000000)
			;
		CHECK(coll_barrier(*at, NULL) == COLL_OK);
	}
	s = total(*at, NULL, NULL);
	CHECK(s.calls == 50 && s.bytes == 0);
	CHECK(s.waited_s <= 1.01 * (double)(coll_clock_ns() - began) / 1e9 + 1e-4, "%g s", s.waited_s);
	CHECK(rank == 1 || s.waited_s > 1e-3, "%g s", s.waited_s);
}

TEST(stats, waits_are_timed)
{
	coll_comm *comms[2];

	REQUIRE(create(comms, 2));
	each_rank(comms, 2, late, NULL);
	each_rank(comms, 2, destroys, NULL);
}

/* ---- Arguments ---- */

TEST(stats, rows_and_room)
{
	struct {
		coll_stats row;
		uint64_t more;
	} wide[2] = {{.row = COLL_STATS_INIT, .more = 9}};
	coll_stats rows[2] = {COLL_STATS_INIT};
	coll_comm *comms[1];
	int n = 0;

	REQUIRE(create(comms, 1));
	CHECK(coll_comm_stats(comms[0], NULL, &n) == COLL_OK && n == 0, "%d rows", n);
	CHECK(sum_once(comms[0]) == COLL_OK);
	CHECK(coll_comm_stats(comms[0], NULL, &n) == COLL_OK && n == 1, "%d rows", n);
	rows[0].calls = 77;
	n = 0;
	CHECK(coll_comm_stats(comms[0], rows, &n) == COLL_OK && n == 1 && rows[0].calls == 77, "no room");
	n = 2;
	CHECK(coll_comm_stats(comms[0], rows, &n) == COLL_OK && n == 1 && rows[0].calls == 1);
	CHECK(strcmp(rows[0].transport, "self") == 0, "%s", rows[0].transport);
	n = 2;
	wide[0].row.struct_size = sizeof(wide[0]);
	CHECK(coll_comm_stats(comms[0], &wide[0].row, &n) == COLL_OK && wide[0].row.calls == 1 && wide[0].more == 0);
	CHECK(wide[0].row.struct_size == sizeof(wide[0]));
	rows[0].struct_size = sizeof(rows[0]) - 8;
	CHECK(coll_comm_stats(comms[0], rows, &n) == COLL_ERR_ARGUMENT);
	n = 1;
	CHECK(coll_comm_stats(comms[0], NULL, &n) == COLL_ERR_ARGUMENT);
	n = -1;
	CHECK(coll_comm_stats(comms[0], rows, &n) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_stats(comms[0], rows, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_stats(NULL, rows, &n) == COLL_ERR_ARGUMENT);
	coll_comm_destroy(&comms[0]);
}

PROGRAM(stats, "TRANSPORT")
{
	if (!COLL_GUARDS)
		return plain_skip_all("a build without guards counts nothing");
	threads_over(argv[1]);
	return 2;
}
