/*
 * What users see when a rank dies, stops, is late, leaves or aborts: N forked
 * processes in a loop of all-reduces over the transport named on the command line.
 * Every survivor must return by itself, in time, with an error that names the
 * culprit. Times are read only to check the documented bounds, which are seconds.
 *
 * usage: failures TRANSPORT [SCENARIO [TIMES]]
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "meeting.h"
#include "plain.h"
#include "starved.h"

enum { RANKS_MAX = 8 };

/* What parent and ranks share. */
struct shared {
	atomic_int calls[RANKS_MAX]; /* completed, so that the parent waits on a condition */
	atomic_int go;
	_Atomic uint64_t starved_ns; /* of all ranks that have reported */
	struct result {
		atomic_int done;
		coll_status status;
		int culprit;
		uint64_t ns;
		char message[512];
		char transport[16];
	} result[RANKS_MAX];
	struct meeting meeting;
};

static struct shared *shared;
static const char *transport;
static pid_t pids[RANKS_MAX];

/* What a rank does before each call: return false to stop calling. */
typedef bool (*behaviour)(coll_comm *comm, int rank, int call);

struct scenario {
	int size;
	size_t count;
	const char *timeout, *hook;
	behaviour before;
	int calls; /* 0: until an error */
};

static void report(int rank, coll_status st, const coll_error *e)
{
	struct result *r = &shared->result[rank];

	r->status = st;
	r->culprit = e->rank;
	r->ns = coll_clock_ns();
	atomic_fetch_add(&shared->starved_ns, starved_ns());
	snprintf(r->message, sizeof(r->message), "%s", e->message);
	atomic_store(&r->done, 1);
}

static void run_rank(const void *arg, int rank)
{
	const struct scenario *s = arg;
	const bool mixed = strcmp(transport, "mixed") == 0;
	char transports[64], timeout[64], host[40];
	const char *settings[] = {transports, timeout, "COLL_ARRIVAL_TIMEOUT_MS=60000", "COLL_DEBUG=error", host,
	                          s->hook,    NULL};
	struct meeting_seat seat = {&shared->meeting, rank, s->size};
	coll_config cfg = COLL_CONFIG_INIT;
	float *x = calloc(s->count + 1, sizeof(*x));
	coll_comm *comm = NULL;
	coll_status st;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", mixed ? "shm,tcp" : transport);
	snprintf(host, sizeof(host), "COLL_HOST_ID=failures-%d", mixed ? rank % 2 : 0);
	snprintf(timeout, sizeof(timeout), "COLL_TIMEOUT_MS=%s", s->timeout ? s->timeout : "30000");
	meeting_sit(&seat, &cfg);
	cfg.settings = settings;
	if (!freopen("/dev/null", "w", stderr))
		_exit(9);
	st = coll_comm_create(&comm, &cfg);
	if (st != COLL_OK) {
		report(rank, st, coll_last_error(NULL));
		_exit(1);
	}
	snprintf(shared->result[rank].transport, sizeof(shared->result[rank].transport), "%s",
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
	report(rank, st, coll_last_error(comm));
	coll_comm_destroy(&comm);
	free(x);
	_exit(0);
}

static void start(const struct scenario *s)
{
	meeting_start(pids, s->size, shared, sizeof(*shared), run_rank, s);
}

/* Wait (bounded) until cond holds. */
#define UNTIL(cond, seconds)                                                    \
	do {                                                                    \
		for (int tick_ = 0; !(cond) && tick_ < (seconds)*1000; tick_++) \
			usleep(1000);                                           \
		CHECK(cond, "not within %d s", seconds);                        \
	} while (0)

static void finish(const struct scenario *s)
{
	for (int r = 0; r < s->size; r++) {
		kill(pids[r], SIGCONT);
		if (waitpid(pids[r], NULL, WNOHANG) != pids[r]) {
			for (int i = 0; i < 10000 && waitpid(pids[r], NULL, WNOHANG) != pids[r]; i++)
				usleep(1000);
			kill(pids[r], SIGKILL);
			waitpid(pids[r], NULL, 0);
		}
	}
}

static void warmed_up(const struct scenario *s)
{
	for (int r = 0; r < s->size; r++)
		UNTIL(atomic_load(&shared->calls[r]) >= 20, 20);
	CHECK(strcmp(shared->result[0].transport, strcmp(transport, "mixed") ? transport : "tcp") == 0, "uses %s",
	      shared->result[0].transport);
}

/* All but the victim report status and culprit within limit_ms of then. */
static void survivors(const struct scenario *s, int victim, uint64_t then, coll_status status, int limit_ms)
{
	for (int r = 0; r < s->size; r++) {
		const struct result *res = &shared->result[r];

		if (r == victim)
			continue;
		UNTIL(atomic_load(&res->done), limit_ms / 1000 + 5);
		CHECK(res->status == status && res->culprit == victim, "rank %d: status %d culprit %d: %s", r,
		      res->status, res->culprit, res->message);
		CHECK(res->ns < then ||
		              res->ns - then < (uint64_t)limit_ms * 1000000 + atomic_load(&shared->starved_ns),
		      "rank %d took %.3f s", r, (double)(res->ns - then) * 1e-9);
	}
}

static void killed(int size, int victim, size_t count)
{
	struct scenario s = {.size = size, .count = count};
	uint64_t then;

	start(&s);
	warmed_up(&s);
	then = coll_clock_ns();
	kill(pids[victim], SIGKILL);
	survivors(&s, victim, then, COLL_ERR_PEER_DEAD, 2000);
	finish(&s);
}

static void killed_small(void)
{
	for (int victim = 0; victim < 4; victim++)
		killed(4, victim, 2);
}

static void killed_large(void)
{
	for (int victim = 0; victim < 4; victim++)
		killed(4, victim, 1 << 20);
}

static void killed_of_two(void)
{
	killed(2, 1, 100);
	killed(2, 0, 300000);
}

static void stopped(void)
{
	struct scenario s = {.size = 4, .count = 1000, .timeout = "1500"};
	uint64_t then;

	start(&s);
	warmed_up(&s);
	then = coll_clock_ns();
	kill(pids[1], SIGSTOP);
	survivors(&s, 1, then, COLL_ERR_PEER_SILENT, 3500);
	finish(&s);
}

/* Stopped for less than the timeout: nobody notices. */
static void paused(void)
{
	struct scenario s = {.size = 3, .count = 5000, .timeout = "5000", .calls = 3000};

	start(&s);
	for (int i = 0; i < 3; i++) {
		UNTIL(atomic_load(&shared->calls[2]) >= 20 * (i + 1), 20);
		kill(pids[i], SIGSTOP);
		usleep(700000);
		kill(pids[i], SIGCONT);
	}
	for (int r = 0; r < s.size; r++) {
		UNTIL(atomic_load(&shared->result[r].done), 30);
		CHECK(shared->result[r].status == COLL_OK, "rank %d: %s", r, shared->result[r].message);
	}
	finish(&s);
}

static bool sleeps(coll_comm *comm, int rank, int call)
{
	if (rank == 2 && call == 5)
		usleep(3000000);
	return true;
}

/* Later than timeout_ms, but alive: no failure. */
static void late(void)
{
	struct scenario s = {.size = 4, .count = 1000, .timeout = "1000", .before = sleeps, .calls = 10};

	start(&s);
	for (int r = 0; r < s.size; r++) {
		UNTIL(atomic_load(&shared->result[r].done), 20);
		CHECK(shared->result[r].status == COLL_OK, "rank %d: %s", r, shared->result[r].message);
	}
	finish(&s);
}

static bool aborts(coll_comm *comm, int rank, int call)
{
	if (rank == 1 && call == 30)
		coll_comm_abort(comm, "loss is not a number");
	return true;
}

static void aborted(void)
{
	struct scenario s = {.size = 4, .count = 1000, .before = aborts};

	start(&s);
	for (int r = 0; r < s.size; r++) {
		const struct result *res = &shared->result[r];

		UNTIL(atomic_load(&res->done), 20);
		CHECK(res->status == COLL_ERR_ABORTED && strstr(res->message, "loss is not a number"),
		      "rank %d: status %d: %s", r, res->status, res->message);
	}
	finish(&s);
}

static bool leaves(coll_comm *comm, int rank, int call)
{
	return rank != 3 || call < 30;
}

/* A rank that ends early: the others hear that it left. */
static void left(void)
{
	struct scenario s = {.size = 4, .count = 1000, .before = leaves};
	uint64_t then;

	start(&s);
	UNTIL(atomic_load(&shared->result[3].done), 20);
	then = coll_clock_ns();
	for (int r = 0; r < 3; r++) {
		UNTIL(atomic_load(&shared->result[r].done), 20);
		CHECK(shared->result[r].status != COLL_OK && shared->result[r].status != COLL_ERR_INTERNAL,
		      "rank %d: status %d: %s", r, shared->result[r].status, shared->result[r].message);
		CHECK(shared->result[r].ns < then || shared->result[r].ns - then < 8000000000u, "rank %d", r);
	}
	finish(&s);
}

static bool differs(coll_comm *comm, int rank, int call)
{
	float x[4] = {0};

	if (rank == 1 && call == 25) {
		coll_broadcast(x, x, 4, COLL_F32, 0, comm, NULL);
		return false;
	}
	return true;
}

/* One rank makes another call: an error that names two ranks and both calls. */
static void mismatched(void)
{
	struct scenario s = {.size = 3, .count = 1000, .before = differs};

	start(&s);
	for (int r = 0; r < s.size; r++) {
		const struct result *res = &shared->result[r];

		UNTIL(atomic_load(&res->done), 10);
		if (r != 1)
			CHECK(res->status == COLL_ERR_MISMATCH && strstr(res->message, "broadcast") &&
			              strstr(res->message, "all_reduce"),
			      "rank %d: status %d: %s", r, res->status, res->message);
	}
	finish(&s);
}

#define SCENARIO(fn)    \
	{               \
#fn, fn \
	}
static const struct {
	const char *name;
	void (*fn)(void);
} scenarios[] = {
        SCENARIO(killed_small), SCENARIO(killed_large), SCENARIO(killed_of_two), SCENARIO(stopped),    SCENARIO(paused),
        SCENARIO(late),         SCENARIO(aborted),      SCENARIO(left),          SCENARIO(mismatched),
};

PROGRAM(failures, "TRANSPORT [SCENARIO [TIMES]]")
{
	transport = argc > 1 ? argv[1] : "tcp";
	shared = meeting_page(sizeof(*shared));
	for (int times = argc > 3 ? atoi(argv[3]) : 1; times > 0; times--)
		for (size_t i = 0; i < sizeof(scenarios) / sizeof(*scenarios); i++)
			if (argc < 3 || strcmp(argv[2], scenarios[i].name) == 0)
				plain_run("", scenarios[i].name, scenarios[i].fn);
	return argc;
}
