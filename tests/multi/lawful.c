/*
 * Programs that are right never see an error: random ones, with ranks as threads of this
 * process. Blocking calls, streams, groups, messages, lengths that pairs know, persistent
 * operations, two communicators, ranks that run far ahead, and ranks that pause for so long
 * that everybody asks everybody, all of it at once. Every rank walks the same list of steps
 * and takes part in each in its own way; in the order of that list nothing can wait in a
 * circle. Results are checked.
 *
 * And what cannot be proved to be wrong is not called so, but said: communicators used in
 * another order on every rank end late, with a warning that names both calls.
 *
 * usage: lawful TRANSPORT [SEED [COUNT]]
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "coll/coll.h"
#include "plain.h"

enum { RANKS_MAX = 4, STEPS = 60, STREAMS = 2, COMMS = 2, ROOM = 20000 };

static char transports[64];
static uint64_t seed = 1;

/* ---- Ranks as threads ---- */

struct job {
	int size;
	uint64_t seed;
	coll_comm *comms[RANKS_MAX];
	pthread_barrier_t all; /* outside the library */
};

struct rank {
	pthread_t thread;
	struct job *job;
	coll_comm *comm[COMMS];
	int rank, size;
	coll_stream *streams[STREAMS];
	/* Of calls on streams: one place for each step, checked at the end. */
	struct place {
		int *in, *out;
		size_t count;
		int wanted; /* out[i] - i; 0 is never right */
		coll_stream *stream;
	} places[STEPS];
};

static uint64_t pick(uint64_t *state, uint64_t n)
{
	*state = coll_mix64(*state + 1);
	return *state % n;
}

#define OK(r, call)                                                                                           \
	do {                                                                                                  \
		const coll_status ok_st = (call);                                                             \
		CHECK(ok_st == COLL_OK, "seed %llu rank %d of %d: %d %s", (unsigned long long)(r)->job->seed, \
		      (r)->rank, (r)->size, (int)ok_st, coll_last_error((r)->comm[0])->message);              \
	} while (0)

/* ---- Steps ---- */

static void fill(struct rank *r, struct place *p, size_t count, int first)
{
	p->in = malloc(ROOM * sizeof(int));
	p->out = malloc(ROOM * sizeof(int));
	p->count = count;
	for (size_t i = 0; i < count; i++) {
		p->in[i] = first + (int)i;
		p->out[i] = -1;
	}
}

static void check(const struct rank *r, int step)
{
	const struct place *p = &r->places[step];
	size_t wrong = 0;

	for (size_t i = 0; i < p->count && p->wanted; i++)
		wrong += p->out[i] != p->wanted + (int)i;
	CHECK(wrong == 0, "seed %llu rank %d of %d step %d: %zu of %zu wrong", (unsigned long long)r->job->seed,
	      r->rank, r->size, step, wrong, p->count);
}

/* This rank's own way to make a call: half of the time blocking. */
static coll_stream *way(struct rank *r, struct place *p, uint64_t *own)
{
	const uint64_t w = pick(own, 4);

	p->stream = w < STREAMS ? r->streams[w] : NULL;
	return p->stream;
}

static const size_t counts[] = {1, 8, 300, 5000, ROOM};

static void collective(struct rank *r, int step, uint64_t *common, uint64_t *own)
{
	struct place *p = &r->places[step];
	coll_comm *comm = r->comm[pick(common, COMMS)];
	const int root = (int)pick(common, (uint64_t)r->size);
	const size_t count = counts[pick(common, sizeof(counts) / sizeof(counts[0]))];
	const uint64_t kind = pick(common, 5);
	coll_stream *s = way(r, p, own);

	/* The largest of first + i, or the root's. */
	fill(r, p, count, 1 + r->rank);
	switch (kind) {
	case 0:
		p->wanted = r->size;
		OK(r, coll_all_reduce(p->in, p->out, count, COLL_I32, COLL_MAX, comm, s));
		break;
	case 1:
		p->wanted = 1 + root;
		OK(r, coll_broadcast(p->in, p->out, count, COLL_I32, root, comm, s));
		break;
	case 2:
		p->wanted = r->rank == root ? r->size : 0;
		OK(r, coll_reduce(p->in, p->out, count, COLL_I32, COLL_MAX, root, comm, s));
		break;
	case 3:
		p->wanted = 1 + r->rank;
		OK(r, coll_scan(p->in, p->out, count, COLL_I32, COLL_MAX, comm, s));
		break;
	default: p->wanted = 0; OK(r, coll_barrier(comm, s));
	}
}

/* From one rank to another; the others have no part in it. */
static void message(struct rank *r, int step, uint64_t *common, uint64_t *own)
{
	struct place *p = &r->places[step];
	coll_comm *comm = r->comm[pick(common, COMMS)];
	const int from = (int)pick(common, (uint64_t)r->size);
	const int to = (from + 1 + (int)pick(common, (uint64_t)r->size - 1)) % r->size;
	const size_t count = counts[pick(common, sizeof(counts) / sizeof(counts[0]))];

	if (r->rank != from && r->rank != to)
		return;
	fill(r, p, count, 1 + step);
	p->wanted = r->rank == to ? 1 + step : 0;
	if (r->rank == from)
		OK(r, coll_send(p->in, count, COLL_I32, to, comm, way(r, p, own)));
	else
		OK(r, coll_recv(p->out, count, COLL_I32, from, comm, way(r, p, own)));
}

/* What goes from each rank to the next. */
struct epoch {
	struct place *p;
	coll_comm *comm;
	size_t count;
	int next, before;
};

static struct epoch around(struct rank *r, int step, uint64_t *common)
{
	struct epoch t = {.p = &r->places[step],
	                  .comm = r->comm[pick(common, COMMS)],
	                  .next = (r->rank + 1) % r->size,
	                  .before = (r->rank + r->size - 1) % r->size};

	t.count = counts[pick(common, sizeof(counts) / sizeof(counts[0]))];
	fill(r, t.p, t.count, 1 + step);
	t.p->wanted = 1 + step;
	return t;
}

/* From rank to rank around: each but the first receives before it sends. */
static void relay(struct rank *r, int step, uint64_t *common)
{
	const struct epoch t = around(r, step, common);

	if (r->rank == 0)
		OK(r, coll_send(t.p->in, t.count, COLL_I32, t.next, t.comm, NULL));
	OK(r, coll_recv(t.p->out, t.count, COLL_I32, t.before, t.comm, NULL));
	if (r->rank != 0)
		OK(r, coll_send(t.p->out, t.count, COLL_I32, t.next, t.comm, NULL));
}

/* Around at once, by a group or in one call. */
static void exchange(struct rank *r, int step, uint64_t *common)
{
	const struct epoch t = around(r, step, common);

	if (pick(common, 2)) {
		OK(r, coll_send_recv(t.p->in, t.count, t.next, t.p->out, t.count, t.before, COLL_I32, t.comm, NULL));
		return;
	}
	OK(r, coll_group_begin());
	OK(r, coll_send(t.p->in, t.count, COLL_I32, t.next, t.comm, NULL));
	OK(r, coll_recv(t.p->out, t.count, COLL_I32, t.before, t.comm, NULL));
	OK(r, coll_group_end());
}

/* Some pairs exchange something, most nothing. */
static void sparse(struct rank *r, int step, uint64_t *common, uint64_t *own)
{
	struct place *p = &r->places[step];
	coll_comm *comm = r->comm[pick(common, COMMS)];
	const uint64_t salt = pick(common, 1 << 20);
	size_t to[RANKS_MAX], from[RANKS_MAX];

	for (int q = 0; q < r->size; q++) {
		const uint64_t out = coll_mix64(salt + (uint64_t)(r->rank * RANKS_MAX + q));
		const uint64_t in = coll_mix64(salt + (uint64_t)(q * RANKS_MAX + r->rank));

		to[q] = out % 3 ? 0 : out % 4000;
		from[q] = in % 3 ? 0 : in % 4000;
	}
	fill(r, p, 0, 0);
	OK(r, coll_all_to_allv(p->in, to, NULL, p->out, from, NULL, COLL_I32, comm, way(r, p, own)));
}

/* One rank makes many calls that need nobody, the others come after it. */
static void far_ahead(struct rank *r, uint64_t *common)
{
	coll_comm *comm = r->comm[pick(common, COMMS)];
	const int root = (int)pick(common, (uint64_t)r->size), many = 20 + (int)pick(common, 400);
	int x[4] = {0}, y[4];

	for (int i = 0; i < many; i++) {
		if (i % 50 == 49)
			OK(r, coll_broadcast(x, y, 1 + (size_t)i % 3, COLL_I32, root, comm, NULL));
		else
			OK(r, coll_all_reduce(x, y, 0, COLL_I32, COLL_SUM, comm, NULL));
	}
}

static void prepared(struct rank *r, int step, uint64_t *common)
{
	struct place *p = &r->places[step];
	coll_comm *comm = r->comm[pick(common, COMMS)];
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *op = NULL;

	fill(r, p, 300, 1 + r->rank);
	d.kind = COLL_ALL_REDUCE;
	d.in = p->in;
	d.out = p->out;
	d.count = p->count;
	d.type = COLL_I32;
	d.op = COLL_MAX;
	p->wanted = r->size;
	OK(r, coll_operation_prepare(&op, &d, comm));
	for (int i = 0; i < 3 && op; i++) {
		OK(r, coll_operation_start(op, NULL));
		OK(r, coll_operation_wait(op, -1));
	}
	OK(r, coll_operation_destroy(&op));
}

/* Long enough for questions; seldom, long enough for circles to be looked at. */
static void pause_a_while(struct rank *r, uint64_t *common)
{
	const int who = (int)pick(common, (uint64_t)r->size);
	const useconds_t ms = pick(common, 6) == 0 ? 1600 : pick(common, 2) ? 350 : 5;

	if (r->rank == who)
		usleep(ms * 1000);
}

static void take_step(struct rank *r, int step, uint64_t *common, uint64_t *own)
{
	switch (pick(common, 12)) {
	case 0:
	case 1:
	case 2: collective(r, step, common, own); break;
	case 3:
	case 4:
	case 5: message(r, step, common, own); break;
	case 6: relay(r, step, common); break;
	case 7: exchange(r, step, common); break;
	case 8: sparse(r, step, common, own); break;
	case 9: far_ahead(r, common); break;
	case 10: prepared(r, step, common); break;
	default: pause_a_while(r, common);
	}
}

static void *walk(void *arg)
{
	struct rank *r = arg;
	uint64_t common = r->job->seed, own = coll_mix64(r->job->seed + (uint64_t)r->rank * 7919);

	OK(r, coll_comm_duplicate(r->comm[0], &r->comm[1]));
	for (int i = 0; i < STREAMS; i++)
		OK(r, coll_stream_create(&r->streams[i], r->comm[0]));
	for (int step = 0; step < STEPS && atomic_load(&plain_failures) == 0; step++) {
		uint64_t own_of_step = own + (uint64_t)step;

		common = coll_mix64(r->job->seed * STEPS + (uint64_t)step);
		take_step(r, step, &common, &own_of_step);
	}
	for (int i = 0; i < STREAMS; i++) {
		OK(r, coll_stream_wait(r->streams[i], -1));
		OK(r, coll_stream_destroy(&r->streams[i]));
	}
	for (int step = 0; step < STEPS; step++) {
		check(r, step);
		free(r->places[step].in);
		free(r->places[step].out);
	}
	for (int i = COMMS - 1; i >= 0; i--)
		OK(r, coll_comm_destroy(&r->comm[i]));
	return NULL;
}

static bool create(struct job *job, const char *const *settings)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status st;

	cfg.settings = (const char **)settings;
	st = coll_comm_create_all(job->comms, job->size, &cfg);
	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	return st == COLL_OK;
}

static void run_threads(struct job *job, void *(*fn)(void *))
{
	struct rank *ranks = calloc(RANKS_MAX, sizeof(*ranks));

	pthread_barrier_init(&job->all, NULL, (unsigned)job->size);
	for (int i = 0; i < job->size; i++) {
		ranks[i] = (struct rank){.job = job, .rank = i, .size = job->size};
		ranks[i].comm[0] = job->comms[i];
		pthread_create(&ranks[i].thread, NULL, fn, &ranks[i]);
	}
	for (int i = 0; i < job->size; i++)
		pthread_join(ranks[i].thread, NULL);
	pthread_barrier_destroy(&job->all);
	free(ranks);
}

static void right_programs_see_no_error(void)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	struct job job = {.size = 2 + (int)(seed % (RANKS_MAX - 1)), .seed = seed};

	if (create(&job, settings))
		run_threads(&job, walk);
}

/* Rank 2 comes late. Rank 1 waits for it in a call that rank 0 has made on a stream, and
 * rank 0 for a message that rank 1 sends afterwards: both block, and nothing is wrong. */
static void *beside(void *arg)
{
	struct rank *r = arg;
	int x = r->rank + 1, y = 0, message = 0;
	coll_stream *s = NULL;

	OK(r, coll_stream_create(&s, r->comm[0]));
	OK(r, coll_barrier(r->comm[0], NULL));
	if (r->rank == 2)
		usleep(2000000);
	OK(r, coll_all_reduce(&x, &y, 1, COLL_I32, COLL_SUM, r->comm[0], r->rank == 0 ? s : NULL));
	if (r->rank == 0)
		OK(r, coll_recv(&message, 1, COLL_I32, 1, r->comm[0], NULL));
	if (r->rank == 1)
		OK(r, coll_send(&y, 1, COLL_I32, 0, r->comm[0], NULL));
	OK(r, coll_stream_wait(s, -1));
	CHECK(y == 6 && (r->rank != 0 || message == 6), "rank %d: %d, %d", r->rank, y, message);
	OK(r, coll_stream_destroy(&s));
	coll_comm_destroy(&r->comm[0]);
	return NULL;
}

TEST(lawful, calls_on_streams_go_on_beside)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", "COLL_ALGO=all_reduce:ring", NULL};
	struct job job = {.size = 3};

	if (create(&job, settings))
		run_threads(&job, beside);
}

/* Rank 1 comes late, sends what rank 0 waits for, and has nothing else to do. */
static void *part(void *arg)
{
	struct rank *r = arg;
	int message = 0;

	OK(r, coll_barrier(r->comm[0], NULL));
	if (r->rank == 1)
		usleep((useconds_t)(1100000 + 12000 * r->job->seed));
	if (r->rank == 1)
		OK(r, coll_send(&r->size, 1, COLL_I32, 0, r->comm[0], NULL));
	else
		OK(r, coll_recv(&message, 1, COLL_I32, 1, r->comm[0], NULL));
	CHECK(message == (r->rank == 0 ? r->size : 0), "rank %d: %d", r->rank, message);
	OK(r, coll_comm_destroy(&r->comm[0]));
	return NULL;
}

static void *parting_pair(void *job)
{
	run_threads(job, part);
	return NULL;
}

/* Several pairs at once, their messages at different times after rank 0 has asked about them. */
TEST(lawful, last_words_are_heard)
{
	enum { PAIRS = 28 };
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	struct job jobs[PAIRS] = {0};
	pthread_t threads[PAIRS];
	int n = 0;

	for (; n < PAIRS; n++) {
		jobs[n] = (struct job){.size = 2, .seed = (uint64_t)n};
		if (!create(&jobs[n], settings) || pthread_create(&threads[n], NULL, parting_pair, &jobs[n]) != 0)
			break;
	}
	CHECK(n == PAIRS, "%d pairs", n);
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

/* ---- What is only said ---- */

static atomic_int crossings, told;

static void listen_for_crossing(void *arg, int level, const char *line)
{
	if (strstr(line, "COLL-5108") && strstr(line, "barrier number 2") && strstr(line, "another communicator"))
		atomic_fetch_add(&crossings, 1);
}

static void *cross(void *arg)
{
	struct rank *r = arg;
	coll_status st;

	OK(r, coll_comm_duplicate(r->comm[0], &r->comm[1]));
	OK(r, coll_barrier(r->comm[1], NULL));
	st = coll_barrier(r->comm[r->rank], NULL);
	CHECK(st == COLL_ERR_PEER_LATE, "rank %d: %d %s", r->rank, (int)st, coll_last_error(r->comm[r->rank])->message);
	if (strstr(coll_last_error(r->comm[r->rank])->message, "waits for this rank on another communicator"))
		atomic_fetch_add(&told, 1);
	pthread_barrier_wait(&r->job->all);
	coll_comm_destroy(&r->comm[1]);
	coll_comm_destroy(&r->comm[0]);
	return NULL;
}

TEST(lawful, crossed_communicators_are_told)
{
	const char *settings[] = {transports, "COLL_DEBUG=warn", "COLL_ARRIVAL_TIMEOUT_MS=3500", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	struct job job = {.size = 2};

	cfg.settings = settings;
	cfg.log = listen_for_crossing;
	atomic_store(&crossings, 0);
	atomic_store(&told, 0);
	REQUIRE(coll_comm_create_all(job.comms, job.size, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	run_threads(&job, cross);
	CHECK(atomic_load(&crossings) >= 1, "%d warnings", atomic_load(&crossings));
	/* Who gives up first: it does not wait any more when the other one looks. */
	CHECK(atomic_load(&told) >= 1, "none of the errors tells of the other communicator");
}

PROGRAM(lawful, "TRANSPORT [SEED [COUNT]]")
{
	char name[64];

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", argv[1]);
	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	for (int i = argc > 3 ? atoi(argv[3]) : 1; i > 0; i--, seed++) {
		snprintf(name, sizeof(name), "right_programs_see_no_error seed %llu", (unsigned long long)seed);
		plain_run(argv[1], name, right_programs_see_no_error);
	}
	return argc; /* a seed names no test */
}
