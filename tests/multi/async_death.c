/*
 * Failures while asynchronous work is in flight: forked ranks with several operations on
 * two streams, on two communicators. One rank is killed, stopped, aborts, or calls something
 * else; everything that depends on it must end on every survivor, in time, with an error that
 * names it; what does not depend on it must go on; and no buffer changes once its wait has
 * returned. Times are read only to check the bound that users are promised.
 *
 * usage: async_death TRANSPORT on|off [kill|stop|abort|differ [SEED]]
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
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

enum { RANKS_MAX = 4, OPS = 3, COUNT_MAX = 60000, CANARY = 0x5a5a5a5a, LIMIT_S = 30 };

enum mode { KILL, STOP, ABORT, DIFFER, MODES };
static const char *const mode_names[MODES] = {"kill", "stop", "abort", "differ"};

struct run {
	enum mode mode;
	int size, victim, rounds, polls;
	unsigned seed;
};

struct shared {
	_Atomic uint64_t struck_ns;
	_Atomic uint64_t starved_ns; /* of all ranks that came to an end */
	atomic_int ready;            /* ranks whose earlier calls are all over */
	struct verdict {
		atomic_int done;
		char fault[1024]; /* what was wrong; "" when nothing */
		uint64_t ended_ns;
	} verdict[RANKS_MAX];
	struct meeting meeting;
};

static struct shared *shared;
static const char *transport, *progress;

/* ---- One rank ---- */

struct rank {
	const struct run *run;
	int rank;
	coll_comm *comm[2];
	coll_stream *stream[2];
	int *x[2][OPS];
	coll_status told[2]; /* by calls of the last round */
};

__attribute__((format(printf, 2, 3))) static void fault(const struct rank *r, const char *format, ...)
{
	struct verdict *v = &shared->verdict[r->rank];
	va_list ap;

	if (v->fault[0])
		return;
	va_start(ap, format);
	vsnprintf(v->fault, sizeof(v->fault), format, ap);
	va_end(ap);
}

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
				fault(r, "round %d communicator %d operation %d [%zu]: %d, not %d", round, i, op, e,
				      r->x[i][op][e], sum);
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
	atomic_store(&shared->struck_ns, coll_clock_ns());
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
	const coll_status st = coll_stream_wait(r->stream[i], LIMIT_S * 1000);
	const bool aborter = r->rank == r->run->victim && r->run->mode == ABORT;
	const coll_status told = r->told[i];
	const coll_error *e = coll_last_error(r->comm[i]);
	coll_status again;
	int x = 0;

	if (told && told != expected[r->run->mode])
		fault(r, "a call on communicator %d: %s", i, coll_status_string(told));
	/* What the aborting rank has put in may have been over by then, also what the others had
	 * when one of their calls was told already. */
	if (st != expected[r->run->mode] && !((aborter || told) && st == COLL_OK))
		fault(r, "stream %d: %s, communicator: %s", i, coll_status_string(st), e->message);
	again = coll_stream_query(r->stream[i]);
	if (again != st)
		fault(r, "stream %d: %s, then %s", i, coll_status_string(st), coll_status_string(again));
	again = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, r->comm[i], r->stream[i]);
	e = coll_last_error(r->comm[i]);
	if (again != expected[r->run->mode] || e->status != again)
		fault(r, "communicator %d: a later call says %s: %s", i, coll_status_string(again), e->message);
	if (r->run->mode != DIFFER && e->rank != r->run->victim)
		fault(r, "communicator %d: rank %d is blamed: %s", i, e->rank, e->message);
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
				fault(r, "communicator %d operation %d: [%zu] was written after the wait", i, op, k);
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
		if (st != COLL_OK) {
			fault(r, "round %d: %s", round, coll_last_error(r->comm[0])->message);
			return;
		}
	}
	atomic_fetch_add(&shared->ready, 1);
	while (atomic_load(&shared->ready) < run->size)
		sched_yield();
	/* A call may already be told what has happened. */
	(void)put_in(r, round, victim);
	if (victim)
		strike(r);
	check_end(r, 0);
	if (both)
		check_end(r, 1);
	shared->verdict[r->rank].ended_ns = coll_clock_ns();
	atomic_fetch_add(&shared->starved_ns, starved_ns());
	if (!both) {
		/* The other communicator lives. */
		st = coll_stream_wait(r->stream[1], LIMIT_S * 1000);
		if (st == COLL_OK)
			check_sums(r, 1, round);
		for (int k = 0; k < 3 && st == COLL_OK; k++)
			st = coll_barrier(r->comm[1], k % 2 ? r->stream[1] : NULL);
		if (st == COLL_OK)
			st = coll_stream_wait(r->stream[1], -1);
		if (st != COLL_OK)
			fault(r, "the other communicator: %s", coll_last_error(r->comm[1])->message);
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
	char transports[64], thread[64];
	const char *settings[] = {transports,         thread, "COLL_TIMEOUT_MS=1000", "COLL_ARRIVAL_TIMEOUT_MS=60000",
	                          "COLL_DEBUG=error", NULL};
	struct rank r = {.run = run, .rank = rank};
	struct meeting_seat seat = {&shared->meeting, rank, run->size};
	coll_config cfg = COLL_CONFIG_INIT;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	snprintf(thread, sizeof(thread), "COLL_PROGRESS=%s", progress);
	meeting_sit(&seat, &cfg);
	cfg.settings = settings;
	if (!getenv("VERBOSE") && !freopen("/dev/null", "w", stderr))
		_exit(9);
	for (int i = 0; i < 2; i++)
		for (int op = 0; op < OPS; op++)
			r.x[i][op] = malloc(count_of(op) * sizeof(int));
	if (coll_comm_create(&r.comm[0], &cfg) != COLL_OK)
		fault(&r, "%s", coll_last_error(NULL)->message);
	else if (coll_comm_duplicate(r.comm[0], &r.comm[1]) != COLL_OK ||
	         coll_stream_create(&r.stream[0], r.comm[0]) != COLL_OK ||
	         coll_stream_create(&r.stream[1], r.comm[1]) != COLL_OK)
		fault(&r, "%s", coll_last_error(r.comm[0])->message);
	else
		live(&r);
	for (int i = 0; i < 2; i++)
		for (int op = 0; op < OPS; op++)
			free(r.x[i][op]);
	atomic_store(&shared->verdict[rank].done, 1);
	_exit(0);
}

/* ---- All ranks ---- */

/* False: it has not ended in time, and was killed. */
static bool collect(pid_t pid, int *status)
{
	const uint64_t until = coll_clock_ns() + (uint64_t)LIMIT_S * 2 * 1000000000;

	while (waitpid(pid, status, WNOHANG) == 0) {
		if (coll_clock_ns() > until) {
			kill(pid, SIGKILL);
			waitpid(pid, status, 0);
			return false;
		}
		usleep(1000);
	}
	return true;
}

static void check_rank(const struct run *run, int rank, pid_t pid)
{
	const struct verdict *v = &shared->verdict[rank];
	/* A silent rank is given its timeout on top. */
	const double limit_s = run->mode == STOP ? 3 : 2;
	int status = 0;
	double took_s;

	if (!collect(pid, &status)) {
		CHECK(false, "%s of %d, seed %u: rank %d hangs", mode_names[run->mode], run->size, run->seed, rank);
		return;
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s seed %u: rank %d ended with %#x",
	      mode_names[run->mode], run->seed, rank, (unsigned)status);
	CHECK(atomic_load(&v->done) && !v->fault[0], "%s of %d, seed %u, victim %d: rank %d: %s", mode_names[run->mode],
	      run->size, run->seed, run->victim, rank, v->fault);
	if (run->mode == DIFFER || !v->ended_ns)
		return;
	took_s = (double)(int64_t)(v->ended_ns - atomic_load(&shared->struck_ns)) * 1e-9;
	CHECK(took_s < limit_s + (double)atomic_load(&shared->starved_ns) * 1e-9,
	      "%s of %d, seed %u: rank %d heard of it after %.2f s", mode_names[run->mode], run->size, run->seed, rank,
	      took_s);
}

static void all_ranks(const struct run *run)
{
	pid_t pids[RANKS_MAX];
	int status;

	meeting_start(pids, run->size, shared, sizeof(*shared), run_rank, run);
	for (int r = 0; r < run->size; r++)
		if (r != run->victim || (run->mode != KILL && run->mode != STOP))
			check_rank(run, r, pids[r]);
	if (run->mode == STOP)
		kill(pids[run->victim], SIGKILL);
	if (run->mode == STOP || run->mode == KILL)
		CHECK(collect(pids[run->victim], &status), "the victim did not die");
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
	if (argc < 3)
		return -1;
	transport = argv[1];
	progress = argv[2];
	if (argc > 4)
		seed = (unsigned)strtoul(argv[4], NULL, 0);
	shared = meeting_page(sizeof(*shared));
	printf("seeds from %u\n", seed);
	for (int m = 0; m < MODES; m++) {
		mode = (enum mode)m;
		if (argc < 4 || strcmp(argv[3], mode_names[m]) == 0)
			plain_run("", mode_names[m], campaign);
	}
	return argc;
}
