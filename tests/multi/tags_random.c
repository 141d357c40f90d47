/*
 * Random programs of tagged messages, and a judge that says what is lawful. Ranks are threads of this process.
 *
 * Every rank has the list of all messages of a program: source, destination, tag, length. It sends its own, some by
 * blocking calls, the others in a group on a stream; it posts receives with random patterns, cancels some of them, and
 * takes what is left with receives of anything, until it has as many messages as are meant for it. Which receive gets
 * which message depends on time, so the judge checks what must hold at any time:
 *
 *   fits       a message has the source and the tag that its receive takes, the contents that were sent, and is as
 *              long as it was; a receive that has no room, or expects another type, ends with the error that says so
 *   once       each message is received once, and no other
 *   sent first of two messages of one source that a receive takes, it gets the one sent first, unless a receive posted
 *              before it has that one
 *   posted     a receive that was cancelled had to be passed over by no message that went to a later one
 *
 * usage: tags_random TRANSPORT [SEED [PROGRAMS]]
 *        tags_random planted: built with the defects of base/planted.h, it must find each of them
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/planted.h"
#include "coll/coll.h"
#include "plain.h"

enum { RANKS_MAX = 8, MESSAGES_MAX = 64, RECEIVES_MAX = 4096, TAGS = 3, ROOM = 64 * 80, PROGRAMS_PER_JOB = 20 };

static char transports[64];
static const char *arrival = "COLL_ARRIVAL_TIMEOUT_MS=5000"; /* stalls end by it */
static uint64_t first_seed = 1;

static uint64_t pick(uint64_t *state, uint64_t n)
{
	*state = coll_mix64(*state + 1);
	return *state % n;
}

/* ---- Programs ---- */

/* Number k of those from one rank to another. count % MESSAGES_MAX == k, so its length names it. */
struct message {
	int tag;
	size_t count;
	bool is_f32;
	bool blocking; /* else it is sent on a stream, which may reach it later */
};

struct program {
	int size;
	uint64_t seed;
	int n[RANKS_MAX][RANKS_MAX]; /* messages from, to */
	struct message message[RANKS_MAX][RANKS_MAX][MESSAGES_MAX];
};

static void write_program(struct program *p, int size, uint64_t seed)
{
	uint64_t random = coll_mix64(seed);

	p->size = size;
	p->seed = seed;
	for (int s = 0; s < size; s++)
		for (int d = 0; d < size; d++) {
			p->n[s][d] = (int)pick(&random, 5) == 0 ? 0 : (int)pick(&random, 160 / (uint64_t)size) % 30;
			for (int k = 0; k < p->n[s][d]; k++) {
				const uint64_t blocks = pick(&random, 4) ? pick(&random, 5) : pick(&random, 70);

				p->message[s][d][k] = (struct message){.tag = (int)pick(&random, TAGS),
				                                       .count = (size_t)k + MESSAGES_MAX * blocks,
				                                       .is_f32 = pick(&random, 20) == 0,
				                                       .blocking = s != d && blocks < 5 && k < 20 &&
				                                                   pick(&random, 3) == 0};
			}
		}
}

static int value_of(int source, int dest, int number, size_t i)
{
	return source * 100000000 + dest * 10000000 + number * 100000 + (int)i;
}

/* ---- One rank ---- */

struct receive {
	int source, tag;
	size_t room;
	coll_request *request;
	int *buf;
	int posted_at, ended_at, cancelled_at; /* this rank's steps; 0: not */
	coll_status status;
	coll_message_info info;
};

struct rank {
	pthread_t thread;
	coll_comm *comm;
	const struct program *program;
	pthread_barrier_t *all;
	int rank;
	uint64_t random;
	coll_stream *stream;
	int *out[RANKS_MAX * MESSAGES_MAX]; /* freed when all have left */
	size_t out_bytes[RANKS_MAX * MESSAGES_MAX];
	int nout, step, got, expected, nreceives;
	struct receive receive[RECEIVES_MAX];
	bool broken; /* a call has failed: there is nothing to judge */
};

#define OK(r, call)                                                                                               \
	do {                                                                                                      \
		const coll_status ok_st = (call);                                                                 \
		if (ok_st != COLL_OK)                                                                             \
			(r)->broken = true;                                                                       \
		CHECK(ok_st == COLL_OK, "seed %llu rank %d of %d: %d %s", (unsigned long long)(r)->program->seed, \
		      (r)->rank, (r)->program->size, (int)ok_st, coll_last_error((r)->comm)->message);            \
	} while (0)

static void post(struct rank *r, bool anything)
{
	struct receive *v = &r->receive[r->nreceives];
	const uint64_t size = (uint64_t)r->program->size;

	if (r->nreceives == RECEIVES_MAX)
		return;
	r->nreceives++;
	*v = (struct receive){.source = COLL_ANY_SOURCE, .tag = COLL_ANY_TAG, .room = ROOM};
	if (!anything && pick(&r->random, 3))
		v->source = (int)pick(&r->random, size);
	if (!anything && pick(&r->random, 3))
		v->tag = (int)pick(&r->random, TAGS);
	if (!anything && pick(&r->random, 10) == 0)
		v->room = (size_t)pick(&r->random, 2000);
	v->buf = malloc(ROOM * sizeof(int));
	memset(v->buf, 0xee, v->room * sizeof(int));
	v->posted_at = ++r->step;
	OK(r, coll_irecv(v->buf, v->room, COLL_I32, v->source, v->tag, r->comm, &v->request));
}

static void ended(struct rank *r, struct receive *v, coll_status st)
{
	v->status = st;
	v->ended_at = ++r->step;
	if (st == COLL_OK || (st == COLL_ERR_ARGUMENT && v->info.source >= 0))
		r->got++;
	else if (st != COLL_ERR_CANCELLED)
		OK(r, st);
}

static void test_all(struct rank *r)
{
	for (int i = 0; i < r->nreceives; i++) {
		struct receive *v = &r->receive[i];
		coll_status st;

		if (!v->request)
			continue;
		v->info.source = -1;
		st = coll_request_test(&v->request, &v->info);
		if (st != COLL_AGAIN)
			ended(r, v, st);
	}
}

static void cancel(struct rank *r, struct receive *v)
{
	const int at = ++r->step;

	if (!v->request)
		return;
	if (coll_request_cancel(v->request) == COLL_OK) {
		v->cancelled_at = at;
		CHECK(coll_request_wait(&v->request, -1, &v->info) == COLL_ERR_CANCELLED, "a cancelled receive");
		ended(r, v, COLL_ERR_CANCELLED);
		memset(v->buf, 0xdd, v->room * sizeof(int));
	}
}

static void send_one(struct rank *r, int dest, int k, bool group)
{
	const struct message *m = &r->program->message[r->rank][dest][k];
	int *buf = r->out[r->nout] = malloc((m->count + 1) * sizeof(int));

	r->out_bytes[r->nout++] = m->count * sizeof(int);
	for (size_t i = 0; i < m->count; i++)
		buf[i] = value_of(r->rank, dest, k, i);
	OK(r, coll_send_tag(buf, m->count, m->is_f32 ? COLL_F32 : COLL_I32, dest, m->tag, r->comm,
	                    m->blocking ? NULL : r->stream));
	if (m->blocking && !group)
		memset(buf, 0xcc, m->count * sizeof(int));
}

/* Sends to all ranks by turns, receives and cancels between them. All sends in a group leave at its end. */
static void send_all(struct rank *r)
{
	int next[RANKS_MAX] = {0};
	bool more = true;

	while (more && !r->broken) {
		const bool group = pick(&r->random, 2);

		more = false;
		if (group)
			OK(r, coll_group_begin());
		for (int i = 0; i < 12; i++) {
			const int dest = (int)pick(&r->random, (uint64_t)r->program->size);

			if (next[dest] < r->program->n[r->rank][dest])
				send_one(r, dest, next[dest]++, group);
			if (pick(&r->random, 2))
				post(r, false);
		}
		if (group)
			OK(r, coll_group_end());
		if (r->nreceives > 0 && pick(&r->random, 2))
			cancel(r, &r->receive[pick(&r->random, (uint64_t)r->nreceives)]);
		test_all(r);
		for (int d = 0; d < r->program->size; d++)
			more |= next[d] < r->program->n[r->rank][d];
	}
}

static void scribble(struct rank *r)
{
	OK(r, coll_stream_wait(r->stream, -1));
	for (int at = 0; at < r->nout; at++) {
		memset(r->out[at], 0xcc, r->out_bytes[at]);
		free(r->out[at]);
	}
	r->nout = 0;
}

/* Until all messages have come and all have left. Then nothing may read what was sent. */
static void receive_all(struct rank *r)
{
	struct receive *open = NULL;

	while ((r->got < r->expected || coll_stream_query(r->stream) == COLL_AGAIN) && !r->broken) {
		if (r->got < r->expected && (!open || !open->request)) {
			post(r, true);
			open = &r->receive[r->nreceives - 1];
		}
		if (open && open->request) {
			coll_status st;

			open->info.source = -1;
			st = coll_request_wait(&open->request, 2, &open->info);
			if (st != COLL_AGAIN)
				ended(r, open, st);
		}
		test_all(r);
		if (r->nout && coll_stream_query(r->stream) == COLL_OK)
			scribble(r);
		if (r->nreceives == RECEIVES_MAX)
			r->broken = true;
	}
}

/* ---- The judge ---- */

static bool takes(const struct receive *v, int source, int tag)
{
	return (v->source == COLL_ANY_SOURCE || v->source == source) && (v->tag == COLL_ANY_TAG || v->tag == tag);
}

static const struct message *message_of(const struct rank *r, const struct receive *v)
{
	return &r->program->message[v->info.source][r->rank][v->info.count % MESSAGES_MAX];
}

static bool has_message(const struct receive *v)
{
	return v->status == COLL_OK || v->status == COLL_ERR_ARGUMENT;
}

#define JUDGE(r, cond, ...) \
	CHECK(cond, "seed %llu rank %d of %d: ", (unsigned long long)(r)->program->seed, (r)->rank, (r)->program->size)

static void judge_one(struct rank *r, struct receive *v, struct receive *taken[RANKS_MAX][MESSAGES_MAX])
{
	const int source = v->info.source, number = (int)(v->info.count % MESSAGES_MAX);
	const struct message *m;
	bool misfit;
	size_t wrong = 0;

	if (source < 0 || source >= r->program->size || number >= r->program->n[source][r->rank]) {
		JUDGE(r, !"a message that was sent");
		return;
	}
	m = message_of(r, v);
	misfit = m->count > v->room || m->is_f32;
	JUDGE(r, v->info.count == m->count && v->info.tag == m->tag);
	JUDGE(r, v->info.type == (m->is_f32 ? COLL_F32 : COLL_I32));
	JUDGE(r, takes(v, source, m->tag));
	JUDGE(r, !taken[source][number]);
	JUDGE(r, v->status == (misfit ? COLL_ERR_ARGUMENT : COLL_OK));
	taken[source][number] = v;
	for (size_t i = 0; i < v->room; i++)
		wrong +=
		        v->buf[i] != (misfit || i >= m->count ? (int)0xeeeeeeee : value_of(source, r->rank, number, i));
	JUDGE(r, wrong == 0);
}

/* Of all earlier messages of its source that it takes, receives posted before it have got them. Of those sent by
 * blocking calls and those sent on a stream, either may be earlier. */
static void judge_order(struct rank *r, const struct receive *v, struct receive *taken[RANKS_MAX][MESSAGES_MAX])
{
	const int source = v->info.source, number = (int)(v->info.count % MESSAGES_MAX);

	for (int k = 0; k < number; k++)
		if (taken[source][k] && message_of(r, v)->blocking == message_of(r, taken[source][k])->blocking &&
		    takes(v, source, r->program->message[source][r->rank][k].tag))
			JUDGE(r, taken[source][k]->posted_at < v->posted_at);
}

/* No receive posted after it had got a message that it takes when it was cancelled. */
static void judge_cancelled(struct rank *r, const struct receive *v)
{
	for (const struct receive *o = v + 1; o < r->receive + r->nreceives; o++)
		if (has_message(o) && o->ended_at < v->cancelled_at)
			JUDGE(r, !takes(v, o->info.source, o->info.tag));
}

static void judge(struct rank *r)
{
	struct receive *taken[RANKS_MAX][MESSAGES_MAX] = {{NULL}};

	for (int i = 0; i < r->nreceives; i++)
		if (has_message(&r->receive[i]))
			judge_one(r, &r->receive[i], taken);
	for (int i = 0; i < r->nreceives && atomic_load(&plain_failures) == 0; i++) {
		if (has_message(&r->receive[i]))
			judge_order(r, &r->receive[i], taken);
		else
			judge_cancelled(r, &r->receive[i]);
	}
	for (int s = 0; s < r->program->size; s++)
		for (int k = 0; k < r->program->n[s][r->rank]; k++)
			JUDGE(r, taken[s][k]);
}

static void *rank_main(void *p)
{
	struct rank *r = p;

	r->random = coll_mix64(r->program->seed * 64 + (uint64_t)r->rank);
	r->nout = r->step = r->got = r->expected = r->nreceives = 0;
	for (int s = 0; s < r->program->size; s++)
		r->expected += r->program->n[s][r->rank];
	OK(r, coll_stream_create(&r->stream, r->comm));
	for (int i = (int)pick(&r->random, 20); i > 0; i--)
		post(r, false);
	send_all(r);
	receive_all(r);
	/* A message too many would be for one of these. */
	pthread_barrier_wait(r->all);
	if (r->broken)
		coll_comm_abort(r->comm, "the test has failed");
	test_all(r);
	for (int i = 0; i < r->nreceives; i++)
		cancel(r, &r->receive[i]);
	for (int i = 0; i < r->nreceives && r->broken; i++)
		if (r->receive[i].request)
			coll_request_wait(&r->receive[i].request, -1, NULL);
	CHECK(r->broken || r->got == r->expected, "seed %llu: %d messages of %d", (unsigned long long)r->program->seed,
	      r->got, r->expected);
	scribble(r);
	OK(r, coll_stream_destroy(&r->stream));
	if (!r->broken)
		judge(r);
	for (int i = 0; i < r->nreceives; i++)
		free(r->receive[i].buf);
	return NULL;
}

/* ---- Jobs ---- */

static void quiet(void *arg, int level, const char *line)
{
}

static void *destroy_main(void *comm)
{
	coll_comm_destroy(comm);
	return NULL;
}

/* Programs on one set of communicators, one after the other. False: a check has failed. */
static bool run_job(uint64_t seed, int programs)
{
	static struct program program;
	static struct rank ranks[RANKS_MAX];
	const int size = 2 + (int)(coll_mix64(seed) % (RANKS_MAX - 1));
	const char *settings[] = {transports, coll_mix64(seed) / 8 % 2 ? "COLL_PROGRESS=on" : "COLL_PROGRESS=off",
	                          arrival, "COLL_DEBUG=error", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[RANKS_MAX];
	pthread_barrier_t all;

	cfg.settings = settings;
	cfg.log = quiet;
	if (coll_comm_create_all(comms, size, &cfg) != COLL_OK) {
		CHECK(false, "%s", coll_last_error(NULL)->message);
		return false;
	}
	pthread_barrier_init(&all, NULL, (unsigned)size);
	for (int i = 0; i < programs && atomic_load(&plain_failures) == 0; i++) {
		write_program(&program, size, seed + (uint64_t)i);
		for (int k = 0; k < size; k++) {
			ranks[k].comm = comms[k];
			ranks[k].program = &program;
			ranks[k].all = &all;
			ranks[k].rank = k;
			ranks[k].broken = false;
			pthread_create(&ranks[k].thread, NULL, rank_main, &ranks[k]);
		}
		for (int k = 0; k < size; k++)
			pthread_join(ranks[k].thread, NULL);
	}
	for (int k = 0; k < size && atomic_load(&plain_failures) > 0; k++)
		coll_comm_abort(comms[k], "the test has failed");
	for (int k = 0; k < size; k++)
		pthread_create(&ranks[k].thread, NULL, destroy_main, &comms[k]);
	for (int k = 0; k < size; k++)
		pthread_join(ranks[k].thread, NULL);
	pthread_barrier_destroy(&all);
	return atomic_load(&plain_failures) == 0;
}

static int programs_wanted = 60;

static void test_programs(void)
{
	for (int done = 0; done < programs_wanted; done += PROGRAMS_PER_JOB) {
		const int n = programs_wanted - done < PROGRAMS_PER_JOB ? programs_wanted - done : PROGRAMS_PER_JOB;

		if (!run_job(first_seed + (uint64_t)done, n))
			return;
	}
}

/* ---- Planted defects ---- */

#ifdef COLL_PLANTED
enum coll_planted coll_planted;

/* Each in a process of its own, which a defect may end or keep for ever. */
static bool is_found(enum coll_planted which)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0) {
		coll_planted = which;
		atomic_store(&plain_failures, 0); /* those of the defects before */
		arrival = "COLL_ARRIVAL_TIMEOUT_MS=5000";
		if (!freopen("/dev/null", "w", stderr))
			_exit(9);
		alarm(200);
		/* A list that a defect has closed to a circle is walked for ever: then the signal finds it. */
		setrlimit(RLIMIT_CPU, &(struct rlimit){.rlim_cur = 20, .rlim_max = 40});
		for (uint64_t seed = 1; seed < 60; seed += PROGRAMS_PER_JOB)
			if (!run_job(seed, PROGRAMS_PER_JOB))
				_exit(1);
		_exit(0);
	}
	waitpid(child, &status, 0);
	/* What only takes long is not found: stalls end by their time limit. A sanitizer has a status of its own. */
	return WIFEXITED(status) ? WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 9 : WTERMSIG(status) != SIGALRM;
}

static void test_planted(void)
{
	for (int which = COLL_PLANTED_MATCH_FIRST; which < COLL_PLANTED_MATCH_END; which++)
		CHECK(is_found((enum coll_planted)which), "defect %d", which - COLL_PLANTED_MATCH_FIRST);
	CHECK(!is_found(COLL_PLANTED_NONE), "none");
}
#else
static void test_planted(void)
{
	SKIP("built without defects");
}
#endif

PROGRAM(tags_random, "TRANSPORT|planted [SEED [PROGRAMS]]")
{
	if (argc > 2)
		first_seed = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		programs_wanted = atoi(argv[3]);
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s",
	         strcmp(argv[1], "planted") == 0 ? "loop" : argv[1]);
	if (strcmp(argv[1], "planted") == 0)
		PLAIN_RUN(test_planted);
	else
		PLAIN_RUN(test_programs);
	return argc;
}
