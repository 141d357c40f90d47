/*
 * What a small call costs a rank whose peer has already arrived, in instructions: 8-byte all_reduces of two
 * ranks over shared memory, of which rank 0 is traced, one instruction after another, from before the call until
 * after it. A count, not a time; the least of a few calls, since a peer that was held up is waited for.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "meeting.h"
#include "plain.h"

/* The limit is that of one instruction set and an optimizing compiler. Elsewhere a step may end the reservation of a
 * load-and-store pair, and a loop of such never comes to its end. */
#if defined(__x86_64__) && defined(__OPTIMIZE__)
enum { LIMIT_HOLDS = true };
#else
enum { LIMIT_HOLDS = false };
#endif
/* The first calls choose between ways. */
enum { WARM = 100, TRACED = 9, AHEAD_US = 2000, STEPS_MAX = 100000, LIMIT = 200 };

static struct shared {
	atomic_int calling;   /* the call that rank 1 begins */
	atomic_int inside[2]; /* a rank is in a call */
	atomic_int wrong;
	struct meeting meeting;
} * shared;

static void one_call(coll_comm *comm, int call, int rank)
{
	const float in[2] = {(float)call, 1};
	float out[2];
	coll_status st;

	atomic_store_explicit(&shared->inside[rank], 1, memory_order_relaxed);
	st = coll_all_reduce(in, out, 2, COLL_F32, COLL_SUM, comm, NULL);
	atomic_store_explicit(&shared->inside[rank], 0, memory_order_relaxed);
	if (st != COLL_OK || out[0] != 2 * in[0] || out[1] != 2)
		atomic_fetch_add(&shared->wrong, 1);
}

static void run_rank(const void *arg, int rank)
{
	/* Who has arrived polls until the other comes, and need not be woken. */
	static const char *const settings[] = {"COLL_TRANSPORTS=shm", "COLL_SPIN_US=1000000", NULL};
	coll_comm *comm;
	int call = 0;

	if (rank == 0 && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(0);
	comm = meeting_world(&shared->meeting, rank, 2, settings);
	while (++call <= WARM)
		one_call(comm, call, rank);
	if (rank == 0)
		raise(SIGSTOP);
	for (; call <= WARM + TRACED; call++) {
		if (rank == 1)
			atomic_store(&shared->calling, call);
		while (atomic_load(&shared->calling) < call)
			usleep(100);
		if (rank == 0)
			usleep(AHEAD_US);
		one_call(comm, call, rank);
	}
	coll_comm_destroy(&comm);
	_exit(0);
}

/* Whether it stands at a further instruction. */
static bool step(pid_t child)
{
	int status;

	return ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 && waitpid(child, &status, 0) == child &&
	       WIFSTOPPED(status);
}

/* The instructions of the next call of rank 0, which stands between two; -1: it has ended, or is lost. */
static int count_call(pid_t child)
{
	int steps = 0;

	while (!atomic_load(&shared->inside[0]))
		if (!step(child))
			return -1;
	while (atomic_load(&shared->inside[0]))
		if (++steps > STEPS_MAX || !step(child))
			return -1;
	return steps;
}

TEST(instructions, eight_bytes_of_two_ranks)
{
	int least = STEPS_MAX, status;
	pid_t pids[2];

	if (!LIMIT_HOLDS)
		SKIP("the limit is that of another machine, or of optimized code");
	meeting_start(pids, 2, shared, sizeof(*shared), run_rank, NULL);
	if (waitpid(pids[0], &status, 0) != pids[0] || !WIFSTOPPED(status)) {
		kill(pids[1], SIGKILL);
		waitpid(pids[1], NULL, 0);
		SKIP("no process can be traced here");
	}
	for (int i = 0; i < TRACED; i++) {
		const int steps = count_call(pids[0]);

		CHECK(steps > 20, "call %d: %d instructions", i, steps);
		if (steps > 0 && steps < least)
			least = steps;
	}
	ptrace(PTRACE_DETACH, pids[0], NULL, NULL);
	for (int r = 0; r < 2; r++) {
		waitpid(pids[r], &status, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d", r);
	}
	printf("     %d instructions\n", least);
	CHECK(atomic_load(&shared->wrong) == 0, "%d results", atomic_load(&shared->wrong));
	CHECK(least <= LIMIT, "%d instructions, at most %d", least, LIMIT);
}

PROGRAM(instructions, "")
{
	shared = meeting_page(sizeof(*shared));
	return argc;
}
