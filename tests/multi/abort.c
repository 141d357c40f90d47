/*
 * Abort under load: how long from coll_comm_abort() until the last pending call has
 * returned anywhere, and what it leaves behind.
 *
 * One job of forked ranks; each round has a communicator of its own (duplicated from the
 * job's, used, aborted, destroyed). All ranks keep calls going, the same seeded mix on all
 * of them, blocking, on streams, in groups or persistent, every result checked; at a
 * seeded moment one rank aborts: by a thread that is not the calling one, or by the calling one
 * between two of its calls. Every rank must end with COLL_ERR_ABORTED and be told who
 * aborted and why, whatever it was in, and its buffers must stay as it left them from then on.
 * Afterwards descriptors, threads and mappings are what they were before.
 *
 * A rank's delay counts from the abort, or from the beginning of a call that began later, to
 * the end of that call; a round's is that of its slowest rank.
 *
 * usage: abort TRANSPORT [ROUNDS [SEED]]             a small part, also as a test
 *        abort soak [ROUNDS [SEED [TRANSPORT]]]      in full, with spinning processes; bounds
 *   TRANSPORT: shm, tcp or mixed (every other rank on another host by name, pairs by shm and tcp)
 */
#define PLAIN_OWN_MAIN
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "coll/coll.h"
#include "meeting.h"
#include "plain.h"

enum { RANKS_MAX = 4, ROUNDS_MAX = 4000, ROUNDS_WARM = 12, COUNT_MAX = 1 << 18, BATCH = 3 };
enum { ROUND_LIMIT_S = 60 };
/* A link keeps the segments that were needed at once, per direction; not one a round. A
 * sanitizer's mappings are its own affair. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MAPPINGS_MORE = 10000 };
#else
enum { MAPPINGS_MORE = 4 };
#endif
/* Promised for the machine of the campaign; the test in the suite only wants no hang: 2 s,
 * what every failure is promised within. */
enum { P99_MS = 20, MAX_MS = 100, SLOW_MS = 30, TEST_MAX_MS = 2000 };

static const uint64_t MS = 1000000;

enum manner { BLOCKING, STREAM, GROUP, PERSISTENT, MANNERS };

/* One round, drawn alike by all ranks. */
struct plan {
	uint64_t seed;
	int aborter;
	uint64_t delay_ns;
	enum manner manner;
};

struct shared {
	atomic_int failures;
	struct round {
		_Atomic uint64_t begun_ns; /* of the abort; 0: not yet */
		_Atomic uint64_t took_ns;  /* by the slowest rank */
		atomic_int pending;        /* ranks that were in a call then */
	} rounds[ROUNDS_MAX];
	struct meeting meeting;
};

static struct shared *shared;

static struct {
	const char *transport;
	int size, rounds;
	bool by_thread, loaded;
	uint64_t seed;
} job;

struct rank {
	int rank;
	coll_comm *world, *comm;
	struct plan plan;
	struct round *round;
	int number;
	bool over;   /* a call has said so */
	uint64_t at; /* when the aborter aborts */
	int32_t *in[BATCH], *out[BATCH];
	/* The thread that aborts. */
	pthread_t thread;
	sem_t go, done;
	bool quit;
};

static void fail(const struct rank *me, const char *what, const char *detail)
{
	if (atomic_fetch_add(&shared->failures, 1) < 10)
		fprintf(stderr, "%s, %d ranks: rank %d, round %d: %s %s\n", job.transport, job.size, me->rank,
		        me->number, what, detail);
}

/* ---- Aborting ---- */

static void sleep_until(uint64_t ns)
{
	const struct timespec at = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
	}
}

static void abort_now(struct rank *me)
{
	char reason[64];

	snprintf(reason, sizeof(reason), "enough of round %d", me->number);
	atomic_store(&me->round->begun_ns, coll_clock_ns());
	if (coll_comm_abort(me->comm, reason) != COLL_OK)
		fail(me, "abort", "is refused");
}

static void *aborting_thread(void *arg)
{
	struct rank *me = arg;

	for (;;) {
		while (sem_wait(&me->go) != 0) {
		}
		if (me->quit)
			return NULL;
		sleep_until(me->at);
		abort_now(me);
		sem_post(&me->done);
	}
}

/* ---- One call and its end ---- */

/* A call that began at entered_ns has returned. */
static void account(struct rank *me, uint64_t entered_ns)
{
	const uint64_t now = coll_clock_ns(), abort_ns = atomic_load(&me->round->begun_ns);
	uint64_t from = entered_ns > abort_ns ? entered_ns : abort_ns, most;

	if (abort_ns == 0 || now <= abort_ns)
		return;
	if (entered_ns < abort_ns)
		atomic_fetch_add(&me->round->pending, 1);
	most = atomic_load(&me->round->took_ns);
	while (now - from > most && !atomic_compare_exchange_weak(&me->round->took_ns, &most, now - from)) {
	}
	if (now - from > SLOW_MS * MS)
		fprintf(stderr,
		        "     slow: %s, %d ranks, by %s, round %d (manner %d, aborter %d): rank %d took %.1f ms: %s\n",
		        job.transport, job.size, job.by_thread ? "a thread" : "the caller", me->number,
		        (int)me->plan.manner, me->plan.aborter, me->rank, (double)(now - from) / 1e6,
		        coll_last_error(me->comm)->message);
}

/* What every rank must be told. */
static void look_at_error(struct rank *me, coll_status st)
{
	const coll_error *e = coll_last_error(me->comm);
	char reason[64];

	me->over = true;
	snprintf(reason, sizeof(reason), "enough of round %d", me->number);
	if (st != COLL_ERR_ABORTED || e->status != st)
		fail(me, "not aborted but", e->message);
	else if (e->rank != me->plan.aborter || !strstr(e->message, reason) ||
	         !strstr(e->message, "aborted the communicator"))
		fail(me, "told something else:", e->message);
}

/* False: the round is over for this rank. */
static bool ended(struct rank *me, coll_status st, uint64_t entered_ns)
{
	account(me, entered_ns);
	if (st != COLL_OK)
		look_at_error(me, st);
	return st == COLL_OK;
}

/* ---- Calls ---- */

enum kind { REDUCE, EXCHANGE, SPREAD, RING, MEET, KINDS };

struct draw {
	enum kind kind;
	size_t count; /* elements in and out, at most COUNT_MAX */
	int call;
};

/* Equal on all ranks: half of the calls are tiny, the others up to 1 MiB. */
static struct draw draw(const struct rank *me, int call)
{
	static const enum kind kinds[8] = {REDUCE, REDUCE, REDUCE, EXCHANGE, EXCHANGE, SPREAD, RING, MEET};
	const uint64_t r = coll_mix64(me->plan.seed + (uint64_t)call);
	const size_t most = r >> 60 < 8 ? 16 : r >> 60 < 14 ? 20000 : COUNT_MAX;
	struct draw d = {.kind = kinds[r % 8], .count = 1 + (r >> 8) % most, .call = call};

	if (d.kind == EXCHANGE)
		d.count = (d.count / (size_t)job.size + 1) * (size_t)job.size -
		          (d.count + 4 > COUNT_MAX ? (size_t)job.size : 0);
	return d;
}

static int32_t value(int from, int to, size_t i, int call)
{
	return (int32_t)((uint32_t)(from + 1) * 1000003u + (uint32_t)to * 7919u + (uint32_t)i * 31u + (uint32_t)call);
}

static void fill(const struct rank *me, const struct draw *d, int32_t *in)
{
	const size_t block = d->count / (size_t)job.size;

	for (size_t i = 0; i < d->count; i++)
		in[i] = d->kind == EXCHANGE ? value(me->rank, (int)(i / block), i % block, d->call)
		                            : value(me->rank, 0, i, d->call);
}

static coll_status begin(const struct rank *me, const struct draw *d, const int32_t *in, int32_t *out, coll_stream *s)
{
	const int next = (me->rank + 1) % job.size, before = (me->rank + job.size - 1) % job.size;

	switch (d->kind) {
	case REDUCE: return coll_all_reduce(in, out, d->count, COLL_I32, COLL_SUM, me->comm, s);
	case EXCHANGE: return coll_all_to_all(in, out, d->count / (size_t)job.size, COLL_I32, me->comm, s);
	case SPREAD: return coll_broadcast(in, out, d->count, COLL_I32, d->call % job.size, me->comm, s);
	case RING: return coll_send_recv(in, d->count, next, out, d->count, before, COLL_I32, me->comm, s);
	default: return coll_barrier(me->comm, s);
	}
}

static void check(struct rank *me, const struct draw *d, const int32_t *out)
{
	const int before = (me->rank + job.size - 1) % job.size;
	const size_t block = d->count / (size_t)job.size;
	uint32_t ranks = 0;
	bool right = true;

	for (int r = 0; r < job.size; r++)
		ranks += (uint32_t)value(r, 0, 0, d->call);
	for (size_t i = 0; i < d->count; i++)
		switch (d->kind) {
		case REDUCE: right &= (uint32_t)out[i] == ranks + (uint32_t)job.size * (uint32_t)i * 31u; break;
		case EXCHANGE: right &= out[i] == value((int)(i / block), me->rank, i % block, d->call); break;
		case SPREAD: right &= out[i] == value(d->call % job.size, 0, i, d->call); break;
		case RING: right &= out[i] == value(before, 0, i, d->call); break;
		default: break;
		}
	if (!right)
		fail(me, "a wrong result", "");
}

/* ---- Calls of a round, by manner, until one of them fails ---- */

/* The calling thread aborts, when it is its turn and its time. */
static void abort_if_due(struct rank *me)
{
	if (!job.by_thread && me->rank == me->plan.aborter && !atomic_load(&me->round->begun_ns) &&
	    coll_clock_ns() >= me->at)
		abort_now(me);
}

static void go_on_blocking(struct rank *me)
{
	for (int call = 0; !me->over; call++) {
		const struct draw d = draw(me, call);
		uint64_t entered_ns;

		fill(me, &d, me->in[0]);
		abort_if_due(me);
		entered_ns = coll_clock_ns();
		if (ended(me, begin(me, &d, me->in[0], me->out[0], NULL), entered_ns))
			check(me, &d, me->out[0]);
	}
}

/* Some at a time; the caller may abort while they are on their way. */
static void go_on_by_stream(struct rank *me)
{
	coll_stream *s = NULL;

	if (coll_stream_create(&s, me->comm) != COLL_OK) {
		fail(me, "no stream", "");
		me->over = true;
	}
	for (int call = 0; !me->over; call += BATCH) {
		struct draw d[BATCH];
		coll_status st = COLL_OK;
		uint64_t entered_ns;

		for (int i = 0; i < BATCH; i++) {
			d[i] = draw(me, call + i);
			fill(me, &d[i], me->in[i]);
		}
		entered_ns = coll_clock_ns();
		for (int i = 0; i < BATCH && st == COLL_OK; i++)
			st = begin(me, &d[i], me->in[i], me->out[i], s);
		abort_if_due(me);
		/* The buffers are the library's until the stream is complete, whatever a call said. */
		if (coll_stream_wait(s, -1) != COLL_OK && st == COLL_OK)
			st = coll_stream_query(s);
		if (ended(me, st, entered_ns))
			for (int i = 0; i < BATCH; i++)
				check(me, &d[i], me->out[i]);
	}
	coll_stream_destroy(&s);
}

static void go_on_by_groups(struct rank *me)
{
	for (int call = 0; !me->over; call += BATCH) {
		struct draw d[BATCH];
		coll_status st = COLL_OK, end;
		uint64_t entered_ns;

		for (int i = 0; i < BATCH; i++) {
			d[i] = draw(me, call + i);
			fill(me, &d[i], me->in[i]);
		}
		abort_if_due(me);
		entered_ns = coll_clock_ns();
		coll_group_begin();
		for (int i = 0; i < BATCH && st == COLL_OK; i++)
			st = begin(me, &d[i], me->in[i], me->out[i], NULL);
		end = coll_group_end();
		if (ended(me, st == COLL_OK ? end : st, entered_ns))
			for (int i = 0; i < BATCH; i++)
				check(me, &d[i], me->out[i]);
	}
}

/* Started, left alone for a blocking call in between (every other time), waited for. */
static void go_on_persistently(struct rank *me)
{
	const coll_operation_desc desc = {.struct_size = sizeof(desc),
	                                  .kind = COLL_ALL_REDUCE,
	                                  .in = me->in[1],
	                                  .out = me->out[1],
	                                  .count = me->plan.seed % 2 ? 8 : 30000,
	                                  .type = COLL_I32,
	                                  .op = COLL_SUM};
	struct draw mine = {.kind = REDUCE, .count = desc.count};
	coll_operation *op = NULL;
	uint64_t entered_ns = coll_clock_ns();

	ended(me, coll_operation_prepare(&op, &desc, me->comm), entered_ns);
	for (int call = 0; !me->over; call++) {
		const struct draw d = draw(me, call);
		coll_status st, between = COLL_OK;

		mine.call = call;
		fill(me, &mine, me->in[1]);
		fill(me, &d, me->in[0]);
		entered_ns = coll_clock_ns();
		st = coll_operation_start(op, NULL);
		if (st == COLL_OK && call % 2)
			between = begin(me, &d, me->in[0], me->out[0], NULL);
		abort_if_due(me);
		if (st == COLL_OK)
			st = coll_operation_wait(op, -1);
		if (st == COLL_OK)
			check(me, &mine, me->out[1]);
		if (ended(me, between == COLL_OK ? st : between, entered_ns) && call % 2)
			check(me, &d, me->out[0]);
	}
	coll_operation_destroy(&op);
}

/* ---- A round ---- */

static struct plan draw_plan(int number)
{
	struct coll_rng rng = {coll_mix64(job.seed ^ coll_mix64((uint64_t)number))};
	struct plan p = {.aborter = (int)coll_rng_below(&rng, (uint32_t)job.size),
	                 .delay_ns = coll_rng_below(&rng, 8) == 0 ? 0 : coll_rng_below(&rng, 4000000),
	                 .manner = (enum manner)coll_rng_below(&rng, MANNERS)};

	p.seed = coll_mix64(job.seed) ^ coll_mix64((uint64_t)number << 32);
	return p;
}

/* From its return on the buffers are the caller's: what it writes there stays. */
static void mark_buffers(struct rank *me)
{
	for (int i = 0; i < BATCH; i++) {
		memset(me->in[i], 0x5a, COUNT_MAX * sizeof(**me->in));
		memset(me->out[i], 0xa5, COUNT_MAX * sizeof(**me->out));
	}
}

static bool all_bytes(const int32_t *p, unsigned char byte)
{
	const unsigned char *c = (const unsigned char *)p;

	return c[0] == byte && memcmp(c, c + 1, COUNT_MAX * sizeof(*p) - 1) == 0;
}

static void look_at_buffers(struct rank *me)
{
	for (int i = 0; i < BATCH; i++)
		if (!all_bytes(me->in[i], 0x5a) || !all_bytes(me->out[i], 0xa5))
			fail(me, "a buffer changed after the call had ended", "");
}

static void one_round(struct rank *me, int number)
{
	static void (*const go_on[MANNERS])(struct rank * me) = {go_on_blocking, go_on_by_stream, go_on_by_groups,
	                                                         go_on_persistently};
	coll_status st;

	alarm(ROUND_LIMIT_S);
	me->number = number;
	me->plan = draw_plan(number);
	me->round = &shared->rounds[number];
	me->over = false;
	st = coll_comm_duplicate(me->world, &me->comm);
	if (number > 0)
		look_at_buffers(me); /* all ranks have ended the last round */
	if (st != COLL_OK) {
		fail(me, "no communicator:", coll_last_error(me->world)->message);
		exit(1);
	}
	me->at = coll_clock_ns() + me->plan.delay_ns;
	if (job.by_thread && me->rank == me->plan.aborter)
		sem_post(&me->go);
	go_on[me->plan.manner](me);
	mark_buffers(me);
	if (job.by_thread && me->rank == me->plan.aborter)
		while (sem_wait(&me->done) != 0) {
		}
	if (coll_barrier(me->comm, NULL) != COLL_ERR_ABORTED)
		fail(me, "a later call", "is not aborted");
	coll_comm_destroy(&me->comm);
}

/* ---- What a process holds ---- */

struct holdings {
	int descriptors, threads, mappings;
};

static int entries(const char *path, const char *part_of_name)
{
	DIR *d = opendir(path);
	int n = 0;

	for (const struct dirent *e; d && (e = readdir(d));)
		n += strstr(e->d_name, part_of_name) != NULL;
	if (d)
		closedir(d);
	return n;
}

static int lines(const char *path)
{
	FILE *f = fopen(path, "r");
	int n = 0;

	for (int c; f && (c = getc(f)) != EOF;)
		n += c == '\n';
	if (f)
		fclose(f);
	return n;
}

/* After a moment in which what is on its way out goes. */
static struct holdings look(struct rank *me, const struct holdings *before)
{
	struct holdings h = {0};

	for (int i = 0; i < 100; i++) {
		coll_barrier(me->world, NULL);
		for (int k = 0; k < 10; k++) {
			coll_progress(me->world);
			usleep(1000);
		}
		h = (struct holdings){entries("/proc/self/fd", ""), entries("/proc/self/task", ""),
		                      lines("/proc/self/maps")};
		/* All ranks count alike, so that none is left alone in a barrier. */
		int32_t more = before && (h.descriptors > before->descriptors || h.threads > before->threads ||
		                          h.mappings > before->mappings);

		coll_all_reduce(&more, &more, 1, COLL_I32, COLL_MAX, me->world, NULL);
		if (before && !more)
			break;
		if (!before && i > 5)
			break;
	}
	return h;
}

/* Each thread that has ever had to sleep beside others keeps a descriptor for it: here the
 * calling thread and, where there is one, the progress thread. */
static void make_all_sleep(struct rank *me)
{
	coll_comm *other = NULL;
	coll_stream *s = NULL;

	if (coll_comm_duplicate(me->world, &other) != COLL_OK || coll_stream_create(&s, other) != COLL_OK)
		fail(me, "no stream", "");
	for (int r = 0; r < job.size && s; r++) {
		usleep(r == me->rank ? 50000 : 0);
		coll_barrier(other, s);
		coll_barrier(me->world, NULL);
	}
	coll_stream_destroy(&s);
	coll_comm_destroy(&other);
}

/* ---- Ranks ---- */

static void *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(9);
	return p;
}

static coll_status join_job(struct rank *me)
{
	char transports[64], host[32];
	const char *settings[] = {transports, "COLL_DEBUG=none", host, NULL};
	struct meeting_seat seat = {&shared->meeting, me->rank, job.size};
	coll_config cfg = COLL_CONFIG_INIT;
	const bool mixed = strcmp(job.transport, "mixed") == 0;

	settings[1] = "COLL_LOG_FILE=/dev/null";
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", mixed ? "shm,tcp" : job.transport);
	snprintf(host, sizeof(host), "COLL_HOST_ID=abort-%d", mixed ? me->rank % 2 : 0);
	meeting_sit(&seat, &cfg);
	cfg.settings = settings;
	return coll_comm_create(&me->world, &cfg);
}

static void run_rank(int rank)
{
	static struct rank me;
	struct holdings before, after;

	me.rank = rank;
	/* The allocator adapts as it goes: not here, where mappings are counted. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 1 << 17);
	for (int i = 0; i < BATCH; i++) {
		me.in[i] = map(COUNT_MAX * sizeof(int32_t));
		me.out[i] = map(COUNT_MAX * sizeof(int32_t));
	}
	sem_init(&me.go, 0, 0);
	sem_init(&me.done, 0, 0);
	if (pthread_create(&me.thread, NULL, aborting_thread, &me) != 0)
		_exit(9);
	if (join_job(&me) != COLL_OK) {
		fail(&me, "create:", coll_last_error(NULL)->message);
		_exit(1);
	}
	make_all_sleep(&me);
	for (int i = 0; i < ROUNDS_WARM; i++)
		one_round(&me, i);
	before = look(&me, NULL);
	for (int i = ROUNDS_WARM; i < ROUNDS_WARM + job.rounds && atomic_load(&shared->failures) == 0; i++)
		one_round(&me, i);
	after = look(&me, &before);
	if (after.descriptors > before.descriptors || after.threads > before.threads ||
	    after.mappings > before.mappings + MAPPINGS_MORE * (job.size - 1)) {
		char text[160];

		snprintf(text, sizeof(text), "descriptors %d, %d; threads %d, %d; mappings %d, %d", before.descriptors,
		         after.descriptors, before.threads, after.threads, before.mappings, after.mappings);
		fail(&me, "something stays behind:", text);
	}
	coll_comm_destroy(&me.world);
	me.quit = true;
	sem_post(&me.go);
	pthread_join(me.thread, NULL);
	exit(0);
}

/* ---- A job ---- */

static void spin(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (volatile unsigned i = 0;; i++) {
	}
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void judge(void)
{
	static uint64_t took[ROUNDS_MAX];
	int n = 0, pending = 0;

	for (int i = ROUNDS_WARM; i < ROUNDS_WARM + job.rounds; i++)
		if (atomic_load(&shared->rounds[i].begun_ns)) {
			took[n++] = atomic_load(&shared->rounds[i].took_ns);
			pending += atomic_load(&shared->rounds[i].pending);
		}
	CHECK(n == job.rounds, "%d of %d rounds", n, job.rounds);
	/* A test in which nobody is in a call shows nothing. */
	CHECK(pending > n / 2, "%d ranks in a call, in %d rounds", pending, n);
	if (n == 0)
		return;
	qsort(took, (size_t)n, sizeof(*took), by_size);
	printf("     %-5s %d ranks, by %s, %s: %4d aborts, %4.1f ranks in a call: p50 %6.3f p90 %6.3f p99 %6.3f max "
	       "%6.3f ms\n",
	       job.transport, job.size, job.by_thread ? "a thread " : "the caller",
	       job.loaded ? "busy cores" : "idle cores", n, (double)pending / n, (double)took[n / 2] / 1e6,
	       (double)took[n * 9 / 10] / 1e6, (double)took[n * 99 / 100] / 1e6, (double)took[n - 1] / 1e6);
	fflush(stdout);
	if (job.loaded) {
		CHECK(took[n * 99 / 100] < P99_MS * MS, "p99 %.3f ms", (double)took[n * 99 / 100] / 1e6);
		CHECK(took[n - 1] < MAX_MS * MS, "max %.3f ms", (double)took[n - 1] / 1e6);
	}
	CHECK(took[n - 1] < TEST_MAX_MS * MS, "max %.3f ms", (double)took[n - 1] / 1e6);
}

static void run_job(void)
{
	const int files = entries("/dev/shm", "coll");
	const long cores = job.loaded ? sysconf(_SC_NPROCESSORS_ONLN) : 0;
	pid_t pids[RANKS_MAX], spinners[256];
	int status;

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (long i = 0; i < cores && i < 256; i++)
		if ((spinners[i] = fork()) == 0)
			spin();
	for (int r = 0; r < job.size; r++)
		if ((pids[r] = fork()) == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			run_rank(r);
		}
	for (int r = 0; r < job.size; r++)
		CHECK(waitpid(pids[r], &status, 0) == pids[r] && status == 0, "rank %d of %d: status %x", r, job.size,
		      status);
	for (long i = 0; i < cores && i < 256; i++) {
		kill(spinners[i], SIGKILL);
		waitpid(spinners[i], &status, 0);
	}
	CHECK(atomic_load(&shared->failures) == 0);
	CHECK(entries("/dev/shm", "coll") <= files, "files in /dev/shm");
	judge();
}

static void two_ranks_by_a_thread(void)
{
	job.size = 2;
	job.by_thread = true;
	run_job();
}

static void two_ranks_by_the_caller(void)
{
	job.size = 2;
	job.by_thread = false;
	run_job();
}

static void four_ranks_by_a_thread(void)
{
	job.size = 4;
	job.by_thread = true;
	run_job();
}

static void four_ranks_by_the_caller(void)
{
	job.size = 4;
	job.by_thread = false;
	run_job();
}

static void run_all(void)
{
	PLAIN_RUN(two_ranks_by_a_thread);
	PLAIN_RUN(two_ranks_by_the_caller);
	PLAIN_RUN(four_ranks_by_a_thread);
	PLAIN_RUN(four_ranks_by_the_caller);
}

int main(int argc, char **argv)
{
	static const char *const all[] = {"shm", "tcp", "mixed"};
	const bool soak = argc > 1 && strcmp(argv[1], "soak") == 0;

	job.rounds = argc > 2 ? atoi(argv[2]) : soak ? 1000 : 60;
	job.seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 4711;
	job.loaded = soak;
	if (argc < 2 || job.rounds < 1 || job.rounds > ROUNDS_MAX - ROUNDS_WARM) {
		fprintf(stderr, "usage: abort TRANSPORT|soak [ROUNDS [SEED [TRANSPORT]]], at most %d rounds\n",
		        ROUNDS_MAX - ROUNDS_WARM);
		return 2;
	}
	shared = meeting_page(sizeof(*shared));
	printf("seed %llu, %d rounds each%s\n", (unsigned long long)job.seed, job.rounds,
	       soak ? ", cores kept busy" : "");
	for (int i = 0; i < (soak ? 3 : 1); i++) {
		job.transport = soak ? all[i] : argv[1];
		if (!soak || argc < 5 || strcmp(argv[4], all[i]) == 0)
			run_all();
	}
	return plain_summary();
}
