/*
 * One of four ranks is killed, stopped or aborts in the middle of calls with device memory, at a random moment. The
 * others end within the promised time by an error that names it, their streams drain, and nothing writes to `out` once
 * the error was returned. Who was stopped goes on afterwards, and ends by an error as well.
 *
 * usage: death FILE-OF-THE-STAND-IN [EVENTS [SEED [ONLY]]]    ONLY: that event of the seed alone
 */
#include "job.h"

#include "base/clock.h"
#include "base/hash.h"
#include "device/kernels.h"
#include "tests/holdings.h"
#include "tests/multi/starved.h"

enum { RANKS = 4, LONG = 500000, TIMEOUT_MS = 2000, LIMIT_S = 40, DEFAULT_EVENTS = 12 };
enum { PATTERN = 0x5b };

static const uint64_t SECOND = 1000000000;

enum blow { KILL, STOP, ABORT, BLOWS };
static const char *const blow_names[BLOWS] = {"kill", "stop", "abort"};

struct event {
	enum blow blow;
	int victim;
	bool stream;
	const char *transport, *queues, *direct;
	size_t count;
	int depth;    /* calls that are in a stream before it is waited for: more than run at a time, or fewer */
	int delay_us; /* after all ranks have begun */
	char seed[24];
};

/* Beside the page of the job. */
static struct clocks {
	_Atomic uint64_t struck_ns, ended_ns[RANKS], starved_ns[RANKS];
} * clocks;

/* ---- A rank ---- */

struct abort_later {
	coll_comm *comm;
	int delay_us;
};

static void *abort_later(void *arg)
{
	const struct abort_later *a = arg;

	usleep((useconds_t)a->delay_us);
	atomic_store(&clocks->struck_ns, coll_clock_ns());
	coll_comm_abort(a->comm, "for this test");
	return NULL;
}

/* In host memory. If the stream of a call shares the hardware queue of this copy, the copy comes when that has drained;
 * with 8 queues it comes at once. */
static char *copy_of(const struct job_rank *r, const int *out, size_t len_bytes)
{
	char *copy = malloc(len_bytes);

	if (!cuda_user_read(copy, out, len_bytes))
		job_wrong(r, "cannot read device memory after the error");
	return copy;
}

static void must_be(const struct job_rank *r, const char *copy, const int *out, size_t len_bytes, const char *when)
{
	char *now = copy_of(r, out, len_bytes);

	if (memcmp(now, copy, len_bytes) != 0)
		job_wrong(r, "out was written after the error: %s", when);
	free(now);
}

/* The stream has nothing left to do: another look than that of the library. */
static void must_drain(const struct job_rank *r, void *handle)
{
	const uint64_t until = coll_clock_ns() + 2 * SECOND, starved = starved_ns();
	int st = -1;

	while ((st = cuda_user_query(handle)) == 600 &&
	       (coll_clock_ns() < until || coll_clock_ns() < until + starved_ns() - starved))
		usleep(200);
	if (st != 0)
		job_wrong(r, "its stream has not drained: %d", st);
}

/* The program writes its own bytes into `out` now; they stay. */
static void must_be_left_alone(const struct job_rank *r, int *out, size_t len_bytes)
{
	char *mine = malloc(len_bytes);

	memset(mine, PATTERN, len_bytes);
	if (!cuda_user_write(out, mine, len_bytes))
		job_wrong(r, "cannot write device memory after the error");
	usleep(150000);
	must_be(r, mine, out, len_bytes, "over bytes of the program");
	free(mine);
}

/* Some calls with one length, some with another, as the rank's own random numbers say where it waits. */
static coll_status call(const struct event *e, struct job_rank *r, int *in, int *out, coll_stream *stream, int k)
{
	const size_t n = k % 3 ? e->count : 1000;

	switch (k % 4) {
	case 0: return coll_all_reduce(in, out, n, COLL_I32, COLL_SUM, r->comm, stream);
	case 1: return coll_all_to_all(in, out, n / RANKS, COLL_I32, r->comm, stream);
	case 2: return coll_all_gather(in, out, n / RANKS, COLL_I32, r->comm, stream);
	default: return coll_reduce_scatter(in, out, n / RANKS, COLL_I32, COLL_SUM, r->comm, stream);
	}
}

static coll_status wait_for_all(coll_stream *stream, coll_event *done)
{
	const coll_status st = coll_event_record(done, stream);

	return st ? st : coll_event_wait(done, -1);
}

/* done: of the stream, which is NULL for blocking calls. */
static coll_status loop(const struct event *e, struct job_rank *r, int *in, int *out, coll_stream *stream,
                        coll_event *done)
{
	coll_status st = COLL_OK;

	for (int k = 0; st == COLL_OK; k++) {
		st = call(e, r, in, out, stream, k);
		if (stream && k % e->depth == e->depth - 1 && st == COLL_OK)
			st = wait_for_all(stream, done);
	}
	/* What was submitted before may be on its way. */
	if (stream)
		wait_for_all(stream, done);
	return st;
}

static void body(struct job_rank *r)
{
	const struct event *e = r->arg;
	int *in = job_memory(r, LONG), *out = job_memory(r, LONG);
	struct abort_later later = {r->comm, e->delay_us};
	coll_stream *stream = NULL;
	coll_event *done = NULL;
	void *handle = NULL;
	pthread_t thread;
	coll_status st;
	char *then;

	job_fill(r, in, LONG, 1);
	if (!cuda_user_stream(in, &handle) ||
	    (e->stream && !job_ok(r, coll_stream_wrap_cuda(&stream, r->comm, handle), "a stream")))
		return;
	job_ok(r, coll_event_create(&done, r->comm), "an event");
	job_ok(r, coll_barrier(r->comm, NULL), "a barrier");
	job_meet(r, 0);
	if (e->blow == ABORT && r->rank == e->victim)
		pthread_create(&thread, NULL, abort_later, &later);
	st = loop(e, r, in, out, stream, done);
	atomic_store(&clocks->starved_ns[r->rank], starved_ns());
	atomic_store(&clocks->ended_ns[r->rank], coll_clock_ns());
	then = copy_of(r, out, LONG * sizeof(int));
	job_said(r, r->comm, st);
	if (e->blow == ABORT && r->rank == e->victim)
		pthread_join(thread, NULL);
	/* Blocking calls are in a stream of the library, which is not to be had here. */
	if (stream)
		must_drain(r, handle);
	usleep(5000);
	must_be(r, then, out, LONG * sizeof(int), "while the stream drained");
	must_be_left_alone(r, out, LONG * sizeof(int));
	free(then);
	coll_event_destroy(&done);
	coll_stream_destroy(&stream);
	cuda_user_stream_destroy(handle);
	coll_comm_destroy(&r->comm);
}

/* ---- The event ---- */

static void strike(const struct event *e, const pid_t *pids)
{
	for (int i = 0; i < 2 * LIMIT_S * 1000 && atomic_load(&job_page->counters[0]) < RANKS; i++)
		usleep(500);
	if (e->blow == ABORT)
		return;
	usleep((useconds_t)e->delay_us);
	atomic_store(&clocks->struck_ns, coll_clock_ns());
	kill(pids[e->victim], e->blow == KILL ? SIGKILL : SIGSTOP);
}

/* Once all others have ended. */
static void let_go(const struct event *e, const pid_t *pids)
{
	for (int ms = 0; ms < 20000; ms++) {
		int ended = 0;

		for (int i = 0; i < RANKS; i++)
			ended += i != e->victim && atomic_load(&clocks->ended_ns[i]) != 0;
		if (ended == RANKS - 1)
			break;
		usleep(1000);
	}
	kill(pids[e->victim], SIGCONT);
}

static void judge(const struct event *e, const char *about)
{
	const uint64_t struck = atomic_load(&clocks->struck_ns);
	const uint64_t limit = 2 * SECOND + (e->blow == STOP ? (uint64_t)TIMEOUT_MS * 1000000 : 0);
	char name[16];

	snprintf(name, sizeof(name), "rank %d", e->victim);
	CHECK(struck > 0, "%s: nobody was struck", about);
	for (int i = 0; i < RANKS; i++) {
		const uint64_t ended = atomic_load(&clocks->ended_ns[i]);
		const char *said = job_page->of[i].said;

		if (i == e->victim && e->blow != ABORT)
			continue;
		CHECK(job_page->of[i].status != COLL_OK && strstr(said, name), "%s: rank %d: %d %s", about, i,
		      (int)job_page->of[i].status, said);
		CHECK(ended < struck + limit + atomic_load(&clocks->starved_ns[i]), "%s: rank %d took %.2f s: %s",
		      about, i, (double)(ended - struck) * 1e-9, said);
	}
}

static struct event drawn(uint64_t seed, int index)
{
	uint64_t state = coll_mix64(seed * 100003 + (uint64_t)index);
	struct event e = {.blow = (enum blow)(index % BLOWS),
	                  .stream = index / BLOWS % 2,
	                  .transport = index / 2 / BLOWS % 2 ? "tcp" : "shm",
	                  .direct = index / 4 / BLOWS % 2 ? "0" : "1",
	                  .victim = (int)(state % RANKS)};

	state = coll_mix64(state);
	e.count = state % 3 == 0 ? 2000 : state % 3 == 1 ? 120000 : LONG;
	e.queues = state / 3 % 2 ? "1" : "8";
	e.depth = state / 6 % 2 ? 24 : 3;
	state = coll_mix64(state);
	e.delay_us = (int)(state % 200000);
	snprintf(e.seed, sizeof(e.seed), "%u", (unsigned)(state >> 40) | 1);
	return e;
}

static void event(uint64_t seed, int index)
{
	const struct event e = drawn(seed, index);
	const char *const environment[] = {"COLL_TRANSPORTS",
	                                   e.transport,
	                                   "SOFTCUDA_QUEUES",
	                                   e.queues,
	                                   "SOFTCUDA_SEED",
	                                   e.seed,
	                                   "COLL_TIMEOUT_MS",
	                                   "2000",
	                                   "COLL_DEVICE_DIRECT",
	                                   e.direct,
	                                   NULL};
	const struct job_work w = {body, &e, environment, RANKS};
	const int before = atomic_load(&plain_failures);
	pid_t pids[RANKS];
	char about[160];

	snprintf(about, sizeof(about),
	         "event %d of seed %llu (%s of rank %d, %s, %s, direct %s, %s queues, %zu elements, depth %d, %d us)",
	         index, (unsigned long long)seed, blow_names[e.blow], e.victim, e.stream ? "stream" : "blocking",
	         e.transport, e.direct, e.queues, e.count, e.depth, e.delay_us);
	memset(clocks, 0, sizeof(*clocks));
	meeting_start(pids, RANKS, job_page, sizeof(*job_page), job_process, &w);
	strike(&e, pids);
	if (e.blow == STOP)
		let_go(&e, pids);
	job_judge(pids, RANKS, LIMIT_S, e.blow == ABORT ? -1 : e.victim);
	judge(&e, about);
	if (atomic_load(&plain_failures) > before)
		printf("%s\n", about);
}

static uint64_t first_seed = 1;
static int events = DEFAULT_EVENTS, only = -1;

TEST(death, campaign)
{
	const int names = holdings_shared_names();
	const uint64_t begin = coll_clock_ns();

	for (int i = only < 0 ? 0 : only; i < (only < 0 ? events : only + 1); i++)
		event(first_seed, i);
	CHECK(holdings_names_gone(names), "%d names in /dev/shm, before %d", holdings_shared_names(), names);
	printf("%d events in %.0f s\n", only < 0 ? events : 1, (double)(coll_clock_ns() - begin) * 1e-9);
}

PROGRAM(death, "FILE-OF-THE-STAND-IN [EVENTS [SEED [ONLY]]]")
{
	if (argc > 2)
		events = atoi(argv[2]);
	if (argc > 3)
		first_seed = strtoull(argv[3], NULL, 10);
	if (argc > 4)
		only = atoi(argv[4]);
	clocks = meeting_page(sizeof(*clocks));
	return job_begin(argc, argv) < 0 ? -1 : argc;
}
