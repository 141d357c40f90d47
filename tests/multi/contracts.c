/*
 * What the library promises to the process it lives in: forked children, signals,
 * descriptors, threads, several communicators, calls after an error, log lines.
 * Ranks are threads of this process but where one must be killed.
 *
 * usage: contracts TRANSPORT [PART-OF-A-TEST'S-NAME]
 */
#define PLAIN_OWN_MAIN
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

enum { RANKS_MAX = 4 };

static const char *transport;
static char transports[64];

/* ---- Ranks as threads ---- */

typedef void (*rank_fn)(coll_comm **comm, int rank, void *arg);

struct rank {
	pthread_t thread;
	coll_comm **comm;
	int rank;
	rank_fn fn;
	void *arg;
};

static void *rank_main(void *p)
{
	struct rank *r = p;

	r->fn(r->comm, r->rank, r->arg);
	return NULL;
}

static void each_rank(coll_comm **comms, int n, rank_fn fn, void *arg)
{
	struct rank ranks[RANKS_MAX];

	for (int r = 0; r < n; r++) {
		ranks[r] = (struct rank){.comm = &comms[r], .rank = r, .fn = fn, .arg = arg};
		pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
}

static bool create(coll_comm **comms, int n)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status st;

	cfg.settings = settings;
	st = coll_comm_create_all(comms, n, &cfg);
	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	return st == COLL_OK;
}

static coll_status sum_once(coll_comm *comm)
{
	int x[700], n = coll_comm_size(comm);
	coll_status st;

	for (int i = 0; i < 700; i++)
		x[i] = coll_comm_rank(comm) + i;
	st = coll_all_reduce(x, x, 700, COLL_I32, COLL_SUM, comm, NULL);
	for (int i = 0; st == COLL_OK && i < 700; i++)
		if (x[i] != n * i + n * (n - 1) / 2)
			return COLL_ERR_INTERNAL;
	return st;
}

static void sums(coll_comm **comm, int rank, void *arg)
{
	for (int i = 0; i < 5; i++) {
		coll_status st = sum_once(*comm);

		CHECK(st == COLL_OK, "rank %d: %s", rank, coll_last_error(*comm)->message);
	}
	if (arg)
		CHECK(coll_comm_destroy(comm) == COLL_OK && *comm == NULL);
}

static void destroys(coll_comm **comm, int rank, void *arg)
{
	(void)rank, (void)arg;
	CHECK(coll_comm_destroy(comm) == COLL_OK && *comm == NULL);
}

#define AND_DESTROY ((void *)1)

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

static void nothing_stays_open(void)
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

/* ---- Several communicators ---- */

static void one_after_the_other(void)
{
	coll_comm *a[3], *b[2];

	if (!create(a, 3) || !create(b, 2))
		return;
	each_rank(a, 3, sums, NULL);
	each_rank(b, 2, sums, NULL);
	each_rank(a, 3, sums, AND_DESTROY);
	each_rank(b, 2, sums, AND_DESTROY);
}

static void *create_and_sum(void *arg)
{
	coll_comm *comms[3];

	(void)arg;
	for (int i = 0; i < 10; i++)
		if (create(comms, 3))
			each_rank(comms, 3, sums, AND_DESTROY);
	return NULL;
}

static void two_threads_create(void)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, create_and_sum, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

/* The first of the list that reaches a rank is taken. */
static void transports_in_order(void)
{
	static const char *const lists[] = {"tcp,shm", "shm,tcp"};

	for (int i = 0; i < 2; i++) {
		char list[64];
		const char *settings[] = {list, "COLL_DEBUG=error", NULL};
		coll_config cfg = COLL_CONFIG_INIT;
		coll_comm *comms[2];

		snprintf(list, sizeof(list), "COLL_TRANSPORTS=%s", lists[i]);
		cfg.settings = settings;
		REQUIRE(coll_comm_create_all(comms, 2, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
		CHECK(strncmp(coll_comm_transport(comms[0], 1), lists[i], 3) == 0, "%s: %s", lists[i],
		      coll_comm_transport(comms[0], 1));
		each_rank(comms, 2, sums, AND_DESTROY);
	}
}

struct by_id {
	coll_unique_id id;
	coll_comm *comms[3];
};

static void create_by_id(coll_comm **comm, int rank, void *arg)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	const struct by_id *b = arg;
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = rank;
	cfg.size = 3;
	cfg.id = &b->id;
	cfg.settings = settings;
	CHECK(coll_comm_create(comm, &cfg) == COLL_OK, "rank %d: %s", rank, coll_last_error(NULL)->message);
	if (*comm)
		sums(comm, rank, AND_DESTROY);
}

/* Two jobs at once: their ids keep them apart. */
static void *meet_by_id(void *arg)
{
	struct by_id b = {.comms = {NULL}};

	(void)arg;
	CHECK(coll_unique_id_create(&b.id) == COLL_OK, "%s", coll_last_error(NULL)->message);
	each_rank(b.comms, 3, create_by_id, &b);
	return NULL;
}

static void unique_ids(void)
{
	pthread_t t[2];

	CHECK(coll_unique_id_create(NULL) == COLL_ERR_ARGUMENT);
	if (strcmp(transport, "loop") == 0)
		SKIP("loop joins ranks made by one call");
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, meet_by_id, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

static void destroy_of_nothing(void)
{
	coll_comm *none = NULL;

	CHECK(coll_comm_destroy(NULL) == COLL_OK);
	CHECK(coll_comm_destroy(&none) == COLL_OK);
	CHECK(coll_comm_abort(NULL, "nothing") == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_rank(NULL) == -1 && coll_comm_size(NULL) == 0 && !coll_comm_host(NULL, 0));
	CHECK(coll_barrier(NULL, NULL) == COLL_ERR_ARGUMENT);
}

/* ---- After an error ---- */

static void goes_on_after_abort(coll_comm **out, int rank, void *arg)
{
	coll_comm *comm = *out;
	char message[1024], block[8] = {0};
	void *memory = arg;
	coll_status st = COLL_OK;

	CHECK(coll_mem_alloc(comm, &memory, 4096) == COLL_OK);
	if (rank == 1)
		CHECK(coll_comm_abort(comm, "enough of it") == COLL_OK);
	for (int i = 0; i < 1000000 && st == COLL_OK; i++)
		st = sum_once(comm);
	CHECK(st == COLL_ERR_ABORTED, "rank %d: status %d", rank, (int)st);
	snprintf(message, sizeof(message), "%s", coll_last_error(comm)->message);
	CHECK(strstr(message, "enough of it") && !strchr(message, '%'), "%s", message);
	for (int i = 0; i < 100; i++) {
		CHECK(coll_barrier(comm, NULL) == COLL_ERR_ABORTED);
		CHECK(coll_broadcast(block, block, 8, COLL_U8, 0, comm, NULL) == COLL_ERR_ABORTED);
		CHECK(coll_send_recv(block, 4, !rank, block + 4, 4, !rank, COLL_U8, comm, NULL) == COLL_ERR_ABORTED);
	}
	CHECK(coll_last_error(comm)->status == COLL_ERR_ABORTED);
	CHECK(strcmp(coll_last_error(comm)->message, message) == 0, "%s", coll_last_error(comm)->message);
	CHECK(coll_comm_rank(comm) == rank && coll_comm_host(comm, 0));
	CHECK(coll_mem_free(comm, memory) == COLL_OK);
	CHECK(coll_comm_destroy(out) == COLL_OK);
}

static void same_status_at_once(void)
{
	coll_comm *comms[2];

	if (create(comms, 2))
		each_rank(comms, 2, goes_on_after_abort, NULL);
}

/* A refused call has not happened: the ranks stay in step. */
static void refused_then_right(coll_comm **comm, int rank, void *arg)
{
	int x = rank;

	(void)arg;
	if (rank == 0) {
		CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, 77, *comm, NULL) == COLL_ERR_ARGUMENT);
		CHECK(coll_all_reduce(NULL, &x, 1, COLL_I32, COLL_SUM, *comm, NULL) == COLL_ERR_ARGUMENT);
		CHECK(coll_last_error(*comm)->status == COLL_ERR_ARGUMENT);
	}
	sums(comm, rank, AND_DESTROY);
}

static void refused_calls_do_not_count(void)
{
	coll_comm *comms[2];

	if (create(comms, 2))
		each_rank(comms, 2, refused_then_right, NULL);
}

/* ---- Log lines ---- */

struct log_count {
	atomic_int lines, bad, errors, about_ranks;
};

static void count_line(void *arg, int level, const char *line)
{
	struct log_count *c = arg;

	atomic_fetch_add(&c->lines, 1);
	if (level < 0 || level > 3 || !*line || strchr(line, '\n'))
		atomic_fetch_add(&c->bad, 1);
	if (level == 0)
		atomic_fetch_add(&c->errors, 1);
	if (strstr(line, "rank 0 of 2") || strstr(line, "rank 1 of 2"))
		atomic_fetch_add(&c->about_ranks, 1);
}

static void say_nothing(void *arg, int level, const char *line)
{
}

static void log_lines_arrive(void)
{
	const char *settings[] = {transports, "COLL_DEBUG=debug", NULL};
	const char *wrong[] = {"COLL_TIMEOUT_MS=soon", NULL};
	struct log_count count = {0};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[2] = {NULL, NULL};
	int before;

	cfg.settings = settings;
	cfg.log = count_line;
	cfg.log_arg = &count;
	REQUIRE(coll_comm_create_all(comms, 2, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	before = atomic_load(&count.lines);
	each_rank(comms, 2, sums, AND_DESTROY);
	CHECK(atomic_load(&count.lines) > before, "the choice of an algorithm is worth a line");
	CHECK(atomic_load(&count.errors) == 0);
	cfg.settings = wrong;
	CHECK(coll_comm_create_all(comms, 2, &cfg) == COLL_ERR_CONFIG);
	CHECK(strstr(coll_last_error(NULL)->message, "COLL_TIMEOUT_MS"));
	CHECK(atomic_load(&count.errors) == 1, "a failed creation is worth a line");
	CHECK(atomic_load(&count.bad) == 0);
}

/* Numbers that mean nothing are told by name, not taken for very large ones. */
static void settings_out_of_range(void)
{
	static const char *const bad[] = {"COLL_TIMEOUT_MS=0", "COLL_ARRIVAL_TIMEOUT_MS=-5",
	                                  "COLL_WARN_MS=-1",   "COLL_SPIN_US=-1",
	                                  "COLL_WINDOWS=-1",   "COLL_SLOTS=1",
	                                  "COLL_SLOTS=-2",     "COLL_PROGRESS=maybe",
	                                  "COLL_SLOT_BYTES=-1"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *settings[] = {transports, "COLL_DEBUG=error", bad[i], NULL};
		coll_config cfg = COLL_CONFIG_INIT;
		coll_comm *comm = NULL;

		cfg.settings = settings;
		cfg.log = say_nothing;
		CHECK(coll_comm_create_all(&comm, 1, &cfg) == COLL_ERR_CONFIG, "%s", bad[i]);
		CHECK(strstr(coll_last_error(NULL)->message, i < 2 ? "timeouts" : bad[i]), "%s: %s", bad[i],
		      coll_last_error(NULL)->message);
		if (comm)
			coll_comm_destroy(&comm);
	}
}

/* What a log function may call. */
struct impatience {
	coll_comm **waiting;
	bool in_stream;
	atomic_int warnings, over;
	coll_status status[2];
};

static void lose_patience(void *arg, int level, const char *line)
{
	struct impatience *p = arg;

	if (level != 1)
		return;
	atomic_fetch_add(&p->warnings, 1);
	CHECK(strstr(line, "waiting ") && strstr(line, " [COLL-5101]"), "%s", line);
	CHECK(coll_comm_abort(*p->waiting, "said enough") == COLL_OK);
}

static void wait_or_stay_away(coll_comm **comm, int rank, void *arg)
{
	struct impatience *p = arg;
	coll_stream *stream = NULL;
	int x = 1;

	if (rank == 1) {
		while (!atomic_load(&p->over))
			usleep(1000);
	} else if (p->in_stream) {
		CHECK(coll_stream_create(&stream, *comm) == COLL_OK);
		CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, *comm, stream) == COLL_OK);
		p->status[0] = coll_stream_wait(stream, -1);
		coll_stream_destroy(&stream);
		atomic_store(&p->over, 1);
		return;
	}
	p->status[rank] = coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, *comm, NULL);
	atomic_store(&p->over, 1);
}

static void a_log_function_may_abort(void)
{
	const char *settings[] = {transports, "COLL_WARN_MS=100", NULL};

	for (int in_stream = 0; in_stream < 2; in_stream++) {
		coll_comm *comms[2] = {NULL, NULL};
		struct impatience p = {.waiting = &comms[0], .in_stream = in_stream};
		coll_config cfg = COLL_CONFIG_INIT;

		cfg.settings = settings;
		cfg.log = lose_patience;
		cfg.log_arg = &p;
		REQUIRE(coll_comm_create_all(comms, 2, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
		each_rank(comms, 2, wait_or_stay_away, &p);
		for (int r = 0; r < 2; r++) {
			CHECK(p.status[r] == COLL_ERR_ABORTED, "rank %d: %d", r, p.status[r]);
			CHECK(strstr(coll_last_error(comms[r])->message, "said enough"), "%s",
			      coll_last_error(comms[r])->message);
		}
		CHECK(atomic_load(&p.warnings) == 1, "%d warnings", atomic_load(&p.warnings));
		for (int r = 0; r < 2; r++)
			CHECK(coll_comm_destroy(&comms[r]) == COLL_OK);
	}
}

/* ---- Signals ---- */

static atomic_int handled;

static void handler(int signal)
{
	(void)signal;
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

static void a_signal_ends_no_wait(void)
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
static void no_handler_is_installed(void)
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

static void a_child_disturbs_nobody(void)
{
	char path[64], count[16];
	char *argv[] = {path, "--descriptors", count, NULL};
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

/* ---- Ranks as processes: one is killed ---- */

static struct shared {
	atomic_int calls, done;
	int status, culprit;
	char message[512];
	struct meeting meeting;
} * shared;

/* Rank 0 of two reports what it saw; rank 1 calls until it is killed. A child of
 * rank 1 may outlive it with copies of its sockets. */
static void process_rank(int rank, size_t count, bool with_child)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", "COLL_TIMEOUT_MS=1500", NULL};
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
		if (rank == 1 && with_child && i == 10 && fork() == 0) {
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

static void peer_killed(size_t count, bool with_child)
{
	pid_t pids[2];

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int r = 0; r < 2; r++) {
		pids[r] = fork();
		if (pids[r] == 0)
			process_rank(r, count, with_child);
	}
	for (int i = 0; i < 20000 && atomic_load(&shared->calls) < 30; i++)
		usleep(1000);
	CHECK(atomic_load(&shared->calls) >= 30, "count %zu", count);
	kill(pids[1], SIGKILL);
	CHECK(status_of(pids[0]) == 0, "count %zu: rank 0 did not end by itself", count);
	atomic_store(&shared->done, 1);
	status_of(pids[1]);
	CHECK(shared->culprit == 1, "count %zu: %s", count, shared->message);
	CHECK(shared->status == COLL_ERR_PEER_DEAD || (with_child && shared->status == COLL_ERR_PEER_SILENT),
	      "count %zu: %s", count, shared->message);
}

/* Both send at once, so the killed one's peer is sending when it goes. */
static void no_sigpipe(void)
{
	static const size_t counts[] = {1, 1000, 20000, 300000, 1000000};

	if (strcmp(transport, "loop") == 0)
		SKIP("ranks of one process cannot be killed one by one");
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		peer_killed(counts[i], false);
}

static void killed_with_a_living_child(void)
{
	if (strcmp(transport, "loop") == 0)
		SKIP("ranks of one process cannot be killed one by one");
	peer_killed(1000, true);
}

/* ---- Memory of a failed call ---- */

enum { LENT = 8192 };

static void *broadcast_at_1(void *arg)
{
	static int got[LENT];
	coll_comm *comm = arg;
	coll_status st = coll_broadcast(NULL, got, LENT, COLL_I32, 0, comm, NULL);

	for (int i = 0; st == COLL_OK && i < LENT; i++)
		if (got[i] != i)
			return "wrong data";
	return st == COLL_OK ? "ok" : "error";
}

/* The root lends its vector, fails because the other rank is late, and writes over the
 * vector: the late one must not take that for the root's data. */
static void what_was_lent_comes_back(void)
{
	const char *settings[] = {transports, "COLL_DEBUG=warn", "COLL_ARRIVAL_TIMEOUT_MS=600", "COLL_SLOT_BYTES=64K",
	                          NULL};
	static int data[LENT];
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[2];
	pthread_t other;
	void *end = NULL;

	cfg.settings = settings;
	CHECK(coll_comm_create_all(comms, 2, &cfg) == COLL_OK);
	for (int i = 0; i < LENT; i++)
		data[i] = i;
	/* Once together: channels are open. */
	pthread_create(&other, NULL, broadcast_at_1, comms[1]);
	CHECK(coll_broadcast(data, data, LENT, COLL_I32, 0, comms[0], NULL) == COLL_OK);
	pthread_join(other, &end);
	CHECK(end && strcmp(end, "ok") == 0, "together: %s", (char *)end);
	if (coll_broadcast(data, data, LENT, COLL_I32, 0, comms[0], NULL) != COLL_OK) {
		memset(data, -1, sizeof(data));
		end = broadcast_at_1(comms[1]);
		CHECK(strcmp(end, "error") == 0, "after the failure: %s", (char *)end);
		CHECK(coll_last_error(comms[1])->status == COLL_ERR_PEER_LATE, "%s",
		      coll_last_error(comms[1])->message);
	}
	coll_comm_destroy(&comms[0]);
	coll_comm_destroy(&comms[1]);
}

static void nothing_to_myself(void)
{
	coll_comm *comms[1];

	if (!create(comms, 1))
		return;
	CHECK(coll_send_recv(NULL, 0, 0, NULL, 0, 0, COLL_F32, comms[0], NULL) == COLL_OK);
	CHECK(coll_comm_destroy(&comms[0]) == COLL_OK);
}

/* What was logged is in the file at once, not when the process ends well. */
static void log_file_is_current(void)
{
	char path[] = "/tmp/coll-contracts-XXXXXX", setting[64], line[256] = "";
	const char *settings[] = {transports, "COLL_DEBUG=info", setting, NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[1];
	int fd = mkstemp(path);

	CHECK(fd >= 0);
	snprintf(setting, sizeof(setting), "COLL_LOG_FILE=%s", path);
	cfg.settings = settings;
	CHECK(coll_comm_create_all(comms, 1, &cfg) == COLL_OK);
	CHECK(coll_barrier(comms[0], NULL) == COLL_OK);
	CHECK(read(fd, line, sizeof(line) - 1) > 0 && strstr(line, "barrier"), "in the file: '%s'", line);
	CHECK(coll_comm_destroy(&comms[0]) == COLL_OK);
	close(fd);
	unlink(path);
}

int main(int argc, char **argv)
{
	static const struct plain_case tests[] = {
	        PLAIN_CASE(no_sigpipe),
	        PLAIN_CASE(killed_with_a_living_child),
	        PLAIN_CASE(nothing_stays_open),
	        PLAIN_CASE(one_after_the_other),
	        PLAIN_CASE(two_threads_create),
	        PLAIN_CASE(transports_in_order),
	        PLAIN_CASE(unique_ids),
	        PLAIN_CASE(destroy_of_nothing),
	        PLAIN_CASE(same_status_at_once),
	        PLAIN_CASE(refused_calls_do_not_count),
	        PLAIN_CASE(log_lines_arrive),
	        PLAIN_CASE(settings_out_of_range),
	        PLAIN_CASE(a_log_function_may_abort),
	        PLAIN_CASE(a_signal_ends_no_wait),
	        PLAIN_CASE(no_handler_is_installed),
	        PLAIN_CASE(a_child_disturbs_nobody),
	        PLAIN_CASE(what_was_lent_comes_back),
	        PLAIN_CASE(nothing_to_myself),
	        PLAIN_CASE(log_file_is_current),
	};
	const char *only = argc > 2 ? argv[2] : NULL;

	if (argc == 3 && strcmp(argv[1], "--descriptors") == 0)
		return entries("/proc/self/fd", false) - 1 != atoi(argv[2]);
	transport = argc > 1 ? argv[1] : "loop";
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	shared = meeting_page(sizeof(*shared));
	plain_run_cases("", tests, sizeof(tests) / sizeof(tests[0]), only);
	return plain_summary();
}
