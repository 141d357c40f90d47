/*
 * What the library promises to the process it lives in: forked children, signals,
 * descriptors, threads. Ranks are threads of this process but where one must be killed.
 *
 * usage: contracts TRANSPORT [PART-OF-A-TEST'S-NAME]
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"
#include "meeting.h"
#include "plain.h"
#include "thread_ranks.h"

/* ---- Descriptors and threads ---- */

/* Entries of a directory of /proc/self; inheritable: descriptors that an exec keeps. */
static int entries(const char *path, bool inheritable)
{
	DIR *d = opendir(path);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && !(inheritable && (fcntl(atoi(e->d_name), F_GETFD) & FD_CLOEXEC) != 0))
			n++;
	closedir(d);
	return n;
}

#ifdef __SANITIZE_THREAD__
enum { SANITIZER_THREADS = 1 };
#else
enum { SANITIZER_THREADS = 0 };
#endif

static void nothing(coll_comm **comm, int rank, void *arg)
{
}

TEST(contracts, nothing_stays_open)
{
	coll_comm *comms[2];
	int fds = 0, threads = 0, inheritable;

	/* The first thread that is made brings ThreadSanitizer's own one along. */
	each_rank(comms, 1, nothing, NULL);
	for (int i = 0; i < 5000 && entries("/proc/self/task", false) != 1 + SANITIZER_THREADS; i++)
		usleep(1000);
	threads = entries("/proc/self/task", false);
	CHECK(threads == 1 + SANITIZER_THREADS, "%d threads before any communicator", threads);
	inheritable = entries("/proc/self/fd", true);

	for (int i = 0; i < 101; i++) {
		if (!create(comms, 2))
			return;
		CHECK(entries("/proc/self/fd", true) == inheritable, "a descriptor without close-on-exec");
		if (i == 0)
			CHECK(entries("/proc/self/task", false) > threads, "no service thread?");
		each_rank(comms, 2, sums, AND_DESTROY);
		/* The first round may open what the C library keeps. */
		if (i > 0)
			continue;
		fds = entries("/proc/self/fd", false);
	}
	CHECK(entries("/proc/self/fd", false) == fds, "%d descriptors, were %d", entries("/proc/self/fd", false), fds);
	/* A joined thread may be listed a moment longer. */
	for (int i = 0; i < 5000 && entries("/proc/self/task", false) != threads; i++)
		usleep(1000);
	CHECK(entries("/proc/self/task", false) == threads, "%d threads", entries("/proc/self/task", false));
}

/* ---- Signals ---- */

static atomic_int handled;

static void handler(int signal)
{
	atomic_fetch_add(&handled, 1);
}

struct sleeper {
	atomic_int tid;
	pthread_t thread;
	atomic_int ready;
};

static char state_of(int tid)
{
	char path[64], text[256] = "";
	FILE *f;
	const char *p;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "re");
	if (f) {
		text[fread(text, 1, sizeof(text) - 1, f)] = 0;
		fclose(f);
	}
	p = strrchr(text, ')');
	return p ? p[2] : '?';
}

/* Rank 1 comes only after rank 0 has been interrupted in its sleep many times. */
static void interrupted(coll_comm **comm, int rank, void *arg)
{
	struct sleeper *s = arg;

	if (rank == 0) {
		s->thread = pthread_self();
		atomic_store(&s->tid, (int)syscall(SYS_gettid));
		atomic_store(&s->ready, 1);
	} else {
		while (!atomic_load(&s->ready))
			sched_yield();
		for (int i = 0; i < 100; i++) {
			int before = atomic_load(&handled), looks = 0;

			while (looks < 50000 && state_of(atomic_load(&s->tid)) != 'S') {
				looks++;
				usleep(100);
			}
			CHECK(looks < 50000, "a long wait does not sleep");
			pthread_kill(s->thread, SIGALRM);
			while (atomic_load(&handled) == before)
				sched_yield();
		}
	}
	CHECK(sum_once(*comm) == COLL_OK, "rank %d: %s", rank, coll_last_error(*comm)->message);
}

TEST(contracts, a_signal_ends_no_wait)
{
	struct sigaction sa = {.sa_handler = handler}, old;
	struct sleeper s = {0};
	coll_comm *comms[2];

	REQUIRE(create(comms, 2));
	sigaction(SIGALRM, &sa, &old);
	each_rank(comms, 2, interrupted, &s);
	CHECK(atomic_load(&handled) >= 100);
	sigaction(SIGALRM, &old, NULL);
	each_rank(comms, 2, sums, AND_DESTROY);
}

/* Signals of the process whose handlers are not what they were: a bit for each. */
static unsigned changed_handlers(const struct sigaction before[32])
{
	struct sigaction now;
	unsigned changed = 0;

	for (int s = 1; s < 32; s++)
		if (sigaction(s, NULL, &now) == 0 && now.sa_handler != before[s].sa_handler)
			changed |= 1u << s;
	return changed;
}

static bool create_with(coll_comm **comms, const char *dump_signal)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", dump_signal, NULL};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.settings = settings;
	return coll_comm_create_all(comms, 2, &cfg) == COLL_OK;
}

/* But for one that nobody handles, to ask for dumps; and what the program does with it
 * later is the program's. */
TEST(contracts, no_handler_is_installed)
{
	static const char *const names[] = {"COLL_DUMP_SIGNAL=none", "COLL_DUMP_SIGNAL=usr1", "COLL_DUMP_SIGNAL=usr2"};
	const unsigned expected[] = {0, 1u << SIGUSR1, 1u << SIGUSR2};
	struct sigaction before[32], mine = {.sa_handler = handler};
	coll_comm *comms[2], *more[2];

	for (int s = 1; s < 32; s++)
		sigaction(s, NULL, &before[s]);
	for (int i = 0; i < 3; i++) {
		REQUIRE(create_with(comms, names[i]));
		each_rank(comms, 2, sums, NULL);
		CHECK(changed_handlers(before) == expected[i], "%s: %x", names[i], changed_handlers(before));
		REQUIRE(create_with(more, names[i]));
		each_rank(comms, 2, destroys, NULL);
		CHECK(changed_handlers(before) == expected[i], "%s: %x", names[i], changed_handlers(before));
		each_rank(more, 2, destroys, NULL);
		CHECK(changed_handlers(before) == 0, "%s: %x", names[i], changed_handlers(before));
	}
	REQUIRE(create_with(comms, names[2]));
	sigaction(SIGUSR2, &mine, NULL);
	each_rank(comms, 2, destroys, NULL);
	CHECK(changed_handlers(before) == expected[2]);
	REQUIRE(create_with(comms, names[2]));
	each_rank(comms, 2, destroys, NULL);
	CHECK(changed_handlers(before) == expected[2]);
	sigaction(SIGUSR2, &before[SIGUSR2], NULL);
}

/* ---- Forked children ---- */

static int status_of(pid_t pid)
{
	int status = -1;

	waitpid(pid, &status, 0);
	return status;
}

TEST(contracts, a_child_disturbs_nobody)
{
	char path[64], count[16];
	char *argv[] = {path, "contracts", "--descriptors", count, NULL};
	int gate[2], open_before;
	coll_comm *comms[3];
	char byte;
	pid_t living, pid;

	snprintf(path, sizeof(path), "/proc/self/exe");
	REQUIRE(pipe2(gate, O_CLOEXEC) == 0);
	open_before = entries("/proc/self/fd", true);
	snprintf(count, sizeof(count), "%d", open_before);
	REQUIRE(create(comms, 3));
	each_rank(comms, 3, sums, NULL);
	/* This one holds copies of all descriptors until the end. */
	living = fork();
	if (living == 0) {
		close(gate[1]);
		_exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
	}
	for (int i = 0; i < 5; i++) {
		pid = fork();
		if (pid == 0)
			_exit(7);
		each_rank(comms, 3, sums, NULL);
		CHECK(status_of(pid) == 7 << 8);
		pid = fork();
		if (pid == 0) {
			execv(path, argv);
			_exit(9);
		}
		each_rank(comms, 3, sums, NULL);
		CHECK(status_of(pid) == 0, "an exec'd child has other descriptors than before the creation");
	}
	each_rank(comms, 3, sums, AND_DESTROY);
	close(gate[1]);
	CHECK(status_of(living) == 0);
	close(gate[0]);
}

/* What a program may hold of a job when it forks. */
struct held {
	coll_comm *comms[2];
	coll_stream *stream;
	coll_event *event;
	coll_operation *operation;
	coll_request *request;
};

static bool is_refused(coll_status st, const char *kind)
{
	const coll_error *e = coll_last_error(NULL);

	if (st == COLL_ERR_ARGUMENT && strcmp(e->kind, kind) == 0 && strstr(e->message, "was forked from"))
		return true;
	fprintf(stderr, "%s in a child: status %d, last error %s\n", kind, st, e->message);
	return false;
}

static int sockets_open(void)
{
	char path[32], target[32] = "";
	int n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n += readlink(path, target, sizeof(target)) > 0 && strncmp(target, "socket:", 7) == 0;
	}
	return n;
}

static bool child_is_refused(struct held *h)
{
	int x[4] = {1, 2, 3, 4}, y[4] = {0}, n = 0, bad = 0;
	coll_comm *c = h->comms[0], *child = NULL;
	size_t counts[2] = {1, 1};
	coll_op op = COLL_SUM;
	void *p = NULL;
	double t;

#define NO(kind, call) bad += !is_refused(coll_##call, kind)
	NO("all_reduce", all_reduce(x, y, 2, COLL_I32, COLL_SUM, c, NULL));
	NO("barrier", barrier(c, NULL));
	NO("broadcast", broadcast(x, y, 1, COLL_I32, 0, c, NULL));
	NO("all_gatherv", all_gatherv(x, y, counts, NULL, COLL_I32, c, NULL));
	NO("all_to_all", all_to_all(x, y, 1, COLL_I32, c, h->stream));
	NO("send", send(x, 1, COLL_I32, 1, c, NULL));
	NO("send_recv", send_recv(x, 1, 1, y, 1, 1, COLL_I32, c, NULL));
	NO("send_tag", send_tag(x, 1, COLL_I32, 1, 5, c, NULL));
	NO("recv_tag", recv_tag(x, 1, COLL_I32, 1, 5, c, NULL));
	NO("request_test", request_test(&h->request, NULL));
	NO("request_wait", request_wait(&h->request, -1, NULL));
	NO("request_cancel", request_cancel(h->request));
	NO("comm_split", comm_split(c, 0, 0, &child));
	NO("comm_create_group", comm_create_group(c, x, 1, 0, &child));
	NO("comm_abort", comm_abort(c, "in a child"));
	NO("comm_set_timeout", comm_set_timeout(c, 1, 1));
	NO("comm_shrink", comm_shrink(c, &child, NULL, NULL));
	NO("comm_stats", comm_stats(c, NULL, &n));
	NO("comm_peer_stats", comm_peer_stats(c, NULL, &n));
	NO("explain", comm_explain(c, "barrier", 1, COLL_U8, (char *)y, sizeof(y)));
	NO("mem_alloc", mem_alloc(c, &p, 64));
	NO("mem_register", mem_register(c, x, sizeof(x)));
	NO("op_create", op_create_premul_sum(&op, c, x, COLL_F32));
	NO("op_destroy", op_destroy(&op, c));
	NO("stream_create", stream_create(&h->stream, c));
	NO("stream_query", stream_query(h->stream));
	NO("stream_wait", stream_wait(h->stream, -1));
	NO("event_record", event_record(h->event, h->stream));
	NO("event_wait", event_wait(h->event, -1));
	NO("event_query", event_query(h->event));
	NO("event_time", event_time(h->event, &t));
	NO("operation_start", operation_start(h->operation, NULL));
	NO("operation_wait", operation_wait(h->operation, -1));
	NO("operation_test", operation_test(h->operation));
	NO("progress", progress(c));
#undef NO
	return bad == 0 && is_refused(COLL_ERR_ARGUMENT, coll_last_error(c)->kind);
}

/* A child makes a job of its own, and what the parent made ends before or after. */
static int child_of_fork(struct held *h, int before)
{
	coll_comm *own[1];
	bool fine = sockets_open() == before && child_is_refused(h) && create(own, 1) && sum_once(own[0]) == COLL_OK;

	fine = fine && coll_event_destroy(&h->event) == COLL_OK && coll_comm_destroy(&h->comms[0]) == COLL_OK &&
	       coll_operation_destroy(&h->operation) == COLL_OK && coll_stream_destroy(&h->stream) == COLL_OK &&
	       coll_comm_destroy(&h->comms[1]) == COLL_OK && !h->comms[1] && !h->event && !h->stream && !h->operation;
	return fine && sum_once(own[0]) == COLL_OK && coll_comm_destroy(&own[0]) == COLL_OK ? 7 : 1;
}

static void prepares(coll_comm **comm, int rank, void *arg)
{
	coll_operation_desc desc = COLL_OPERATION_DESC_INIT;

	desc.kind = COLL_BARRIER;
	CHECK(coll_operation_prepare((coll_operation **)arg + rank, &desc, *comm) == COLL_OK);
}

TEST(contracts, a_child_is_refused_what_is_its_parents)
{
	coll_operation *operations[2];
	const int before = sockets_open();
	struct held h = {.stream = NULL};
	int x;

	REQUIRE(create(h.comms, 2));
	each_rank(h.comms, 2, sums, NULL);
	each_rank(h.comms, 2, prepares, operations);
	h.operation = operations[0];
	REQUIRE(coll_stream_create(&h.stream, h.comms[0]) == COLL_OK &&
	        coll_event_create(&h.event, h.comms[0]) == COLL_OK);
	REQUIRE(coll_irecv(&x, 1, COLL_I32, 1, 9, h.comms[0], &h.request) == COLL_OK);
	for (int i = 0; i < 3; i++) {
		const bool plain = i == 2; /* the C library does not learn of the child */
		const pid_t pid = plain ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();

		if (pid == 0)
			_exit(plain ? (child_is_refused(&h) ? 7 : 1) : child_of_fork(&h, before));
		each_rank(h.comms, 2, sums, NULL);
		CHECK(status_of(pid) == 7 << 8, "child %d", i);
		each_rank(h.comms, 2, sums, NULL);
	}
	CHECK(coll_request_cancel(h.request) == COLL_OK && coll_event_destroy(&h.event) == COLL_OK);
	coll_request_wait(&h.request, -1, NULL);
	for (int r = 0; r < 2; r++)
		coll_operation_destroy(&operations[r]);
	coll_stream_destroy(&h.stream);
	each_rank(h.comms, 2, sums, AND_DESTROY);
}

/* ---- Ranks as processes: one is killed ---- */

static struct shared {
	atomic_int calls, done;
	int status, culprit;
	char message[512];
	struct meeting meeting;
} * shared;

/* A child of the killed rank that outlives it: it closes the sockets of its parent, or holds them. Two names: what the
 * ranks say to each other goes over TCP. */
enum how { NO_CHILD, FORKED, CLONED, FORKED_TWO_NAMES, CLONED_TWO_NAMES };

static pid_t child_of(enum how how)
{
	return how % 2 ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* Rank 0 of two reports what it saw; rank 1 calls until it is killed. */
static void process_rank(int rank, size_t count, enum how how)
{
	const char *name = how < FORKED_TWO_NAMES ? NULL : rank ? "COLL_HOST_ID=b" : "COLL_HOST_ID=a";
	const char *settings[] = {transports, "COLL_DEBUG=error", "COLL_TIMEOUT_MS=1500", name, NULL};
	struct meeting_seat seat = {&shared->meeting, rank, 2};
	coll_config cfg = COLL_CONFIG_INIT;
	float *x = calloc(count, sizeof(*x)), *y = calloc(count, sizeof(*y));
	coll_comm *comm = NULL;
	coll_status st;

	meeting_sit(&seat, &cfg);
	cfg.settings = settings;
	if (!freopen("/dev/null", "w", stderr) || signal(SIGPIPE, SIG_DFL) == SIG_ERR)
		_exit(9);
	st = coll_comm_create(&comm, &cfg);
	for (int i = 0; st == COLL_OK; i++) {
		if (rank == 1 && how && i == 10 && child_of(how) == 0) {
			while (!atomic_load(&shared->done) && getppid() != 0)
				usleep(1000);
			_exit(0);
		}
		st = coll_send_recv(x, count, !rank, y, count, !rank, COLL_F32, comm, NULL);
		if (rank == 0)
			atomic_fetch_add(&shared->calls, 1);
	}
	if (rank == 0) {
		shared->status = (int)st;
		shared->culprit = coll_last_error(comm)->rank;
		snprintf(shared->message, sizeof(shared->message), "%s", coll_last_error(comm)->message);
	}
	coll_comm_destroy(&comm);
	_exit(0);
}

static void peer_killed(size_t count, enum how how)
{
	pid_t pids[2];

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int r = 0; r < 2; r++) {
		pids[r] = fork();
		if (pids[r] == 0)
			process_rank(r, count, how);
	}
	for (int i = 0; i < 20000 && atomic_load(&shared->calls) < 30; i++)
		usleep(1000);
	CHECK(atomic_load(&shared->calls) >= 30, "count %zu", count);
	kill(pids[1], SIGKILL);
	CHECK(status_of(pids[0]) == 0, "count %zu: rank 0 did not end by itself", count);
	atomic_store(&shared->done, 1);
	status_of(pids[1]);
	CHECK(shared->culprit == 1 && shared->status == COLL_ERR_PEER_DEAD, "count %zu, child %d: %s", count, how,
	      shared->message);
}

/* Both send at once, so the killed one's peer is sending when it goes. */
TEST(contracts, no_sigpipe)
{
	static const size_t counts[] = {1, 1000, 20000, 300000, 1000000};

	if (strcmp(transport, "loop") == 0)
		SKIP("ranks of one process cannot be killed one by one");
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		peer_killed(counts[i], NO_CHILD);
}

TEST(contracts, killed_with_a_living_child)
{
	if (strcmp(transport, "loop") == 0)
		SKIP("ranks of one process cannot be killed one by one");
	for (enum how how = FORKED; how <= (strcmp(transport, "tcp") == 0 ? CLONED_TWO_NAMES : CLONED); how++)
		peer_killed(1000, how);
}

PROGRAM(contracts, "TRANSPORT")
{
	if (argc == 3 && strcmp(argv[1], "--descriptors") == 0)
		exit(entries("/proc/self/fd", false) - 1 != atoi(argv[2]));
	threads_over(argc > 1 ? argv[1] : "loop");
	shared = meeting_page(sizeof(*shared));
	return 2;
}
