/*
 * Failures while asynchronous work is in flight: forked ranks with several operations on
 * two streams, on two communicators. One rank is killed, stopped, aborts, or calls something
 * else; everything that depends on it must end on every survivor, in time, with an error that
 * names it; what does not depend on it must go on; and no buffer changes once its wait has
 * returned. Times are read only to check the bound that users are promised.
 *
 * usage: async_death TRANSPORT on|off [kill|stop|abort|differ [SEED]]
 */
#include <pthread.h>
#include <sched.h>

#include "processes.h"

enum { RANKS_MAX = 4, OPS = 3, COUNT_MAX = 60000, CANARY = 0x5a5a5a5a, LIMIT_S = 30 };

enum mode { KILL, STOP, ABORT, DIFFER, MODES };
static const char *const mode_names[MODES] = {"kill", "stop", "abort", "differ"};

struct run {
	enum mode mode;
	int size, victim, rounds, polls;
	unsigned seed;
};

static const char *progress;

/* ---- One rank ---- */

struct rank {
	const struct run *run;
	int rank;
	coll_comm *comm[2];
	coll_stream *stream[2];
	int *x[2][OPS];
	coll_status told[2]; /* by calls of the last round */
};

static size_t count_of(int op)
{
	static const size_t counts[OPS] = {1, COUNT_MAX, 700};

	return counts[op];
}

/* All operations of both streams; the second stream's communicator comes first on every
 * other rank. In the victim's last round the last one is missing, so that those of the others
 * cannot end well, or is another call. */
static coll_status put_in(struct rank *r, int round, bool last)
{
	const enum mode m = r->run->mode;
	const bool differ = last && m == DIFFER;
	coll_status st = COLL_OK;

	for (int k = 0; k < 2; k++) {
		const int i = (k + r->rank) % 2;
		const bool misses = last && (m == KILL || m == STOP || (m == ABORT && i == 0));

		for (int op = 0; op < OPS - misses; op++) {
			const size_t count = count_of(op) - (differ && i == 0 && op == OPS - 1);
			int *const x = r->x[i][op];
			coll_status s;

			for (size_t e = 0; e < count_of(op); e++)
				x[e] = round + r->rank;
			s = coll_all_reduce(x, x, count, COLL_I32, COLL_SUM, r->comm[i], r->stream[i]);
			st = st ? st : s;
			r->told[i] = r->told[i] ? r->told[i] : s;
		}
	}
	return st;
}

static void check_sums(struct rank *r, int i, int round)
{
	const int n = r->run->size, sum = n * round + n * (n - 1) / 2;

	for (int op = 0; op < OPS; op++)
		for (size_t e = 0; e < count_of(op); e++)
			if (r->x[i][op][e] != sum) {
				MUST(false, "rank %d: round %d communicator %d operation %d [%zu]: %d, not %d", r->rank,
				     round, i, op, e, r->x[i][op][e], sum);
				return;
			}
}

static void *abort_now(void *arg)
{
	coll_comm_abort(arg, "asked to");
	return NULL;
}

/* What the victim does, with operations in flight. */
static void strike(struct rank *r)
{
	pthread_t t;

	for (int i = 0; i < r->run->polls; i++)
		coll_progress(r->comm[0]);
	atomic_store(&processes->struck_ns, coll_clock_ns());
	if (r->run->mode == KILL)
		raise(SIGKILL);
	if (r->run->mode == STOP)
		raise(SIGSTOP);
	if (r->run->mode == ABORT) {
		pthread_create(&t, NULL, abort_now, r->comm[0]);
		pthread_join(t, NULL);
	}
}

/* The wait for a stream that must end badly. */
static void check_end(struct rank *r, int i)
{
	static const coll_status expected[MODES] = {COLL_ERR_PEER_DEAD, COLL_ERR_PEER_SILENT, COLL_ERR_ABORTED,
	                                            COLL_ERR_MISMATCH};
	const coll_status st = coll_stream_wait(r->stream[i], LIMIT_S * 1000), wanted = expected[r->run->mode];
	const bool aborter = r->rank == r->run->victim && r->run->mode == ABORT;
	const coll_status told = r->told[i];
	const coll_error *e = coll_last_error(r->comm[i]);
	coll_status again;
	int x = 0;

	MUST(!told || told == wanted, "rank %d: a call on communicator %d: %s", r->rank, i, coll_status_string(told));
	/* What the aborting rank has put in may have been over by then, also what the others had
	 * when one of their calls was told already. */
	MUST(st == wanted || ((aborter || told) && st == COLL_OK), "rank %d: stream %d: %s, communicator: %s", r->rank,
	     i, coll_status_string(st), e->message);
	again = coll_stream_query(r->stream[i]);
	MUST(again == st, "rank %d: stream %d: %s, then %s", r->rank, i, coll_status_string(st),
	     coll_status_string(again));
	again = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, r->comm[i], r->stream[i]);
	e = coll_last_error(r->comm[i]);
	MUST(again == wanted && e->status == again, "rank %d: communicator %d: a later call says %s: %s", r->rank, i,
	     coll_status_string(again), e->message);
	MUST(r->run->mode == DIFFER || e->rank == r->run->victim, "rank %d: communicator %d: rank %d is blamed: %s",
	     r->rank, i, e->rank, e->message);
	/* The buffers are ours. */
	for (int op = 0; op < OPS; op++)
		for (size_t k = 0; k < count_of(op); k++)
			r->x[i][op][k] = CANARY;
}

static void check_canaries(struct rank *r, int i)
{
	for (int op = 0; op < OPS; op++)
		for (size_t k = 0; k < count_of(op); k++)
			if (r->x[i][op][k] != CANARY) {
				MUST(false, "rank %d: communicator %d operation %d: [%zu] was written after the wait",
				     r->rank, i, op, k);
				return;
			}
}

static void live(struct rank *r)
{
	const struct run *run = r->run;
	const bool both = run->mode == KILL || run->mode == STOP, victim = r->rank == run->victim;
	coll_status st = COLL_OK;
	int round = 0;

	for (; round < run->rounds; round++) {
		st = put_in(r, round, false);
		for (int i = 0; i < 2 && st == COLL_OK; i++)
			st = coll_stream_wait(r->stream[i], -1);
		for (int i = 0; i < 2 && st == COLL_OK; i++)
			check_sums(r, i, round);
		MUST(st == COLL_OK, "rank %d: round %d: %s", r->rank, round, coll_last_error(r->comm[0])->message);
		if (st != COLL_OK)
			return;
	}
	processes_meet(run->size);
	/* A call may already be told what has happened. */
	(void)put_in(r, round, victim);
	if (victim)
		strike(r);
	check_end(r, 0);
	if (both)
		check_end(r, 1);
	processes_report(r->rank, st, r->comm[0]);
	if (!both) {
		/* The other communicator lives. */
		st = coll_stream_wait(r->stream[1], LIMIT_S * 1000);
		if (st == COLL_OK)
			check_sums(r, 1, round);
		for (int k = 0; k < 3 && st == COLL_OK; k++)
			st = coll_barrier(r->comm[1], k % 2 ? r->stream[1] : NULL);
		if (st == COLL_OK)
			st = coll_stream_wait(r->stream[1], -1);
		MUST(st == COLL_OK, "rank %d: the other communicator: %s", r->rank,
		     coll_last_error(r->comm[1])->message);
	}
	for (int i = 0; i < 2; i++) {
		coll_stream_destroy(&r->stream[i]);
		coll_comm_destroy(&r->comm[i]);
	}
	for (int i = 0; i < 2; i++)
		if (i == 0 || both)
			check_canaries(r, i);
}

static void run_rank(const void *arg, int rank)
{
	const struct run *run = arg;
	char thread[64];
	const char *more[] = {thread, "COLL_TIMEOUT_MS=1000", "COLL_ARRIVAL_TIMEOUT_MS=60000", NULL};
	struct rank r = {.run = run, .rank = rank};

	snprintf(thread, sizeof(thread), "COLL_PROGRESS=%s", progress);
	for (int i = 0; i < 2; i++)
		for (int op = 0; op < OPS; op++)
			r.x[i][op] = malloc(count_of(op) * sizeof(int));
	r.comm[0] = processes_world(rank, run->size, 0, more);
	if (coll_comm_duplicate(r.comm[0], &r.comm[1]) == COLL_OK &&
	    coll_stream_create(&r.stream[0], r.comm[0]) == COLL_OK &&
	    coll_stream_create(&r.stream[1], r.comm[1]) == COLL_OK)
		live(&r);
	else
		MUST(false, "rank %d: %s", rank, coll_last_error(r.comm[0])->message);
	for (int i = 0; i < 2; i++)
		for (int op = 0; op < OPS; op++)
			free(r.x[i][op]);
	_exit(0);
}

/* ---- All ranks ---- */

static void all_ranks(const struct run *run)
{
	const bool dies = run->mode == KILL || run->mode == STOP;
	pid_t pids[RANKS_MAX];
	char which[80];

	processes_start(pids, run->size, run_rank, run);
	snprintf(which, sizeof(which), "%s of %d, seed %u: a rank heard of it", mode_names[run->mode], run->size,
	         run->seed);
	for (int r = 0; r < run->size; r++) {
		if (dies && r == run->victim)
			continue;
		CHECK(processes_reach(&processes->report[r].done, 1), "%s: rank %d hangs", which, r);
		/* A silent rank is given its timeout on top. */
		if (run->mode != DIFFER)
			processes_in_time(processes->report[r].ns, run->mode == STOP ? 3000 : 2000, which);
	}
	if (run->mode == STOP)
		kill(pids[run->victim], SIGKILL);
	processes_reap(pids, run->size, dies ? run->victim : -1);
}

static unsigned seed = 1;
static enum mode mode;

static void campaign(void)
{
	const int times = mode == STOP ? 1 : 4;

	for (int n = 2; n <= RANKS_MAX; n++)
		for (int i = 0; i < times; i++, seed++) {
			unsigned s = seed * 2654435761u;
			const struct run run = {.mode = mode,
			                        .size = n,
			                        .seed = seed,
			                        .victim = (int)((s >> 4) % (unsigned)n),
			                        .rounds = (int)((s >> 12) % 6),
			                        .polls = (int)((s >> 20) % 4) * 40};

			all_ranks(&run);
		}
}

PROGRAM(async_death, "TRANSPORT on|off [kill|stop|abort|differ [SEED]]")
{
	progress = argv[2];
	if (argc > 4)
		seed = (unsigned)strtoul(argv[4], NULL, 0);
	processes_begin(argv[1], sizeof(*processes));
	printf("seeds from %u\n", seed);
	for (int m = 0; m < MODES; m++) {
		mode = (enum mode)m;
		if (argc < 4 || strcmp(argv[3], mode_names[m]) == 0)
			plain_run("", mode_names[m], campaign);
	}
	return argc;
}
