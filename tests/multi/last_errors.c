/*
 * One verdict for one fault: a rank is stopped, and only one other waits for it. Those who wait for that one, and for
 * those in turn, on communicators that the stopped rank is no member of, name the stopped rank, and not who ended
 * because of it: whether those say goodbye or not.
 *
 * usage: last_errors TRANSPORT [TEST]
 */
#include "processes.h"

enum { RANKS = 5, STOPPED = 2 };

static coll_comm *of(coll_comm *world, const int *ranks, int n)
{
	coll_comm *comm = NULL;
	int32_t x = 1;

	MUST(coll_comm_create_from_ranks(world, ranks, n, &comm) == COLL_OK, "%s", coll_last_error(world)->message);
	MUST(!comm || coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_OK, "%s",
	     coll_last_error(comm)->message);
	return comm;
}

/* Rank 0 waits for the stopped one, rank 1 for rank 0, rank 3 for rank 1, and rank 4 for rank 1 where the stopped one
 * is a member, too. */
static void waiting_rank(const void *arg, int rank)
{
	const bool *says_goodbye = arg;
	const char *more[] = {"COLL_TIMEOUT_MS=1500", "COLL_ARRIVAL_TIMEOUT_MS=60000", NULL};
	coll_comm *world = processes_world(rank, RANKS, rank % 2, more);
	coll_comm *with = of(world, (int[]){STOPPED, 0}, 2), *without = of(world, (int[]){0, 1}, 2);
	coll_comm *behind = of(world, (int[]){1, 3}, 2), *also = of(world, (int[]){4, 1, STOPPED}, 3);
	coll_comm *mine = rank == 0 ? with : rank == 1 ? without : rank == 3 ? behind : also;
	int32_t x = 1;
	coll_status st;

	processes_meet(RANKS);
	while (rank == STOPPED || !atomic_load(&processes->struck_ns))
		usleep(1000);
	st = rank == 4 ? coll_recv(&x, 1, COLL_I32, 1, mine, NULL)
	               : coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, mine, NULL);
	processes_report(rank, st, mine);
	if (*says_goodbye) {
		coll_comm_destroy(&with);
		coll_comm_destroy(&without);
		coll_comm_destroy(&behind);
		coll_comm_destroy(&also);
		coll_comm_destroy(&world);
	}
	_exit(0);
}

static void all_name_the_stopped(bool says_goodbye)
{
	const int blamed[RANKS] = {0, -1, -1, -1, 2}; /* its rank on the communicator of each */
	pid_t pids[RANKS];

	processes_start(pids, RANKS, waiting_rank, &says_goodbye);
	CHECK(processes_reach(&processes->ready, RANKS));
	kill(pids[STOPPED], SIGSTOP);
	atomic_store(&processes->struck_ns, coll_clock_ns());
	for (int r = 0; r < RANKS; r++) {
		const struct process_report *p = &processes->report[r];

		if (r == STOPPED)
			continue;
		CHECK(processes_reach(&p->done, 1), "rank %d hangs", r);
		/* Of a message to one that is gone the status says so. */
		CHECK((p->status == COLL_ERR_PEER_SILENT || (r == 4 && p->status == COLL_ERR_PEER_DEAD)) &&
		              p->culprit == blamed[r] && processes_named(p->message, STOPPED) &&
		              strstr(p->message, "is silent"),
		      "rank %d: status %d, blames %d: %s", r, p->status, p->culprit, p->message);
	}
	kill(pids[STOPPED], SIGKILL);
	processes_reap(pids, RANKS, STOPPED);
}

/* Rank 0 finds that rank 2 is silent, where rank 1 is no member, and goes on with rank 1 until it ends. */
static void rank_that_goes_on(const void *arg, int rank)
{
	const char *more[] = {"COLL_TIMEOUT_MS=1500", "COLL_ARRIVAL_TIMEOUT_MS=60000", NULL};
	coll_comm *world = processes_world(rank, 3, rank % 2, more);
	coll_comm *with = of(world, (int[]){STOPPED, 0}, 2), *without = of(world, (int[]){0, 1}, 2);
	coll_status st = COLL_OK;
	int32_t x = 1;
	uint64_t until;

	processes_meet(3);
	while (rank == STOPPED || !atomic_load(&processes->struck_ns))
		usleep(1000);
	if (rank == 0)
		processes_report(0, coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, with, NULL), with);
	until = coll_clock_ns() + 1000000000;
	while (st == COLL_OK && (rank == 1 || coll_clock_ns() < until)) {
		st = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_MIN, without, NULL);
		usleep(1000);
	}
	if (rank == 1)
		processes_report(1, st, without);
	_exit(0);
}

TEST(last_errors, of_one_that_goes_on_explain_nothing)
{
	const struct process_report *p = &processes->report[1];
	pid_t pids[3];

	processes_start(pids, 3, rank_that_goes_on, NULL);
	CHECK(processes_reach(&processes->ready, 3));
	kill(pids[STOPPED], SIGSTOP);
	atomic_store(&processes->struck_ns, coll_clock_ns());
	CHECK(processes_reach(&processes->report[0].done, 1) && processes_reach(&p->done, 1));
	CHECK(processes->report[0].status == COLL_ERR_PEER_SILENT, "%s", processes->report[0].message);
	CHECK(p->status == COLL_ERR_PEER_DEAD && p->culprit == 0 && !strstr(p->message, "after an error"), "%d: %s",
	      p->status, p->message);
	kill(pids[STOPPED], SIGKILL);
	processes_reap(pids, 3, STOPPED);
}

TEST(last_errors, of_ranks_that_say_goodbye)
{
	all_name_the_stopped(true);
}

TEST(last_errors, of_ranks_that_just_end)
{
	all_name_the_stopped(false);
}

PROGRAM(last_errors, "TRANSPORT [TEST]")
{
	processes_begin(argv[1], sizeof(struct processes));
	return 2;
}
