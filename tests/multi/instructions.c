/*
 * What a small call costs, in counts, not in times. Of a rank whose peer has already arrived, instructions: 8-byte
 * all_reduces of two ranks over shared memory, of which rank 0 is traced, one instruction after another, from before
 * the call until after it. Of a rank whose peer arrives while it yields their common core, reads of the clock. The
 * least of some calls, since a peer that was held up is waited for.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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
enum { WARM = 100, TRACED = 9, AHEAD_US = 2000, STEPS_MAX = 100000, LIMIT = 200, YIELDING = 300 };

static struct shared {
	atomic_int calling;   /* the call that rank 1 begins */
	atomic_int inside[2]; /* a rank is in a call */
	atomic_int wrong;
	atomic_int yielded, came; /* the call in which rank 0 has yielded, and that rank 1 has made */
	atomic_int least_clocks;  /* of rank 0, in a call in which it yielded */
	struct meeting meeting;
} * shared;

/* Of this thread, in a call of rank 0 that waits. */
static __thread bool watched;
static __thread int yields, clocks;

/* In place of the C library's. A yield lasts until rank 1 has made the call. */
int sched_yield(void)
{
	const int call = atomic_load(&shared->calling);

	if (!watched || yields++ > 0)
		return (int)syscall(SYS_sched_yield);
	atomic_store(&shared->yielded, call);
	while (atomic_load(&shared->came) < call)
		syscall(SYS_sched_yield);
	return 0;
}

int clock_gettime(clockid_t which, struct timespec *now)
{
	clocks += watched;
	return (int)syscall(SYS_clock_gettime, which, now);
}

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

static void share_a_core(const void *arg, int rank)
{
	static const char *const settings[] = {"COLL_TRANSPORTS=shm", "COLL_TEST_CORES=1", NULL};
	coll_comm *comm = meeting_world(&shared->meeting, rank, 2, settings);

	if (rank == 0)
		atomic_store(&shared->least_clocks, STEPS_MAX);
	for (int call = 1; call <= WARM; call++)
		one_call(comm, call, rank);
	for (int call = WARM + 1; call <= WARM + YIELDING; call++) {
		while (rank == 1 && atomic_load(&shared->yielded) < call)
			syscall(SYS_sched_yield);
		if (rank == 0)
			atomic_store(&shared->calling, call);
		yields = clocks = 0;
		watched = rank == 0;
		one_call(comm, call, rank);
		watched = false;
		if (rank == 1)
			atomic_store(&shared->came, call);
		else if (yields == 1 && clocks < atomic_load(&shared->least_clocks))
			atomic_store(&shared->least_clocks, clocks);
	}
	coll_comm_destroy(&comm);
	_exit(0);
}

/* A peer that comes during the first yield of a call ends it, and what is counted for people costs no clock. */
TEST(instructions, a_call_that_ends_behind_a_yield_reads_no_clock)
{
	pid_t pids[2];
	int status;

	meeting_start(pids, 2, shared, sizeof(*shared), share_a_core, NULL);
	for (int r = 0; r < 2; r++) {
		waitpid(pids[r], &status, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d", r);
	}
	CHECK(atomic_load(&shared->wrong) == 0, "%d results", atomic_load(&shared->wrong));
	CHECK(atomic_load(&shared->least_clocks) == 0, "%d reads of the clock", atomic_load(&shared->least_clocks));
}

PROGRAM(instructions, "")
{
	shared = meeting_page(sizeof(*shared));
	return argc;
}
