/*
 * A job of ranks that are processes, for tests of what one does to the others: the page that all share, the
 * communicator of all, what a rank reports, how long the test waits. One job at a time. On the simulated machine
 * (sim/jobs) the processes are simulated. What the job is for is the test's own.
 */
#ifndef COLL_TESTS_MULTI_PROCESSES_H
#define COLL_TESTS_MULTI_PROCESSES_H

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "meeting.h"
#include "plain.h"
#include "starved.h"

enum { PROCESSES_PATIENCE_S = 120, PROCESSES_REACH_S = 60 };

/* The first member of what a test's ranks share. */
struct processes {
	struct meeting meeting;
	atomic_int ready;            /* ranks that have come so far as the test wants */
	atomic_int failures;         /* MUST()s that did not hold, in all ranks */
	atomic_int errors;           /* lines of errors in the logs of all ranks; 0 with VERBOSE */
	_Atomic uint64_t struck_ns;  /* when the fault was */
	_Atomic uint64_t starved_ns; /* of the ranks that have reported */
	struct process_report {
		atomic_int done;
		coll_status status;
		int culprit;
		uint64_t ns;
		char message[1024];
	} report[MEETING_RANKS_MAX];
};

static struct processes *processes;
static size_t processes_bytes;
static const char *transport; /* or "mixed": shm between some ranks, tcp between the others */

/* For PROGRAM(): what all share, of a type that begins with struct processes; zeroed for each job. */
static inline void *processes_begin(const char *name, size_t len_bytes)
{
	transport = name;
	processes_bytes = len_bytes;
	return processes = meeting_page(len_bytes);
}

/* ---- In a rank ---- */

#define MUST(cond, ...)                                                          \
	do {                                                                     \
		if (!(cond) && atomic_fetch_add(&processes->failures, 1) < 20) { \
			printf("     %s:%d: ", __FILE__, __LINE__);              \
			printf(__VA_ARGS__);                                     \
			printf("\n");                                            \
			fflush(stdout);                                          \
		}                                                                \
	} while (0)

static inline void processes_log(void *arg, int level, const char *line)
{
	atomic_fetch_add((atomic_int *)arg, level == 0);
}

/* The communicator of all. host: where the transport is mixed; more: settings, ended by NULL, or NULL. */
static inline coll_comm *processes_world(int rank, int size, int host, const char *const *more)
{
	const bool mixed = strcmp(transport, "mixed") == 0;
	char transports[64], of_host[64];
	const char *settings[8] = {transports, "COLL_DEBUG=error", mixed ? of_host : NULL};

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", mixed ? "shm,tcp" : transport);
	snprintf(of_host, sizeof(of_host), "COLL_HOST_ID=processes-%d", host);
	for (int i = mixed ? 3 : 2; more && *more && i < 7; i++)
		settings[i] = *more++;
	return meeting_world_logged(&processes->meeting, rank, size, settings, processes_log, &processes->errors);
}

/* All ranks have come here. */
static inline void processes_meet(int size)
{
	atomic_fetch_add(&processes->ready, 1);
	while (atomic_load(&processes->ready) < size)
		usleep(100);
}

/* What a call on comm (NULL: of its end) said: once. */
static inline void processes_report(int rank, coll_status st, const coll_comm *comm)
{
	struct process_report *r = &processes->report[rank];

	r->ns = coll_clock_ns();
	atomic_fetch_add(&processes->starved_ns, starved_ns());
	r->status = st;
	r->culprit = coll_last_error(comm)->rank;
	snprintf(r->message, sizeof(r->message), "%s", coll_last_error(comm)->message);
	atomic_store(&r->done, 1);
}

/* A text names the dead by its rank in the communicator, where that is the one in the job, and else by both. */
static inline bool processes_named(const char *message, int victim)
{
	char alike[48], other[48];

	snprintf(alike, sizeof(alike), ": rank %d on host ", victim);
	/* In a group that is being made the rank in the job stands alone. */
	snprintf(other, sizeof(other), "rank %d of the job", victim);
	return strstr(message, alike) || strstr(message, other);
}

/* ---- In the test ---- */

static inline void processes_start(pid_t *pids, int size, void (*body)(const void *arg, int rank), const void *arg)
{
	meeting_start(pids, size, processes, processes_bytes, body, arg);
}

static inline bool processes_reach(const atomic_int *what, int least)
{
	const uint64_t until_ns = coll_clock_ns() + PROCESSES_REACH_S * UINT64_C(1000000000);

	while (atomic_load(what) < least && coll_clock_ns() < until_ns)
		usleep(500);
	return atomic_load(what) >= least;
}

static inline void processes_kill(const pid_t *pids, int victim)
{
	atomic_store(&processes->struck_ns, coll_clock_ns());
	kill(pids[victim], SIGKILL);
}

/* Whether a rank heard of the fault in so many milliseconds in which it ran. */
static inline void processes_in_time(uint64_t heard_ns, int limit_ms, const char *who)
{
	const double late_s = ((double)heard_ns - (double)atomic_load(&processes->struck_ns)) * 1e-9;

	CHECK(late_s < limit_ms * 1e-3 + (double)atomic_load(&processes->starved_ns) * 1e-9, "%s after %.3f s", who,
	      late_s);
}

/* All have ended well, but that one was killed (-1: none). A pid of 0: that one is gone. */
static inline void processes_reap(const pid_t *pids, int size, int killed)
{
	const uint64_t begun_ns = coll_clock_ns();
	bool gone[MEETING_RANKS_MAX] = {false};

	for (int left = size; left > 0; usleep(500)) {
		const bool hang = coll_clock_ns() - begun_ns > PROCESSES_PATIENCE_S * UINT64_C(1000000000);

		CHECK(!hang, "ranks hang");
		for (int r = 0; r < size; r++) {
			int status = 0;

			if (hang && !gone[r] && pids[r])
				kill(pids[r], SIGKILL);
			if (gone[r] || (pids[r] && waitpid(pids[r], &status, hang ? 0 : WNOHANG) != pids[r]))
				continue;
			gone[r] = true;
			left--;
			CHECK(hang || (r == killed ? WIFSIGNALED(status) : status == 0), "rank %d of %d: status %x", r,
			      size, (unsigned)status);
		}
	}
	CHECK(atomic_load(&processes->failures) == 0);
}

static inline void processes_run(int size, void (*body)(const void *arg, int rank), const void *arg)
{
	pid_t pids[MEETING_RANKS_MAX];

	processes_start(pids, size, body, arg);
	processes_reap(pids, size, -1);
}

/* A test whose body each rank runs; the last that it does is _exit(0). */
#define TEST_OF_PROCESSES(suite, name, size)                \
	static void name##_rank(const void *arg, int rank); \
	TEST(suite, name)                                   \
	{                                                   \
		processes_run(size, name##_rank, NULL);     \
	}                                                   \
	static void name##_rank(const void *arg, int rank)

#endif
