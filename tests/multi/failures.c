/*
 * What users see when a rank dies, stops, is late, leaves or aborts: N forked
 * processes in a loop of all-reduces over the transport named on the command line.
 * Every survivor must return by itself, in time, with an error that names the
 * culprit. Times are read only to check the documented bounds, which are seconds.
 *
 * usage: failures TRANSPORT [SCENARIO]
 */
#include "processes.h"

enum { RANKS_MAX = 8 };

struct shared {
	struct processes job;
	atomic_int calls[RANKS_MAX]; /* completed, so that the parent waits on a condition */
	char transport[RANKS_MAX][16];
};

static struct shared *shared;
static pid_t pids[RANKS_MAX];

/* What a rank does before each call: return false to stop calling. */
typedef bool (*behaviour)(coll_comm *comm, int rank, int call);

struct scenario {
	int size;
	size_t count;
	const char *timeout;
	behaviour before;
	int calls; /* 0: until an error */
};

static void run_rank(const void *arg, int rank)
{
	const struct scenario *s = arg;
	char timeout[64];
	const char *more[] = {timeout, "COLL_ARRIVAL_TIMEOUT_MS=60000", NULL};
	float *x = calloc(s->count + 1, sizeof(*x));
	coll_status st = COLL_OK;
	coll_comm *comm;

	snprintf(timeout, sizeof(timeout), "COLL_TIMEOUT_MS=%s", s->timeout ? s->timeout : "30000");
	comm = processes_world(rank, s->size, rank % 2, more);
	snprintf(shared->transport[rank], sizeof(shared->transport[rank]), "%s",
	         coll_comm_transport(comm, (rank + 1) % s->size));
	for (int i = 0; st == COLL_OK && (s->calls == 0 || i < s->calls); i++) {
		if (s->before && !s->before(comm, rank, i))
			break;
		for (size_t k = 0; k < s->count; k++)
			x[k] = 1;
		st = coll_all_reduce(x, x, s->count, COLL_F32, COLL_SUM, comm, NULL);
		if (st == COLL_OK && (x[0] != (float)s->size || x[s->count - 1] != (float)s->size))
			st = COLL_ERR_INTERNAL; /* wrong data is the worst outcome */
		atomic_fetch_add(&shared->calls[rank], st == COLL_OK);
	}
	processes_report(rank, st, comm);
	coll_comm_destroy(&comm);
	free(x);
	_exit(0);
}

static void start(const struct scenario *s)
{
	processes_start(pids, s->size, run_rank, s);
}

static void warmed_up(const struct scenario *s)
{
	for (int r = 0; r < s->size; r++)
		CHECK(processes_reach(&shared->calls[r], 20));
	CHECK(strcmp(shared->transport[0], strcmp(transport, "mixed") ? transport : "tcp") == 0, "uses %s",
	      shared->transport[0]);
}

/* What a rank has reported, now or soon. */
static const struct process_report *reported(int r)
{
	CHECK(processes_reach(&processes->report[r].done, 1), "rank %d hangs", r);
	return &processes->report[r];
}

/* All but the victim report status and culprit within limit_ms of the signal. */
static void strike(const struct scenario *s, int victim, int signal, coll_status status, int limit_ms)
{
	atomic_store(&processes->struck_ns, coll_clock_ns());
	kill(pids[victim], signal);
	for (int r = 0; r < s->size; r++) {
		if (r == victim)
			continue;
		CHECK(reported(r)->status == status && reported(r)->culprit == victim,
		      "rank %d: status %d culprit %d: %s", r, reported(r)->status, reported(r)->culprit,
		      reported(r)->message);
		processes_in_time(reported(r)->ns, limit_ms, reported(r)->message);
	}
	kill(pids[victim], SIGCONT);
}

static void all_are(const struct scenario *s, coll_status status, const char *text)
{
	for (int r = 0; r < s->size; r++)
		CHECK(reported(r)->status == status && strstr(reported(r)->message, text), "rank %d: status %d: %s", r,
		      reported(r)->status, reported(r)->message);
}

/* Of real processes one may be kept from running for longer than a rank waits before it logs. */
static void logged_once(void)
{
#ifdef COLL_SIM_JOBS
	CHECK(getenv("VERBOSE") || atomic_load(&processes->errors) == 1, "%d ranks log an error",
	      atomic_load(&processes->errors));
#endif
}

static void killed(int size, int victim, size_t count)
{
	const struct scenario s = {.size = size, .count = count};

	start(&s);
	warmed_up(&s);
	strike(&s, victim, SIGKILL, COLL_ERR_PEER_DEAD, 2000);
	logged_once();
	processes_reap(pids, size, victim);
}

TEST(failures, killed_small)
{
	for (int victim = 0; victim < 4; victim++)
		killed(4, victim, 2);
}

TEST(failures, killed_large)
{
	for (int victim = 0; victim < 4; victim++)
		killed(4, victim, 1 << 20);
}

TEST(failures, killed_of_two)
{
	killed(2, 1, 100);
	killed(2, 0, 300000);
}

TEST(failures, stopped)
{
	const struct scenario s = {.size = 4, .count = 1000, .timeout = "1500"};

	start(&s);
	warmed_up(&s);
	strike(&s, 1, SIGSTOP, COLL_ERR_PEER_SILENT, 3500);
	processes_reap(pids, s.size, -1);
}

/* Stopped for less than the timeout: nobody notices. */
TEST(failures, paused)
{
	const struct scenario s = {.size = 3, .count = 5000, .timeout = "5000", .calls = 3000};

	start(&s);
	for (int i = 0; i < 3; i++) {
		CHECK(processes_reach(&shared->calls[2], 20 * (i + 1)));
		kill(pids[i], SIGSTOP);
		usleep(700000);
		kill(pids[i], SIGCONT);
	}
	all_are(&s, COLL_OK, "");
	processes_reap(pids, s.size, -1);
}

static bool sleeps(coll_comm *comm, int rank, int call)
{
	if (rank == 2 && call == 5)
		usleep(3000000);
	return true;
}

/* Later than timeout_ms, but alive: no failure. */
TEST(failures, late)
{
	const struct scenario s = {.size = 4, .count = 1000, .timeout = "1000", .before = sleeps, .calls = 10};

	start(&s);
	all_are(&s, COLL_OK, "");
	processes_reap(pids, s.size, -1);
}

static bool aborts(coll_comm *comm, int rank, int call)
{
	if (rank == 1 && call == 30)
		coll_comm_abort(comm, "loss is not a number");
	return true;
}

TEST(failures, aborted)
{
	const struct scenario s = {.size = 4, .count = 1000, .before = aborts};

	start(&s);
	all_are(&s, COLL_ERR_ABORTED, "loss is not a number");
	processes_reap(pids, s.size, -1);
}

static bool leaves(coll_comm *comm, int rank, int call)
{
	return rank != 3 || call < 30;
}

/* A rank that ends early: the others hear that it left. */
TEST(failures, left)
{
	const struct scenario s = {.size = 4, .count = 1000, .before = leaves};

	start(&s);
	atomic_store(&processes->struck_ns, reported(3)->ns);
	for (int r = 0; r < 3; r++) {
		CHECK(reported(r)->status != COLL_OK && reported(r)->status != COLL_ERR_INTERNAL,
		      "rank %d: status %d: %s", r, reported(r)->status, reported(r)->message);
		processes_in_time(reported(r)->ns, 8000, reported(r)->message);
	}
	processes_reap(pids, s.size, -1);
}

PROGRAM(failures, "TRANSPORT [SCENARIO]")
{
	shared = processes_begin(argv[1], sizeof(*shared));
	return 2;
}
