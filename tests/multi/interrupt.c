/*
 * coll_config.interrupt: it ends every kind of wait for a rank that does not come, runs in the thread
 * that called, and the other ranks read the reason. Ranks are threads of this process.
 *
 * usage: interrupt TRANSPORT on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include <arpa/inet.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "async_ranks.h"
#include "tests/seconds.h"

enum { LARGE = 1 << 20, PATIENCE_S = 2 };

/* The hook of a thread says stop when it has been asked `after` times. */
static _Thread_local struct {
	bool armed, callers; /* callers: a thread of this program, which may wait unarmed on a busy machine */
	int asked, after;
	double said_s;
} mine;
static atomic_int strays; /* asked in a thread of the library */

static int hook(void *arg)
{
	if (!mine.armed) {
		atomic_fetch_add(&strays, !mine.callers);
		return 0;
	}
	if (++mine.asked < mine.after)
		return 0;
	mine.said_s = now_s();
	return 1;
}

static void arm(int after)
{
	mine.armed = mine.callers = true;
	mine.asked = 0;
	mine.after = after;
	mine.said_s = 0;
}

/* The call has returned: because of the hook, soon, and the hook was not asked again. */
static void check_end(const char *what, coll_status st, int after)
{
	const double s = now_s() - mine.said_s;

	CHECK(st == COLL_ERR_ABORTED, "%s: %s", what, coll_status_string(st));
	CHECK(mine.asked == after, "%s: asked %d times", what, mine.asked);
	CHECK(s < PATIENCE_S, "%s: %.3f s after the hook", what, s);
	if (getenv("VERBOSE"))
		printf("%s: %.1f ms after the hook\n", what, s * 1e3);
	mine.armed = false;
}

/* ---- Waits of a communicator ---- */

struct wait {
	const char *name;
	coll_status (*call)(coll_comm *comm, void *buffer);
};

static coll_status small_all_reduce(coll_comm *comm, void *buffer)
{
	return coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, comm, NULL);
}

static coll_status large_all_reduce(coll_comm *comm, void *buffer)
{
	return coll_all_reduce(buffer, buffer, LARGE, COLL_F32, COLL_SUM, comm, NULL);
}

static coll_status barrier(coll_comm *comm, void *buffer)
{
	return coll_barrier(comm, NULL);
}

static coll_status receive(coll_comm *comm, void *buffer)
{
	return coll_recv(buffer, 4, COLL_F32, 1, comm, NULL);
}

static coll_status send_large(coll_comm *comm, void *buffer)
{
	return coll_send(buffer, LARGE, COLL_F32, 1, comm, NULL);
}

static coll_status split(coll_comm *comm, void *buffer)
{
	coll_comm *child = NULL;
	const coll_status st = coll_comm_split(comm, 0, 0, &child);

	CHECK(!child);
	return st;
}

static coll_status stream_wait(coll_comm *comm, void *buffer)
{
	coll_stream *s;
	coll_status st;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, comm, s));
	st = coll_stream_wait(s, -1);
	CHECK(coll_stream_destroy(&s) == st);
	return st;
}

static coll_status stream_destroy(coll_comm *comm, void *buffer)
{
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, comm, s));
	return coll_stream_destroy(&s);
}

static coll_status event_wait(coll_comm *comm, void *buffer)
{
	coll_stream *s, *t;
	coll_event *e, *f;
	coll_status st;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_stream_create(&t, comm));
	OK(comm, coll_event_create(&e, comm));
	OK(comm, coll_event_create(&f, comm));
	OK(comm, coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, comm, s));
	OK(comm, coll_event_record(e, s));
	OK(comm, coll_stream_wait_event(t, e));
	OK(comm, coll_event_record(f, t));
	st = coll_event_wait(f, 60000);
	coll_event_destroy(&e);
	coll_event_destroy(&f);
	coll_stream_destroy(&s);
	coll_stream_destroy(&t);
	return st;
}

static coll_status behind_others(coll_comm *comm, void *buffer)
{
	coll_stream *s;
	coll_status st;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, comm, s));
	st = small_all_reduce(comm, (char *)buffer + 64);
	coll_stream_destroy(&s);
	return st;
}

static coll_status group(coll_comm *comm, void *buffer)
{
	OK(comm, coll_group_begin());
	OK(comm, coll_recv(buffer, 4, COLL_F32, 1, comm, NULL));
	OK(comm, small_all_reduce(comm, (char *)buffer + 64));
	return coll_group_end();
}

static coll_status drain(coll_comm *comm, void *buffer)
{
	coll_stream *s;
	coll_status st;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, comm, s));
	st = coll_comm_destroy(&comm);
	CHECK(st == COLL_OK, "the stream reports it");
	return coll_stream_destroy(&s);
}

static coll_status receive_any(coll_comm *comm, void *buffer)
{
	return coll_recv_tag(buffer, 1, COLL_F32, COLL_ANY_SOURCE, COLL_ANY_TAG, comm, NULL);
}

static coll_status send_with_tag(coll_comm *comm, void *buffer)
{
	return coll_send_tag(buffer, LARGE, COLL_F32, 1, 7, comm, NULL);
}

static coll_status request_wait(coll_comm *comm, void *buffer)
{
	coll_request *r = NULL;

	OK(comm, coll_irecv(buffer, 1, COLL_F32, 1, 7, comm, &r));
	return coll_request_wait(&r, -1, NULL);
}

static const struct wait waits[] = {
        {"small all_reduce", small_all_reduce},
        {"large all_reduce", large_all_reduce},
        {"barrier", barrier},
        {"recv", receive},
        {"send", send_large},
        {"recv_tag", receive_any},
        {"send_tag", send_with_tag},
        {"request_wait", request_wait},
        {"split", split},
        {"stream_wait", stream_wait},
        {"stream_destroy", stream_destroy},
        {"event_wait", event_wait},
        {"a call behind others", behind_others},
        {"group_end", group},
        {"comm_destroy with pending work", drain},
};

struct job {
	pthread_t thread;
	coll_comm *comm;
	const struct wait *wait;
	atomic_int *stage;
	int rank;
};

static void *waiting_rank(void *arg)
{
	struct job *j = arg;
	const bool destroys = j->wait->call == drain;
	void *buffer = calloc(LARGE, sizeof(float));

	mine.callers = true;
	if (j->rank == 0) {
		arm(2);
		check_end(j->wait->name, j->wait->call(j->comm, buffer), 2);
		if (!destroys) {
			const coll_error *e = coll_last_error(j->comm);

			CHECK(e->status == COLL_ERR_ABORTED && e->rank == 0 && strstr(e->message, "interrupted"),
			      "%s: %s", j->wait->name, e->message);
			coll_comm_destroy(&j->comm);
		}
		atomic_store(j->stage, 1);
		free(buffer);
		return NULL;
	}
	while (atomic_load(j->stage) == 0)
		sched_yield();
	CHECK(coll_all_reduce(buffer, buffer, 2, COLL_F32, COLL_SUM, j->comm, NULL) == COLL_ERR_ABORTED, "%s",
	      j->wait->name);
	CHECK(strstr(coll_last_error(j->comm)->message, "interrupted") && coll_last_error(j->comm)->rank == 0, "%s: %s",
	      j->wait->name, coll_last_error(j->comm)->message);
	coll_comm_destroy(&j->comm);
	free(buffer);
	return NULL;
}

/* Two ranks whose configuration has the hook. */
static bool create_two(coll_comm **comms)
{
	const char *settings[] = {transports, progress, "COLL_DEBUG=error", further[0], NULL};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : swallow;
	cfg.interrupt = hook;
	mine.callers = true;
	return coll_comm_create_all(comms, 2, &cfg) == COLL_OK;
}

/* Two ranks, a thread each. */
static void two_ranks(void *(*run)(void *job), const struct wait *w)
{
	atomic_int stage = 0;
	struct job jobs[2];
	coll_comm *comms[2];

	CHECK(create_two(comms));
	for (int r = 0; r < 2; r++) {
		jobs[r] = (struct job){.comm = comms[r], .wait = w, .stage = &stage, .rank = r};
		pthread_create(&jobs[r].thread, NULL, run, &jobs[r]);
	}
	for (int r = 0; r < 2; r++)
		pthread_join(jobs[r].thread, NULL);
}

TEST(interrupt, every_wait)
{
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++)
		two_ranks(waiting_rank, &waits[i]);
}

TEST(interrupt, without_native_ways)
{
	further[0] = "COLL_INTRA=0";
	interrupt_every_wait();
	further[0] = NULL;
}

/* ---- Operations: two ranks prepare, one starts ---- */

static void *operation_rank(void *arg)
{
	struct job *j = arg;
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *op;
	float x[2] = {1, 1};

	mine.callers = true;
	d.in = d.out = x;
	d.count = 2;
	OK(j->comm, coll_operation_prepare(&op, &d, j->comm));
	if (j->rank == 0) {
		arm(2);
		OK(j->comm, coll_operation_start(op, NULL));
		check_end("operation_wait", coll_operation_wait(op, -1), 2);
		atomic_store(j->stage, 1);
	} else {
		while (atomic_load(j->stage) == 0)
			sched_yield();
		CHECK(coll_barrier(j->comm, NULL) == COLL_ERR_ABORTED);
	}
	coll_operation_destroy(&op);
	coll_comm_destroy(&j->comm);
	return NULL;
}

TEST(interrupt, operations)
{
	two_ranks(operation_rank, NULL);
}

/* ---- Ranks that meet at an address ---- */

static char root[48];

/* A port that nobody has: other tests run at the same time. */
static void find_root(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 &&
	      getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	snprintf(root, sizeof(root), "COLL_ROOT=127.0.0.1:%d", ntohs(at.sin_port));
	close(fd);
}

/* ---- Destroy waits for ranks that have not come to it ---- */

/* What is aborted is the group that is being made; its parent stays. */
static void *group_rank(void *arg)
{
	struct job *j = arg;
	const int ranks[] = {1, 0};
	coll_comm *child = NULL;
	float x = 1;
	coll_status st;

	mine.callers = true;
	while (j->rank == 1 && atomic_load(j->stage) == 0)
		sched_yield();
	if (j->rank == 0)
		arm(2);
	st = coll_comm_create_group(j->comm, ranks, 2, 3, &child);
	if (j->rank == 0)
		check_end("comm_create_group", st, 2);
	CHECK(st == COLL_ERR_ABORTED && !child, "rank %d: %s", j->rank, coll_status_string(st));
	CHECK(strstr(coll_last_error(j->comm)->message, "interrupted") && coll_last_error(j->comm)->rank == 0, "%s",
	      coll_last_error(j->comm)->message);
	atomic_store(j->stage, 1);
	OK(j->comm, coll_all_reduce(&x, &x, 1, COLL_F32, COLL_SUM, j->comm, NULL));
	OK(j->comm, coll_comm_create_group(j->comm, ranks, 2, 3, &child));
	CHECK(coll_comm_destroy(&child) == COLL_OK);
	coll_comm_destroy(&j->comm);
	return NULL;
}

TEST(interrupt, creation_of_a_group)
{
	two_ranks(group_rank, NULL);
}

/* Ranks with contexts of their own: those of coll_comm_create_all() do not wait for each other. */
static void *destroying_rank(void *arg)
{
	const char *settings[] = {root, progress, "COLL_DEBUG=error", NULL};
	struct job *j = arg;
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : swallow;
	cfg.rank = j->rank;
	cfg.size = 2;
	cfg.interrupt = j->rank == 0 ? hook : NULL;
	mine.armed = true; /* creation may ask */
	mine.after = INT_MAX;
	CHECK(coll_comm_create(&j->comm, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	if (j->rank == 0) {
		arm(2);
		check_end("comm_destroy", coll_comm_destroy(&j->comm), 2);
		CHECK(strstr(coll_last_error(NULL)->message, "interrupted"), "%s", coll_last_error(NULL)->message);
		atomic_store(j->stage, 1);
		return NULL;
	}
	while (atomic_load(j->stage) == 0)
		sched_yield();
	CHECK(coll_barrier(j->comm, NULL) == COLL_ERR_ABORTED);
	CHECK(strstr(coll_last_error(j->comm)->message, "interrupted"), "%s", coll_last_error(j->comm)->message);
	coll_comm_destroy(&j->comm);
	return NULL;
}

TEST(interrupt, destroy)
{
#ifdef COLL_SIM_JOBS
	SKIP("a rendezvous uses sockets of the system");
#endif
	atomic_int stage = 0;
	struct job jobs[2] = {{.rank = 0, .stage = &stage}, {.rank = 1, .stage = &stage}};
	pthread_t threads[2];

	find_root();
	for (int r = 0; r < 2; r++)
		pthread_create(&threads[r], NULL, destroying_rank, &jobs[r]);
	for (int r = 0; r < 2; r++)
		pthread_join(threads[r], NULL);
}

/* ---- Creation: the other ranks do not come ---- */

TEST(interrupt, creation)
{
#ifdef COLL_SIM_JOBS
	SKIP("a rendezvous uses sockets of the system");
#endif
	const char *settings[] = {root, "COLL_DEBUG=error", NULL};

	find_root();
	for (int rank = 0; rank < 2; rank++) {
		coll_config cfg = COLL_CONFIG_INIT;
		coll_comm *comm = NULL;

		cfg.settings = settings;
		cfg.log = getenv("VERBOSE") ? NULL : swallow;
		cfg.interrupt = hook;
		cfg.rank = rank;
		cfg.size = 3;
		arm(3);
		check_end(rank ? "create, rank 1" : "create, rank 0", coll_comm_create(&comm, &cfg), 3);
		CHECK(!comm && strstr(coll_last_error(NULL)->message, "interrupted"), "%s",
		      coll_last_error(NULL)->message);
	}
}

/* Rank 0 is interrupted while rank 2 of 3 is missing: rank 1 learns why. */
static void *create_first(void *arg)
{
	const char *settings[] = {root, "COLL_DEBUG=error", NULL};
	const int rank = *(int *)arg;
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	coll_status st;

	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : swallow;
	cfg.rank = rank;
	cfg.size = 3;
	cfg.interrupt = rank == 0 ? hook : NULL;
	if (rank == 0)
		arm(20);
	st = coll_comm_create(&comm, &cfg);
	if (rank == 0)
		check_end("create, two of three", st, 20);
	CHECK(st == COLL_ERR_ABORTED && strstr(coll_last_error(NULL)->message, "rank 0 was interrupted"), "rank %d: %s",
	      rank, coll_last_error(NULL)->message);
	return NULL;
}

TEST(interrupt, the_reason_of_a_creation)
{
#ifdef COLL_SIM_JOBS
	SKIP("a rendezvous uses sockets of the system");
#endif
	int ranks[2] = {0, 1};
	pthread_t threads[2];

	find_root();
	for (int r = 0; r < 2; r++)
		pthread_create(&threads[r], NULL, create_first, &ranks[r]);
	for (int r = 0; r < 2; r++)
		pthread_join(threads[r], NULL);
}

/* ---- The structure ---- */

/* A program that was built before the member existed. */
TEST(interrupt, older_structure)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	cfg.struct_size = offsetof(coll_config, interrupt);
	cfg.interrupt = (int (*)(void *))(uintptr_t)1; /* not read */
	cfg.rank = 0;
	cfg.size = 1;
	CHECK(coll_comm_create(&comm, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	CHECK(coll_barrier(comm, NULL) == COLL_OK);
	coll_comm_destroy(&comm);
	cfg.struct_size--;
	cfg.log = swallow;
	CHECK(coll_comm_create(&comm, &cfg) == COLL_ERR_ARGUMENT && !comm);
}

/* Not the progress thread, nor the service thread. */
TEST(interrupt, no_other_thread)
{
	coll_comm *comms[2];

	CHECK(create_two(comms));
	for (int r = 0; r < 2; r++)
		coll_comm_abort(comms[r], "the end");
	for (int r = 0; r < 2; r++)
		coll_comm_destroy(&comms[r]);
	CHECK(atomic_load(&strays) == 0, "asked %d times in another thread", atomic_load(&strays));
}

/* ---- One wait for two jobs ---- */

/* How often the hook of each was asked. */
static atomic_int asked_of[2];

static int counting_hook(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
	return 0;
}

static void *patient_rank(void *arg)
{
	coll_comm **comms = arg;
	char *x = malloc(LARGE);

	for (int tries = 0; tries < 5000 && (atomic_load(&asked_of[0]) < 3 || atomic_load(&asked_of[1]) < 3); tries++)
		usleep(1000);
	for (int j = 0; j < 2; j++)
		CHECK(coll_recv(x, LARGE, COLL_U8, 0, comms[j], NULL) == COLL_OK);
	for (int j = 0; j < 2; j++)
		coll_comm_destroy(&comms[j]);
	free(x);
	return NULL;
}

/* A group of a call on either, which have a hook each. */
TEST(interrupt, two_jobs)
{
	const char *settings[] = {transports, progress, "COLL_DEBUG=error", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *mine_of[2], *theirs[2], *comms[2];
	char *x = calloc(1, LARGE);
	pthread_t thread;

	cfg.settings = settings;
	cfg.interrupt = counting_hook;
	for (int j = 0; j < 2; j++) {
		cfg.interrupt_arg = &asked_of[j];
		CHECK(coll_comm_create_all(comms, 2, &cfg) == COLL_OK);
		mine_of[j] = comms[0];
		theirs[j] = comms[1];
	}
	atomic_store(&asked_of[0], 0);
	atomic_store(&asked_of[1], 0);
	pthread_create(&thread, NULL, patient_rank, theirs);
	CHECK(coll_group_begin() == COLL_OK);
	for (int j = 0; j < 2; j++)
		CHECK(coll_send(x, LARGE, COLL_U8, 1, mine_of[j], NULL) == COLL_OK);
	CHECK(coll_group_end() == COLL_OK);
	CHECK(atomic_load(&asked_of[0]) >= 3 && atomic_load(&asked_of[1]) >= 3, "asked %d and %d times",
	      atomic_load(&asked_of[0]), atomic_load(&asked_of[1]));
	for (int j = 0; j < 2; j++)
		coll_comm_destroy(&mine_of[j]);
	pthread_join(thread, NULL);
	free(x);
}

ASYNC_PROGRAM(interrupt)
