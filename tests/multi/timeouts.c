/*
 * coll_comm_set_timeout(), and the ranks that are late: all of them, in the error and in its text, on
 * every rank. Ranks are threads of this process.
 *
 * usage: timeouts TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include <stdatomic.h>

#include "async_ranks.h"

enum { LATE_MS = 700 };

static atomic_int failed; /* ranks that have their error */

static void check_late(const coll_error *e, const int *ranks, int n)
{
	CHECK(e->status == COLL_ERR_PEER_LATE, "%s", e->message);
	CHECK(e->late_count == n && e->late, "%d late: %s", e->late_count, e->message);
	for (int i = 0; i < n && i < e->late_count; i++)
		CHECK(e->late[i] == ranks[i], "%d: %d", i, e->late[i]);
}

/* Ranks 0 and 3 call; the others come when those have failed. */
static void some_are_late(coll_comm *comm, int rank, void *arg)
{
	const bool punctual = rank == 0 || rank == 3;
	const bool on_stream = *(bool *)arg;
	coll_stream *s = NULL;
	coll_comm *child;
	int x = 1;

	OK(comm, coll_comm_set_timeout(comm, -1, LATE_MS));
	OK(comm, coll_comm_duplicate(comm, &child));
	if (punctual) {
		coll_status st;

		if (on_stream) {
			OK(comm, coll_stream_create(&s, comm));
			OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child, s));
			st = coll_stream_wait(s, -1);
		} else {
			st = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child, NULL);
		}
		CHECK(st == COLL_ERR_PEER_LATE, "%s", coll_status_string(st));
		check_late(coll_last_error(child), (const int[]){1, 2, 4}, 3);
		CHECK(strstr(coll_last_error(child)->message, "ranks 1, 2 and 4 have not called all_reduce"), "%s",
		      coll_last_error(child)->message);
		coll_stream_destroy(&s);
		atomic_fetch_add(&failed, 1);
	}
	while (atomic_load(&failed) < 2)
		sched_yield();
	if (!punctual)
		CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child, NULL) == COLL_ERR_PEER_LATE);
	coll_comm_destroy(&child);
	/* The parent is as before. */
	OK(comm, coll_barrier(comm, NULL));
	CHECK(coll_last_error(comm)->late_count == 0);
}

TEST(timeouts, all_late_ranks)
{
	for (int on_stream = 0; on_stream < 2; on_stream++) {
		bool arg = on_stream;

		atomic_store(&failed, 0);
		run_ranks_badly(5, some_are_late, &arg, NULL);
	}
}

static void one_is_late(coll_comm *comm, int rank, void *arg)
{
	int x = 1;

	if (rank == 0) {
		OK(comm, coll_comm_set_timeout(comm, -1, LATE_MS));
		CHECK(coll_recv(&x, 1, COLL_I32, 1, comm, NULL) == COLL_ERR_PEER_LATE);
		check_late(coll_last_error(comm), (const int[]){1}, 1);
		atomic_fetch_add(&failed, 1);
	}
	while (atomic_load(&failed) == 0)
		sched_yield();
}

TEST(timeouts, a_late_peer)
{
	atomic_store(&failed, 0);
	run_ranks_badly(3, one_is_late, NULL, NULL);
}

/* The limit counts for what is pending already; -1 gives back the setting. */
static void while_pending(coll_comm *comm, int rank, void *arg)
{
	coll_stream *s;
	int x = 1;

	OK(comm, coll_stream_create(&s, comm));
	if (rank == 0) {
		OK(comm, coll_comm_set_timeout(comm, 50, 50));
		OK(comm, coll_comm_set_timeout(comm, -1, -1));
		OK(comm, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, s));
		CHECK(coll_stream_wait(s, LATE_MS) == COLL_AGAIN, "10 minutes are the setting");
		OK(comm, coll_comm_set_timeout(comm, -1, LATE_MS));
		CHECK(coll_stream_wait(s, -1) == COLL_ERR_PEER_LATE);
		atomic_fetch_add(&failed, 1);
	}
	while (atomic_load(&failed) == 0)
		sched_yield();
	coll_stream_destroy(&s);
}

TEST(timeouts, a_pending_call)
{
	atomic_store(&failed, 0);
	run_ranks_badly(2, while_pending, NULL, NULL);
}

static atomic_int warnings;

static void count_warning(const char *line)
{
	atomic_fetch_add(&warnings, strstr(line, "for any rank to send") != NULL);
}

/* Rank 1 sends behind the limit for late ranks, which this wait has not; rank 2 has left by then. */
static void anybody(coll_comm *comm, int rank, void *arg)
{
	int x = 7;

	if (rank == 1) {
		usleep(3 * LATE_MS * 1000);
		OK(comm, coll_send_tag(&x, 1, COLL_I32, 0, 1, comm, NULL));
	}
	if (rank != 0)
		return;
	OK(comm, coll_comm_set_timeout(comm, -1, LATE_MS));
	OK(comm, coll_recv_tag(&x, 1, COLL_I32, COLL_ANY_SOURCE, 1, comm, NULL));
	CHECK(atomic_load(&warnings) == 1, "%d warnings", atomic_load(&warnings));
	/* Now both have left, or are about to. */
	CHECK(coll_recv_tag(&x, 1, COLL_I32, COLL_ANY_SOURCE, 1, comm, NULL) == COLL_ERR_PEER_DEAD);
	CHECK(strstr(coll_last_error(comm)->message, "no rank is left that could send this message"), "%s",
	      coll_last_error(comm)->message);
	CHECK(coll_last_error(comm)->elapsed_s < 2, "%g s", coll_last_error(comm)->elapsed_s);
}

TEST(timeouts, any_source)
{
	atomic_store(&warnings, 0);
	heard = count_warning;
	further[1] = "COLL_DEBUG=warn";
	run_ranks_badly(3, anybody, NULL, "COLL_WARN_MS=200");
	further[1] = NULL;
	heard = NULL;
}

TEST_OF_RANKS(timeouts, limits, 2, 2)
{
	CHECK(coll_comm_set_timeout(NULL, 1, 1) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_set_timeout(comm, 0, 1) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_set_timeout(comm, 1, 0) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_set_timeout(comm, -2, 1) == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_set_timeout(comm, 1, -2) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "arrival_timeout_ms is -2"), "%s", coll_last_error(comm)->message);
	OK(comm, coll_barrier(comm, NULL));
}

ASYNC_PROGRAM(timeouts)
