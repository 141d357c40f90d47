/*
 * A rank is killed or stopped in the middle of calls on buffers that all ranks map, or that
 * the kernel reads for the others: each survivor's call ends in time with an error that names it, and its buffers are
 * its own from then on, also when the stopped one goes on with what it was writing. Ranks are forked. Times are read
 * only to check the bound that users are promised. A process that lives on without its first thread, which the kernel
 * does not read, has not died.
 *
 * usage: direct_death [SEED]
 */
#include <pthread.h>
#include <sched.h>
#include <sys/uio.h>

#include "core/comm.h"
#include "intra/zero_copy.h"
#include "processes.h"

enum { RANKS_MAX = 4, COUNT = 1 << 20, BLOCK = COUNT / 2, WARM = 4, LIMIT_S = 20, TIMEOUT_MS = 500 };

struct shared {
	struct processes job;
	atomic_int warm;  /* calls that ended before the fault */
	atomic_int ended; /* survivors whose call has ended, and whose buffers are refilled */
	atomic_int look;  /* the victim has gone on */
	atomic_int victim_status;
	uint64_t direct[RANKS_MAX], parted[RANKS_MAX];
};

static struct shared *shared;

struct run {
	int size, victim, sig;
	/* all_reduce; all_gather in plain memory; broadcast; all_to_all in plain memory */
	enum what { SUMS, BLOCKS_PULLED, VECTORS, EXCHANGED } what;
	unsigned seed, after_us;
};

/* ---- One rank ---- */

static void refill(int *in, int *out, int value)
{
	for (int i = 0; i < COUNT; i++)
		in[i] = out[i] = value;
}

/* What a rank is to find at the beginning and the end of a block from rank r. */
static int mark(int round, int r)
{
	return round * 8 + r;
}

/* In plain memory: two ranks gather, more that share cores exchange. The blocks of calls that did not fail are right.
 */
static coll_status blocks_until_struck(coll_comm *comm, int rank, int *in, int *out)
{
	const int size = coll_comm_size(comm);
	const bool gathers = size == 2;
	const int n = gathers ? COUNT : BLOCK;
	coll_status st = COLL_OK;

	for (int round = 0; st == COLL_OK; round++) {
		for (int r = 0; r < (gathers ? 1 : size); r++)
			in[r * n] = in[(r + 1) * n - 1] = mark(round, rank) * 8 + r;
		st = gathers ? coll_all_gather(in, out, COUNT, COLL_I32, comm, NULL)
		             : coll_all_to_all(in, out, BLOCK, COLL_I32, comm, NULL);
		for (int r = 0; st == COLL_OK && r < size; r++)
			if (out[r * n] != mark(round, r) * 8 + (gathers ? 0 : rank) ||
			    out[(r + 1) * n - 1] != out[r * n])
				MUST(false, "round %d: %d", round, out[r * n]);
		if (round < WARM)
			atomic_fetch_add(&shared->warm, 1);
	}
	return st;
}

/* Of two ranks, each of which stores a part of the other's result. */
static coll_status broadcast_until_struck(coll_comm *comm, int rank, int *in, int *out)
{
	coll_status st = COLL_OK;

	for (int round = 0; st == COLL_OK; round++) {
		int *at = round % 4 < 2 ? in : out;

		if (rank == round % 2)
			at[0] = at[COUNT - 1] = mark(round, rank);
		st = coll_broadcast(at, at, COUNT, COLL_I32, round % 2, comm, NULL);
		if (st == COLL_OK && (at[0] != mark(round, round % 2) || at[COUNT - 1] != at[0]))
			MUST(false, "round %d: %d, %d", round, at[0], at[COUNT - 1]);
		if (round < WARM)
			atomic_fetch_add(&shared->warm, 1);
	}
	return st;
}

/* Calls until one fails; the sums of those that did not are right. */
static coll_status until_struck(coll_comm *comm, int rank, int *in, int *out)
{
	const int size = coll_comm_size(comm);
	coll_status st = COLL_OK;

	for (int round = 0; st == COLL_OK; round++) {
		int *to = round % 2 ? in : out;

		in[0] = in[COUNT - 1] = round + rank; /* most of the time is to be spent in the call */
		st = coll_all_reduce(in, to, COUNT, COLL_I32, COLL_SUM, comm, NULL);
		if (st == COLL_OK && (to[0] != size * round + size * (size - 1) / 2 || to[COUNT - 1] != to[0]))
			MUST(false, "round %d: %d", round, to[0]);
		if (round < WARM)
			atomic_fetch_add(&shared->warm, 1);
	}
	return st;
}

static void survive(const struct run *run, coll_comm *comm, int rank, int *in, int *out, coll_status st)
{
	const coll_status expected = run->sig == SIGKILL ? COLL_ERR_PEER_DEAD : COLL_ERR_PEER_SILENT;
	size_t wrong = 0;

	processes_report(rank, st, comm);
	MUST(st == expected && coll_last_error(comm)->rank == run->victim, "rank %d: %s", rank,
	     coll_last_error(comm)->message);
	refill(in, out, 0x5a5a5a5a);
	atomic_fetch_add(&shared->ended, 1);
	while (!atomic_load(&shared->look))
		usleep(200);
	for (int i = 0; i < COUNT; i++)
		wrong += (in[i] != 0x5a5a5a5a) + (out[i] != 0x5a5a5a5a);
	MUST(wrong == 0, "rank %d: %zu elements were written after the call had returned", rank, wrong);
}

static bool is_pulled(const struct run *run)
{
	return run->what == BLOCKS_PULLED || run->what == EXCHANGED;
}

/* So that ranks share cores. */
static void squeeze(void)
{
	cpu_set_t all, two;

	CPU_ZERO(&two);
	sched_getaffinity(0, sizeof(all), &all);
	for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&two) < 2; c++)
		if (CPU_ISSET(c, &all))
			CPU_SET(c, &two);
	sched_setaffinity(0, sizeof(two), &two);
}

/* Input and result, of all blocks where they are plain. */
static coll_status buffers(const struct run *run, coll_comm *comm, void **in, void **out)
{
	coll_status st;

	if (is_pulled(run)) {
		*in = calloc(RANKS_MAX * BLOCK, sizeof(int));
		*out = calloc(2 * COUNT, sizeof(int));
		return *in && *out ? COLL_OK : COLL_ERR_MEMORY;
	}
	st = coll_mem_alloc(comm, in, COUNT * sizeof(int));
	return st == COLL_OK ? coll_mem_alloc(comm, out, COUNT * sizeof(int)) : st;
}

static void run_rank(const void *arg, int rank)
{
	static coll_status (*const until[])(coll_comm *, int, int *, int *) = {
	        until_struck, blocks_until_struck, broadcast_until_struck, blocks_until_struck};
	const struct run *run = arg;
	const char *more[] = {"COLL_TIMEOUT_MS=500", is_pulled(run) ? "COLL_SHM_COPY=cma" : NULL, NULL};
	coll_comm *comm;
	void *in = NULL, *out = NULL;
	coll_status st;

	if (run->what == EXCHANGED)
		squeeze();
	comm = processes_world(rank, run->size, 0, more);
	st = buffers(run, comm, &in, &out);
	MUST(st == COLL_OK, "rank %d: %s", rank, coll_last_error(comm)->message);
	if (st == COLL_OK)
		st = until[run->what](comm, rank, in, out);
	if (rank == run->victim)
		atomic_store(&shared->victim_status, (int)st);
	else
		survive(run, comm, rank, in, out, st);
	shared->direct[rank] = is_pulled(run) ? coll_intra_stats(comm->intra)->cma_read / (COUNT * sizeof(int))
	                                      : coll_intra_stats(comm->intra)->direct;
	shared->parted[rank] = coll_intra_stats(comm->intra)->parted;
	coll_comm_destroy(&comm);
	_exit(0);
}

/* ---- All ranks ---- */

static void strike(const struct run *run, pid_t victim)
{
	CHECK(processes_reach(&shared->warm, WARM * run->size), "seed %u: it does not begin", run->seed);
	usleep(run->after_us);
	atomic_store(&processes->struck_ns, coll_clock_ns());
	kill(victim, run->sig);
	CHECK(processes_reach(&shared->ended, run->size - 1), "seed %u: %d of %d calls end", run->seed,
	      atomic_load(&shared->ended), run->size - 1);
	if (run->sig == SIGSTOP) {
		kill(victim, SIGCONT);
		CHECK(processes_reach(&shared->victim_status, 1), "seed %u: the victim's call does not end", run->seed);
	}
	atomic_store(&shared->look, 1);
}

static void once(const struct run *run, uint64_t *parted)
{
	pid_t pids[RANKS_MAX];

	processes_start(pids, run->size, run_rank, run);
	strike(run, pids[run->victim]);
	processes_reap(pids, run->size, run->sig == SIGKILL ? run->victim : -1);
	for (int r = 0; r < run->size; r++) {
		if (r == run->victim)
			continue;
		CHECK(shared->direct[r] >= WARM, "seed %u: %llu calls", run->seed,
		      (unsigned long long)shared->direct[r]);
		processes_in_time(processes->report[r].ns, run->sig == SIGKILL ? 2000 : 2000 + TIMEOUT_MS,
		                  "a rank heard");
		*parted += shared->parted[r];
	}
}

static void rounds(int sig, int n, enum what what, unsigned *seed)
{
	uint64_t parted = 0;

	for (int i = 0; i < n; i++) {
		struct run run = {.size = what == SUMS        ? 2 + i % 3
		                          : what == EXCHANGED ? 3 + i % 2
		                                              : 2,
		                  .sig = sig,
		                  .what = what,
		                  .seed = *seed};

		*seed = *seed * 1103515245u + 12345u;
		run.victim = (int)((*seed >> 8) % (unsigned)run.size);
		run.after_us = (*seed >> 10) % 15000;
		once(&run, &parted);
	}
	printf("     %llu pages were left to stopped writers\n",
	       (unsigned long long)parted / (unsigned long long)sysconf(_SC_PAGESIZE));
}

static unsigned seed = 1;

TEST(zero_copy_death, killed)
{
	rounds(SIGKILL, 8, SUMS, &seed);
}

TEST(zero_copy_death, stopped)
{
	rounds(SIGSTOP, 8, SUMS, &seed);
}

TEST(zero_copy_death, killed_in_a_broadcast)
{
	rounds(SIGKILL, 4, VECTORS, &seed);
}

TEST(zero_copy_death, stopped_in_a_broadcast)
{
	rounds(SIGSTOP, 4, VECTORS, &seed);
}

/* As between ranks: neither of the two is the other's parent, which some kernels ask for. */
static bool processes_read_each_other(void)
{
	pid_t read = fork(), reader;
	int status = 1;

	if (read == 0) {
		pause();
		_exit(0);
	}
	reader = fork();
	if (reader == 0) {
		char here = 0;
		struct iovec to = {&here, 1}, from = {&seed, 1};

		_exit(process_vm_readv(read, &to, 1, &from, 1, 0) != 1);
	}
	waitpid(reader, &status, 0);
	kill(read, SIGKILL);
	waitpid(read, NULL, 0);
	return status == 0;
}

static void rounds_pulled(int sig, int n, enum what what)
{
	if (!processes_read_each_other())
		SKIP("processes may not read each other here");
	rounds(sig, n, what, &seed);
}

TEST(zero_copy_death, killed_while_pulled)
{
	rounds_pulled(SIGKILL, 8, BLOCKS_PULLED);
}

TEST(zero_copy_death, stopped_while_pulled)
{
	rounds_pulled(SIGSTOP, 4, BLOCKS_PULLED);
}

TEST(zero_copy_death, killed_in_an_exchange)
{
	rounds_pulled(SIGKILL, 8, EXCHANGED);
}

TEST(zero_copy_death, stopped_in_an_exchange)
{
	rounds_pulled(SIGSTOP, 4, EXCHANGED);
}

/* ---- A process that lives on without its first thread ---- */

/* The kernel reads nobody's memory by the number of a thread that has ended. */
static bool unreadable(void)
{
	const uint64_t until = coll_clock_ns() + LIMIT_S * 1000000000ull;
	char from = 1, to;
	struct iovec here = {&to, 1}, there = {&from, 1};

	while (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1)
		if (coll_clock_ns() > until || usleep(100) != 0)
			return false;
	return true;
}

static void *go_on_alone(void *arg)
{
	const char *settings[] = {"COLL_SHM_COPY=cma", NULL};
	const int rank = *(const int *)arg;
	coll_comm *comm = processes_world(rank, 2, 0, settings);
	int *in = calloc(COUNT, sizeof(*in)), *out = calloc(2 * COUNT, sizeof(*out));
	coll_status st = coll_all_gather(in, out, COUNT, COLL_I32, comm, NULL);

	atomic_fetch_add(&shared->warm, 1);
	MUST(rank != 1 || unreadable(), "its first thread does not end");
	for (int i = 0; i < 4 && st == COLL_OK; i++) {
		in[0] = in[COUNT - 1] = mark(i, rank);
		st = coll_all_gather(in, out, COUNT, COLL_I32, comm, NULL);
		for (int r = 0; r < 2; r++)
			MUST(out[r * COUNT] == mark(i, r) && out[(r + 1) * COUNT - 1] == mark(i, r), "call %d: %d", i,
			     out[r * COUNT]);
	}
	MUST(st == COLL_OK, "%s", coll_last_error(comm)->message);
	coll_comm_destroy(&comm);
	_exit(0);
}

static void run_without_first_thread(const void *arg, int rank)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, go_on_alone, &rank) != 0)
		_exit(9);
	if (rank == 0)
		pthread_join(thread, NULL);
	while (atomic_load(&shared->warm) < 2)
		usleep(100);
	pthread_exit(NULL);
}

TEST(zero_copy_death, first_thread_ends)
{
	processes_run(2, run_without_first_thread, NULL);
}

PROGRAM(zero_copy_death, "[SEED]")
{
	seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : (unsigned)(coll_clock_ns() / 1000);
	printf("     seed %u\n", seed);
	shared = processes_begin("shm", sizeof(*shared));
	return argc;
}
