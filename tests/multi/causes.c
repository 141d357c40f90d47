/*
 * The cause of a failure comes before its consequences: one rank fails and goes at once,
 * while all who could pass its note on are stopped. Another rank, which has a data link with
 * it but by the rule no control link, sees it going long before it can hear why: it must
 * wait for the reason, within the 2 s that are promised, and so must those that were stopped.
 *
 * usage: causes TRANSPORT [PART-OF-A-TEST'S-NAME [TIMES]]
 */
#include "processes.h"

/* Of five ranks 2 and 4 are no neighbours, neither on the ring nor in the tree. */
enum { RANKS = 5, FAILS = 2, SEES = 4, LIMIT_MS = 2000, STOPPED_MS = 600 };
/* For control links of neighbours: who is stopped makes none, and then nobody can be told. */
enum { SETTLED_MS = 300 };

/* How the rank goes that has failed. */
enum manner { IN_ORDER, WITHOUT_A_WORD, KILLED, KILLED_UNTOLD, MANNERS };

struct shared {
	struct processes job;
	atomic_bool go;
};

static struct shared *shared;
static int times = 2;

/* ---- Ranks ---- */

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
	atomic_store(&processes->struck_ns, coll_clock_ns());
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
	coll_comm *comm = processes_world(rank, RANKS, 0, NULL);
	coll_status st = greet(comm, rank);
	int x = 0;

	if (st != COLL_OK)
		_exit(8);
	usleep(SETTLED_MS * 1000);
	atomic_fetch_add(&processes->ready, 1);
	if (rank == FAILS)
		fail(comm, manner);
	st = coll_recv(&x, 1, COLL_I32, FAILS, comm, NULL);
	processes_report(rank, st, comm);
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

static void check_result(int r, enum manner manner)
{
	const bool told = manner != KILLED_UNTOLD;
	const struct process_report *report = &processes->report[r];

	REQUIRE(processes_reach(&report->done, 1), "rank %d hangs", r);
	CHECK(report->status == (told ? COLL_ERR_ABORTED : COLL_ERR_PEER_DEAD) && report->culprit == FAILS &&
	              (!told || strstr(report->message, "the true cause")),
	      "rank %d: status %d, rank %d: %s", r, report->status, report->culprit, report->message);
	processes_in_time(report->ns, LIMIT_MS, report->message);
}

static void one(enum manner manner)
{
	pid_t pids[RANKS];
	int status;

	processes_start(pids, RANKS, body, &manner);
	CHECK(processes_reach(&processes->ready, RANKS), "no start");
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
	pids[FAILS] = 0;
	processes_reap(pids, RANKS, -1);
}

static void several(enum manner manner)
{
	for (int i = 0; i < times; i++)
		one(manner);
}

TEST(causes, in_order)
{
	several(IN_ORDER);
}

TEST(causes, without_a_word)
{
	several(WITHOUT_A_WORD);
}

TEST(causes, killed)
{
	several(KILLED);
}

/* Nobody can say it for sure: named all the same, and in time. */
TEST(causes, killed_untold)
{
	several(KILLED_UNTOLD);
}

PROGRAM(causes, "TRANSPORT [TEST [TIMES]]")
{
	times = argc > 3 ? atoi(argv[3]) : times;
	shared = processes_begin(argv[1], sizeof(*shared));
	return 2;
}
