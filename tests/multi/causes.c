/*
 * The cause of a failure comes before its consequences: one rank fails and goes at once,
 * while all who could pass its note on are stopped. Another rank, which has a data link with
 * it but by the rule no control link, sees it going long before it can hear why: it must
 * wait for the reason, within the 2 s that are promised, and so must those that were stopped.
 *
 * usage: causes TRANSPORT [PART-OF-A-TEST'S-NAME [TIMES]]
 */
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

/* Of five ranks 2 and 4 are no neighbours, neither on the ring nor in the tree. */
enum { RANKS = 5, FAILS = 2, SEES = 4, LIMIT_MS = 2000, STOPPED_MS = 600 };

/* How the rank goes that has failed. */
enum manner { IN_ORDER, WITHOUT_A_WORD, KILLED, KILLED_UNTOLD, MANNERS };

struct shared {
	atomic_int ready;
	atomic_bool go;
	_Atomic uint64_t failed_ns;
	_Atomic uint64_t starved_ns; /* of those that were told */
	struct {
		atomic_int done;
		uint64_t ns;
		coll_status status;
		int culprit;
		char message[600];
	} result[RANKS];
	struct meeting meeting;
};

static struct shared *shared;
static const char *transport;
static int times = 2;

/* ---- Ranks ---- */

static coll_comm *create(int rank)
{
	char transports[64];
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	return meeting_world(&shared->meeting, rank, RANKS, settings);
}

/* A message each way between all pairs, so that all have links of the data path. */
static coll_status greet(coll_comm *comm, int rank)
{
	coll_status st = COLL_OK;
	int x = rank, y;

	for (int d = 1; st == COLL_OK && d < RANKS; d++)
		st = coll_send_recv(&x, 1, (rank + d) % RANKS, &y, 1, (rank + RANKS - d) % RANKS, COLL_I32, comm, NULL);
	return st;
}

static void fail(coll_comm *comm, enum manner manner)
{
	while (!atomic_load(&shared->go))
		usleep(100);
	atomic_store(&shared->failed_ns, coll_clock_ns());
	if (manner != KILLED_UNTOLD)
		coll_comm_abort(comm, "the true cause");
	if (manner == IN_ORDER)
		coll_comm_destroy(&comm);
	if (manner == KILLED || manner == KILLED_UNTOLD)
		raise(SIGKILL);
	_exit(0);
}

static void body(const void *arg, int rank)
{
	const enum manner manner = *(const enum manner *)arg;
	coll_comm *comm = create(rank);
	coll_status st = greet(comm, rank);
	int x = 0;

	if (st != COLL_OK)
		_exit(8);
	atomic_fetch_add(&shared->ready, 1);
	if (rank == FAILS)
		fail(comm, manner);
	st = coll_recv(&x, 1, COLL_I32, FAILS, comm, NULL);
	shared->result[rank].ns = coll_clock_ns();
	atomic_fetch_add(&shared->starved_ns, starved_ns());
	shared->result[rank].status = st;
	shared->result[rank].culprit = coll_last_error(comm)->rank;
	snprintf(shared->result[rank].message, sizeof(shared->result[rank].message), "%s",
	         coll_last_error(comm)->message);
	atomic_store(&shared->result[rank].done, 1);
	coll_comm_destroy(&comm);
	_exit(0);
}

/* ---- The course of events ---- */

static bool is_relay(int rank)
{
	return rank != FAILS && rank != SEES;
}

static void signal_relays(const pid_t *pids, int signal)
{
	for (int r = 0; r < RANKS; r++)
		if (is_relay(r))
			kill(pids[r], signal);
	for (int r = 0; r < RANKS && signal == SIGSTOP; r++)
		if (is_relay(r))
			waitpid(pids[r], NULL, WUNTRACED);
}

static bool until(atomic_int *what, int value)
{
	for (int tick = 0; atomic_load(what) < value && tick < 20000; tick++)
		usleep(1000);
	return atomic_load(what) >= value;
}

static void check_result(int r, enum manner manner)
{
	const bool told = manner != KILLED_UNTOLD;
	double late;

	CHECK(until(&shared->result[r].done, 1), "rank %d hangs", r);
	if (!atomic_load(&shared->result[r].done))
		return;
	late = (double)(shared->result[r].ns - atomic_load(&shared->failed_ns)) * 1e-9;
	CHECK(shared->result[r].status == (told ? COLL_ERR_ABORTED : COLL_ERR_PEER_DEAD) &&
	              shared->result[r].culprit == FAILS &&
	              (!told || strstr(shared->result[r].message, "the true cause")),
	      "rank %d: status %d, rank %d: %s", r, shared->result[r].status, shared->result[r].culprit,
	      shared->result[r].message);
	CHECK(late < LIMIT_MS * 1e-3 + (double)atomic_load(&shared->starved_ns) * 1e-9, "rank %d: after %.3f s: %s", r,
	      late, shared->result[r].message);
}

static void one(enum manner manner)
{
	pid_t pids[RANKS];
	int status;

	meeting_start(pids, RANKS, shared, sizeof(*shared), body, &manner);
	CHECK(until(&shared->ready, RANKS), "no start");
	signal_relays(pids, SIGSTOP);
	atomic_store(&shared->go, true);
	CHECK(waitpid(pids[FAILS], &status, 0) == pids[FAILS] &&
	              (manner >= KILLED ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0),
	      "status %x", status);
	/* The test's subject is this time: nobody can know the cause as long as it lasts. Of a death
	 * that nobody was told of the rest need not be there. */
	usleep(STOPPED_MS * 1000);
	if (manner == KILLED_UNTOLD)
		check_result(SEES, manner);
	signal_relays(pids, SIGCONT);
	for (int r = 0; r < RANKS; r++)
		if (r == SEES || (is_relay(r) && manner != KILLED_UNTOLD))
			check_result(r, manner);
	for (int r = 0; r < RANKS; r++) {
		if (r == FAILS)
			continue;
		for (int tick = 0; tick < 10000 && waitpid(pids[r], NULL, WNOHANG) != pids[r]; tick++)
			usleep(1000);
		kill(pids[r], SIGKILL); /* if it hangs; else it is gone already */
		waitpid(pids[r], NULL, 0);
	}
}

static void in_order(void)
{
	one(IN_ORDER);
}

static void without_a_word(void)
{
	one(WITHOUT_A_WORD);
}

static void killed(void)
{
	one(KILLED);
}

/* Nobody can say it for sure: named all the same, and in time. */
static void killed_untold(void)
{
	one(KILLED_UNTOLD);
}

PROGRAM(causes, "TRANSPORT [TEST [TIMES]]")
{
	static const struct {
		const char *name;
		void (*run)(void);
	} tests[] = {
	        {"in_order", in_order},
	        {"without_a_word", without_a_word},
	        {"killed", killed},
	        {"killed_untold", killed_untold},
	};

	transport = argc > 1 ? argv[1] : "tcp";
	times = argc > 3 ? atoi(argv[3]) : times;
	shared = meeting_page(sizeof(*shared));
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		for (int k = 0; k < times; k++)
			if (argc < 3 || strstr(tests[i].name, argv[2]))
				plain_run(transport, tests[i].name, tests[i].run);
	return argc;
}
