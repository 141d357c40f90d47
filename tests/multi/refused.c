/*
 * Memory that is refused. Of two ranks, threads of this process, one makes a series of calls, and
 * the k-th allocation that the library makes in its thread fails: for every k alone, for some with
 * all after it. What fails says so with COLL_ERR_MEMORY and a text, the rank can abort and
 * destroy, the other rank is not left waiting, and memory, descriptors and threads are as before.
 *
 * The allocator (refusing.h) needs glibc and no sanitizer. What the library's own threads ask for is not
 * refused.
 *
 * usage: refused TRANSPORT [PART-OF-A-TEST'S-NAME]
 */
#define PLAIN_OWN_MAIN
#include <dirent.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll.h"
#include "plain.h"
#include "refusing.h"

/* ---- Two ranks ---- */

enum { MOST = 2000 };

static char transports[64];

struct rank {
	coll_comm *comm;
	int rank;
	coll_status (*act)(struct rank *r);
	unsigned k; /* 0: nothing is refused */
	enum refusing mode;
	unsigned refused;
	coll_status status;
};

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

struct footprint {
	long live;
	int descriptors, threads;
};

static struct footprint footprint(void)
{
	return (struct footprint){refusing_live(), entries("/proc/self/fd"), entries("/proc/self/task")};
}

/* A thread that was joined is seen a moment longer. */
static struct footprint settled(int threads)
{
	struct footprint f = footprint();

	for (int i = 0; i < 2000 && f.threads > threads; i++) {
		usleep(1000);
		f = footprint();
	}
	return f;
}

static void quiet(void *arg, int level, const char *line)
{
}

static coll_status create(coll_comm **comms, int n)
{
	const char *settings[] = {transports,
	                          "COLL_PROGRESS=off",
	                          "COLL_TIMEOUT_MS=4000",
	                          "COLL_ARRIVAL_TIMEOUT_MS=4000",
	                          "COLL_DEBUG=error",
	                          NULL};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : quiet;
	return coll_comm_create_all(comms, n, &cfg);
}

static void arm(const struct rank *r)
{
	refusing_arm(r->k, r->mode);
}

static void disarm(struct rank *r)
{
	r->refused = refusing_disarm();
}

/* A call on comm has failed: the error is clear, and the other rank is let go. Returns st. */
static coll_status told(struct rank *r, const coll_comm *comm, coll_status st)
{
	const coll_error *e = coll_last_error(comm);

	disarm(r);
	if (r->k > 0) {
		/* A link that ends for want of memory is seen by both, and either may be the first to tell;
		 * without memory for a note it is the other one. */
		const bool deaf = st == COLL_ERR_PEER_DEAD &&
		                  (r->mode == REFUSING_ALL_FROM || strstr(e->message, "the link between"));

		CHECK(st == COLL_ERR_MEMORY || deaf, "allocation %u: %s: %s", r->k, coll_status_string(st), e->message);
		CHECK(!comm || deaf || (e->status == st && strstr(e->message, "memory")), "allocation %u: %s", r->k,
		      e->message);
		coll_comm_abort(r->comm, "a test");
	} else {
		CHECK(st == COLL_ERR_MEMORY || st == COLL_ERR_ABORTED || st == COLL_ERR_PEER_DEAD, "%s: %s",
		      coll_status_string(st), e->message);
	}
	return st;
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;

	arm(r);
	r->status = r->act(r);
	disarm(r);
	coll_comm_destroy(&r->comm);
	return NULL;
}

/* Returns how many allocations were refused. */
static unsigned job(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	coll_comm *comms[2] = {NULL, NULL};
	struct rank ranks[2];
	pthread_t other;
	const coll_status st = create(comms, 2);

	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	if (st != COLL_OK)
		return 0;
	for (int i = 0; i < 2; i++)
		ranks[i] = (struct rank){.comm = comms[i], .rank = i, .act = act, .k = i == 0 ? k : 0, .mode = mode};
	pthread_create(&other, NULL, rank_main, &ranks[1]);
	rank_main(&ranks[0]);
	pthread_join(other, NULL);
	CHECK(k > 0 || (ranks[0].status == COLL_OK && ranks[1].status == COLL_OK), "nothing was refused: %s, %s",
	      coll_status_string(ranks[0].status), coll_status_string(ranks[1].status));
	CHECK(ranks[0].status != COLL_OK || ranks[1].status == COLL_OK, "allocation %u: only the other rank: %s", k,
	      coll_status_string(ranks[1].status));
	return ranks[0].refused;
}

/* run(k, mode) for every k, until it needs no k-th allocation. */
static void every_allocation(unsigned (*run)(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode),
                             coll_status (*act)(struct rank *r))
{
	struct footprint before, after;
	unsigned k = 1, total = 0;

	/* What is kept for good is made: errors of threads, stacks. */
	for (int i = 0; i < 3; i++)
		run(act, i, REFUSING_ONE);
	run(act, 0, REFUSING_ONE);
	for (enum refusing mode = REFUSING_ONE; mode <= REFUSING_ALL_FROM; mode++)
		for (k = 1; k <= MOST && atomic_load(&plain_failures) == 0; k += mode == REFUSING_ONE ? 1 : 1 + k / 8) {
			unsigned n;

			before = footprint();
			n = run(act, k, mode);
			after = settled(before.threads);
			CHECK(after.live <= before.live, "allocation %u: %ld blocks leaked", k,
			      after.live - before.live);
			CHECK(after.descriptors <= before.descriptors, "allocation %u: descriptors leaked", k);
			CHECK(after.threads <= before.threads, "allocation %u: threads leaked", k);
			if (atomic_load(&plain_failures) > 0)
				fprintf(stderr, "at allocation %u, %s\n", k, mode ? "and all after it" : "alone");
			if (n == 0)
				break;
			total++;
		}
	CHECK(total > 0, "nothing was refused");
	printf("     %u refusals\n", total);
}

/* ---- What is called ---- */

#define TRY(comm, call)                           \
	do {                                      \
		st = (call);                      \
		if (st != COLL_OK) {              \
			st = told(r, (comm), st); \
			goto out;                 \
		}                                 \
	} while (0)

enum { N = 30000 };

static coll_status calls(struct rank *r)
{
	const size_t counts[2] = {7, 9};
	int *x = refusing_ints(N), *y = refusing_ints(2 * N), one = 1;
	coll_comm *c = r->comm;
	coll_op op;
	coll_status st;

	TRY(c, coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, c, NULL));
	TRY(c, coll_all_reduce(x, y, N, COLL_I32, COLL_SUM, c, NULL));
	TRY(c, coll_broadcast(x, y, N, COLL_I32, 0, c, NULL));
	TRY(c, coll_all_gatherv(x, y, counts, NULL, COLL_I32, c, NULL));
	TRY(c, coll_all_to_allv(x, counts, NULL, y, r->rank ? (size_t[]){9, 9} : (size_t[]){7, 7}, NULL, COLL_I32, c,
	                        NULL));
	TRY(c, coll_gatherv(x, counts[r->rank], y, counts, NULL, COLL_I32, 1, c, NULL));
	TRY(c, coll_send_recv(x, 5, !r->rank, y, 5, !r->rank, COLL_I32, c, NULL));
	TRY(c, coll_op_create_premul_sum(&op, c, &(float){2}, COLL_F32));
	TRY(c, coll_all_reduce(x, y, 10, COLL_F32, op, c, NULL));
	TRY(c, coll_barrier(c, NULL));
out:
	refusing_free(x);
	refusing_free(y);
	return st;
}

/* A call that was refused for want of memory, and left the communicator whole, is made again: the
 * other rank, which is in its own since, never knows. */
#define TRY_AGAIN(comm, call)                            \
	do {                                             \
		st = (call);                             \
		if (st == COLL_ERR_MEMORY && r->k > 0) { \
			disarm(r);                       \
			st = (call);                     \
		}                                        \
		if (st != COLL_OK) {                     \
			st = told(r, (comm), st);        \
			goto out;                        \
		}                                        \
	} while (0)

static coll_status repeats(struct rank *r)
{
	const size_t counts[2] = {7, 9};
	int *x = refusing_ints(N), *y = refusing_ints(2 * N), one = 1 + r->rank;
	coll_comm *c = r->comm;
	coll_status st;

	for (int i = 0; i < N; i++)
		x[i] = i + r->rank;
	TRY_AGAIN(c, coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, c, NULL));
	CHECK(one == 3, "%d", one);
	TRY_AGAIN(c, coll_all_reduce(x, y, N, COLL_I32, COLL_SUM, c, NULL));
	CHECK(y[N - 1] == 2 * N - 1, "%d", y[N - 1]);
	TRY_AGAIN(c, coll_all_gather(x, y, 100, COLL_I32, c, NULL));
	CHECK(y[99] == 99 && y[100] == 1, "%d %d", y[99], y[100]);
	TRY_AGAIN(c, coll_all_gatherv(x, y, counts, NULL, COLL_I32, c, NULL));
	TRY_AGAIN(c, coll_all_to_allv(x, counts, NULL, y, r->rank ? (size_t[]){9, 9} : (size_t[]){7, 7}, NULL, COLL_I32,
	                              c, NULL));
	TRY_AGAIN(c, coll_send_recv(x, 5, !r->rank, y, 5, !r->rank, COLL_I32, c, NULL));
	CHECK(y[4] == 4 + !r->rank, "%d", y[4]);
	TRY_AGAIN(c, coll_barrier(c, NULL));
out:
	refusing_free(x);
	refusing_free(y);
	return st;
}

static coll_status children(struct rank *r)
{
	coll_comm *child[3] = {NULL, NULL, NULL};
	int x = 1;
	coll_status st;

	TRY(r->comm, coll_comm_split(r->comm, 3, -r->rank, &child[0]));
	TRY(r->comm, coll_comm_duplicate(r->comm, &child[1]));
	TRY(r->comm, coll_comm_create_from_ranks(r->comm, (int[]){1, 0}, 2, &child[2]));
	for (int i = 0; i < 3; i++)
		TRY(child[i], coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child[i], NULL));
out:
	disarm(r); /* ends: see below */
	for (int i = 0; i < 3; i++) {
		if (st != COLL_OK && child[i] && r->k > 0)
			coll_comm_abort(child[i], "a test");
		coll_comm_destroy(&child[i]);
	}
	return st;
}

/* An end has what it needs: nothing of it is refused, and the other rank need not wait for its
 * time to be up. */
static coll_status ends(struct rank *r)
{
	coll_comm *child = NULL;
	coll_status st;

	disarm(r);
	TRY(r->comm, coll_comm_duplicate(r->comm, &child));
	TRY(child, coll_barrier(child, NULL));
	arm(r);
	CHECK(coll_comm_destroy(&child) == COLL_OK);
	disarm(r);
out:
	return st;
}

static coll_status streams(struct rank *r)
{
	coll_comm *c = r->comm;
	coll_stream *s[2] = {NULL, NULL};
	coll_event *e = NULL;
	int *x = refusing_ints(N), *y = refusing_ints(2 * N), *z = refusing_ints(N), one = 1, in = 0;
	const size_t counts[2] = {7, 9};
	coll_status st;

	TRY(c, coll_stream_create(&s[0], c));
	TRY(c, coll_stream_create(&s[1], c));
	TRY(c, coll_event_create(&e, c));
	TRY(c, coll_all_reduce(x, x, N, COLL_I32, COLL_SUM, c, s[0]));
	TRY(c, coll_event_record(e, s[0]));
	TRY(NULL, coll_stream_wait_event(s[1], e));
	TRY(c, coll_all_gatherv(x, y, counts, NULL, COLL_I32, c, s[1]));
	TRY(c, coll_send_recv(&one, 1, !r->rank, &in, 1, !r->rank, COLL_I32, c, s[0]));
	TRY(c, coll_barrier(c, s[1]));
	TRY(c, coll_all_reduce(z, z, N, COLL_I32, COLL_SUM, c, NULL)); /* blocking, while others are pending */
	TRY(c, coll_event_wait(e, -1));
	TRY(c, coll_stream_wait(s[0], -1));
	TRY(c, coll_stream_wait(s[1], -1));
out:
	coll_event_destroy(&e);
	coll_stream_destroy(&s[0]);
	coll_stream_destroy(&s[1]);
	refusing_free(x);
	refusing_free(y);
	refusing_free(z);
	return st;
}

static coll_status groups(struct rank *r)
{
	enum { CALLS = 20 };
	coll_comm *c = r->comm;
	coll_stream *s = NULL;
	int x[CALLS] = {0}, *large = refusing_ints(N), in = 0, one = 1;
	coll_status st;

	TRY(c, coll_stream_create(&s, c));
	for (int round = 0; round < 2; round++) {
		coll_stream *of = round ? s : NULL;
		coll_status end;

		coll_group_begin();
		st = COLL_OK;
		for (int i = 0; i < CALLS && st == COLL_OK; i++)
			st = coll_all_reduce(&x[i], &x[i], 1, COLL_I32, COLL_SUM, c, of);
		if (st == COLL_OK)
			st = coll_send(&one, 1, COLL_I32, !r->rank, c, of);
		if (st == COLL_OK)
			st = coll_recv(&in, 1, COLL_I32, !r->rank, c, of);
		if (st == COLL_OK)
			st = coll_all_reduce(large, large, N, COLL_I32, COLL_SUM, c, of);
		if (st != COLL_OK) { /* the calls before go their way */
			told(r, c, st);
			coll_group_end();
			goto out;
		}
		end = coll_group_end();
		/* Nothing was handed in: that is no communicator's error. */
		TRY(coll_last_error(c)->status == COLL_OK ? NULL : c, end);
	}
	TRY(c, coll_stream_wait(s, -1));
out:
	coll_stream_destroy(&s);
	refusing_free(large);
	return st;
}

static coll_status operations(struct rank *r)
{
	const size_t counts[2] = {7, 9};
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_comm *c = r->comm;
	coll_operation *op[2] = {NULL, NULL};
	coll_stream *s = NULL;
	int *x = refusing_ints(N), *y = refusing_ints(N);
	coll_status st;

	d.in = d.out = x;
	d.count = N;
	d.type = COLL_I32;
	TRY(c, coll_operation_prepare(&op[0], &d, c));
	d.kind = COLL_ALL_GATHER;
	d.ragged = 1;
	d.out = y;
	d.out_counts = counts;
	TRY(c, coll_operation_prepare(&op[1], &d, c));
	TRY(c, coll_stream_create(&s, c));
	for (int round = 0; round < 2; round++) {
		TRY(c, coll_operation_start(op[0], NULL));
		TRY(c, coll_operation_wait(op[0], -1));
		TRY(c, coll_operation_start(op[0], s));
		TRY(c, coll_operation_start(op[1], NULL));
		TRY(c, coll_operation_wait(op[1], -1));
		TRY(c, coll_operation_wait(op[0], -1));
	}
out:
	coll_operation_destroy(&op[0]);
	coll_operation_destroy(&op[1]);
	coll_stream_destroy(&s);
	refusing_free(x);
	refusing_free(y);
	return st;
}

static coll_status memory(struct rank *r)
{
	coll_comm *c = r->comm;
	void *shared = NULL;
	int *plain = refusing_ints(N);
	coll_status st;

	TRY(c, coll_mem_alloc(c, &shared, N * sizeof(int)));
	TRY(c, coll_mem_register(c, plain, N * sizeof(int)));
	TRY(c, coll_all_reduce(plain, shared, N, COLL_I32, COLL_SUM, c, NULL));
	TRY(c, coll_mem_deregister(c, plain));
	TRY(c, coll_mem_free(c, shared));
out:
	if (st != COLL_OK)
		coll_comm_destroy(&r->comm); /* what was announced is the communicator's to the end */
	refusing_free(plain);
	return st;
}

/* ---- Creation ---- */

static void *destroys(void *comm)
{
	coll_comm_destroy(comm);
	return NULL;
}

static unsigned created_together(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	struct rank r = {.k = k, .mode = mode};
	coll_comm *comms[2] = {NULL, NULL};
	pthread_t other;

	arm(&r);
	r.status = create(comms, 2);
	disarm(&r);
	if (r.status == COLL_OK) { /* without what was refused, if anything */
		pthread_create(&other, NULL, destroys, &comms[1]);
		coll_comm_destroy(&comms[0]);
		pthread_join(other, NULL);
	} else {
		const coll_error *e = coll_last_error(NULL);

		CHECK(r.status == COLL_ERR_MEMORY && e->status == r.status && strstr(e->message, "memory"),
		      "allocation %u: %s: %s", k, coll_status_string(r.status), e->message);
	}
	CHECK(k > 0 || r.status == COLL_OK);
	return r.refused;
}

/* Two processes' ways of creating, in threads, with an all-gather of their own. */
struct table {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	char *cards;
	int come;
	bool failed;
};

struct seat {
	struct table *table;
	int rank;
	coll_status status;
	coll_comm *comm;
	unsigned k, refused;
	enum refusing mode;
};

static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	struct seat *s = arg;
	struct table *t = s->table;
	int result;

	pthread_mutex_lock(&t->lock);
	if (!t->cards)
		t->cards = (char *)refusing_ints(2 * len_bytes / sizeof(int) + 1);
	memcpy(t->cards + (size_t)s->rank * len_bytes, mine, len_bytes);
	t->come++;
	pthread_cond_broadcast(&t->changed);
	while (t->come % 2 && !t->failed)
		pthread_cond_wait(&t->changed, &t->lock);
	result = t->failed;
	if (!result)
		memcpy(all, t->cards, 2 * len_bytes);
	pthread_mutex_unlock(&t->lock);
	return result;
}

static void *sits(void *arg)
{
	const char *settings[] = {transports, "COLL_TIMEOUT_MS=4000", "COLL_ARRIVAL_TIMEOUT_MS=4000",
	                          "COLL_DEBUG=error", NULL};
	struct seat *s = arg;
	struct rank r = {.k = s->k, .mode = s->mode};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = s->rank;
	cfg.size = 2;
	cfg.exchange = exchange;
	cfg.exchange_arg = s;
	cfg.log = getenv("VERBOSE") ? NULL : quiet;
	cfg.settings = settings;
	s->comm = NULL;
	arm(&r);
	s->status = coll_comm_create(&s->comm, &cfg);
	disarm(&r);
	s->refused = r.refused;
	if (s->status != COLL_OK) {
		const coll_error *e = coll_last_error(NULL);

		CHECK(s->k == 0 ||
		              (s->status == COLL_ERR_MEMORY && e->status == s->status && strstr(e->message, "memory")),
		      "allocation %u: %s: %s", s->k, coll_status_string(s->status), e->message);
		CHECK(!s->comm);
		pthread_mutex_lock(&s->table->lock);
		s->table->failed = true;
		pthread_cond_broadcast(&s->table->changed);
		pthread_mutex_unlock(&s->table->lock);
	}
	coll_comm_destroy(&s->comm);
	return NULL;
}

static unsigned created_apart(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	struct table t = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
	struct seat s[2] = {{.table = &t, .rank = 0, .k = k, .mode = mode}, {.table = &t, .rank = 1}};
	pthread_t other;

	pthread_create(&other, NULL, sits, &s[1]);
	sits(&s[0]);
	pthread_join(other, NULL);
	CHECK(k > 0 || (s[0].status == COLL_OK && s[1].status == COLL_OK), "%s, %s", coll_status_string(s[0].status),
	      coll_status_string(s[1].status));
	refusing_free(t.cards);
	return s[0].refused;
}

static unsigned created_alone(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode)
{
	struct rank r = {.k = k, .mode = mode};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	cfg.rank = 0;
	cfg.size = 1;
	cfg.log = quiet;
	arm(&r);
	r.status = coll_comm_create(&comm, &cfg);
	disarm(&r);
	if (r.status != COLL_OK) {
		const coll_error *e = coll_last_error(NULL);

		CHECK(r.status == COLL_ERR_MEMORY && e->status == r.status && strstr(e->message, "memory") && !comm,
		      "allocation %u: %s: %s", k, coll_status_string(r.status), e->message);
	}
	CHECK(k > 0 || r.status == COLL_OK);
	coll_comm_destroy(&comm);
	return r.refused;
}

static void create_alone(void)
{
	every_allocation(created_alone, NULL);
}

static void create_together(void)
{
	every_allocation(created_together, NULL);
}

static void create_apart(void)
{
	if (strstr(transports, "loop"))
		SKIP("loop stays in one process");
	every_allocation(created_apart, NULL);
}

#define TEST_OF(act)                        \
	static void refused_##act(void)     \
	{                                   \
		every_allocation(job, act); \
	}
TEST_OF(calls)
TEST_OF(repeats)
TEST_OF(children)
TEST_OF(ends)
TEST_OF(streams)
TEST_OF(groups)
TEST_OF(operations)
TEST_OF(memory)

int main(int argc, char **argv)
{
	static const struct plain_case tests[] = {
	        PLAIN_CASE(create_alone),       PLAIN_CASE(create_together),  PLAIN_CASE(create_apart),
	        PLAIN_CASE(refused_calls),      PLAIN_CASE(refused_children), PLAIN_CASE(refused_ends),
	        PLAIN_CASE(refused_repeats),    PLAIN_CASE(refused_streams),  PLAIN_CASE(refused_groups),
	        PLAIN_CASE(refused_operations), PLAIN_CASE(refused_memory),
	};

	if (argc < 2) {
		fprintf(stderr, "usage: %s TRANSPORT [PART-OF-A-TEST'S-NAME]\n", argv[0]);
		return 64;
	}
	refusing_begin();
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", argv[1]);
	plain_run_cases("", tests, sizeof(tests) / sizeof(tests[0]), argc > 2 ? argv[2] : NULL);
	return plain_summary();
}
