/*
 * A rank that fails at its creation for a reason of its own says so to the others, which all end for that reason and
 * name it: a setting that is refused, a log that cannot be written, each of its allocations, a limit of descriptors or
 * of address space. It is rank 0, which the others come to, or another one; they meet at a socket of this host or by a
 * unique id.
 *
 * The allocator (refusing.h) needs glibc and no sanitizer.
 *
 * usage: own_failure shm|tcp some|every
 */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "meeting.h"
#include "plain.h"
#include "refusing.h"

/* Descriptors and address space may also suffice for some time, after which calls end: these are tested elsewhere. */
enum { RANKS = 3, CREATE_LIMIT_S = 8, MOST = 2000 };

enum how { SETTING, ALLOCATION, DESCRIPTORS, ADDRESSES };

struct trouble {
	enum how how;
	const char *setting;
	int victim, n;
	bool by_id;
};

struct report {
	coll_status status;
	int culprit;
	bool created;
	unsigned refused;
	double took_s;
	char text[1024];
};

static struct shared {
	coll_unique_id id;
	struct report report[RANKS];
} * shared;

static const char *transport;
static bool every;
static int troubles, port;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (!f || fscanf(f, "%ld", &pages) != 1)
		exit(2);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

static void limit(int what, long most)
{
	const struct rlimit l = {(rlim_t)most, (rlim_t)most};

	if (setrlimit(what, &l) != 0)
		exit(2);
}

static void begin_trouble(const struct trouble *t)
{
	const int lowest = dup(0);

	close(lowest);
	if (t->how == DESCRIPTORS)
		limit(RLIMIT_NOFILE, lowest + t->n);
	else if (t->how == ADDRESSES && malloc_trim(0) >= 0)
		limit(RLIMIT_AS, address_space() + t->n * (64L << 10));
	else if (t->how != SETTING)
		refusing_arm((unsigned)t->n, REFUSING_ONE);
}

static void body(const void *arg, int rank)
{
	const struct trouble *t = arg;
	char of_transport[64], root[64], host[32];
	const char *settings[] = {of_transport,
	                          root,
	                          host,
	                          "COLL_CREATE_TIMEOUT_MS=8000",
	                          "COLL_UNREACHABLE_MS=4000",
	                          "COLL_TIMEOUT_MS=4000",
	                          "COLL_PROGRESS=off",
	                          rank == t->victim ? t->setting : NULL,
	                          NULL};
	struct report *r = &shared->report[rank];
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	float x[100] = {1}, y[100];
	double begun_s;

	snprintf(of_transport, sizeof(of_transport), "COLL_TRANSPORTS=%s", transport);
	snprintf(root, sizeof(root), "COLL_ROOT=127.0.0.1:%d", port);
	snprintf(host, sizeof(host), "COLL_HOST_ID=%s", strcmp(transport, "tcp") == 0 && rank % 2 ? "b" : "a");
	cfg.settings = settings;
	cfg.rank = rank;
	cfg.size = RANKS;
	cfg.id = t->by_id ? &shared->id : NULL;
	if (!getenv("VERBOSE") && !freopen("/dev/null", "w", stderr))
		_exit(9);
	if (rank == t->victim)
		begin_trouble(t);
	begun_s = now_s();
	r->status = coll_comm_create(&comm, &cfg);
	r->refused = refusing_disarm();
	r->created = r->status == COLL_OK;
	if (r->status == COLL_OK)
		r->status = coll_all_reduce(x, y, 100, COLL_F32, COLL_SUM, comm, NULL);
	r->culprit = coll_last_error(comm) ? coll_last_error(comm)->rank : -2;
	if (r->status != COLL_OK)
		snprintf(r->text, sizeof(r->text), "%s", coll_last_error(comm)->message);
	r->took_s = now_s() - begun_s;
	coll_comm_destroy(&comm);
	_exit(0);
}

/* One job with that trouble; true: the victim met it. what: a word that its error has. */
static bool meet(const struct trouble *t, const char *what)
{
	const struct report *v = &shared->report[t->victim];
	pid_t pids[RANKS];
	coll_unique_id id = {0};
	int status;

	port = 20000 + (getpid() + troubles * 7) % 11000;
	if (t->by_id)
		CHECK(coll_unique_id_create(&id) == COLL_OK);
	memset(shared, 0, sizeof(*shared));
	shared->id = id;
	fflush(stdout);
	for (int r = 0; r < RANKS; r++)
		pids[r] = meeting_fork(body, t, r);
	for (int r = 0; r < RANKS; r++)
		CHECK(waitpid(pids[r], &status, 0) == pids[r] && status == 0, "rank %d: %x", r, status);
	troubles++;
	if (v->status == COLL_OK)
		return v->refused > 0;
	CHECK(strstr(v->text, what) && (v->culprit == -1 || v->culprit == t->victim),
	      "%d, %d of rank %d%s: it blames %d: %s", t->how, t->n, t->victim, t->by_id ? ", by an id" : "",
	      v->culprit, v->text);
	for (int r = 0; r < RANKS; r++) {
		const struct report *o = &shared->report[r];

		if (r == t->victim)
			continue;
		CHECK(o->status != COLL_OK && o->culprit == t->victim,
		      "%d, %d of rank %d%s (%s): rank %d blames %d: %s", t->how, t->n, t->victim,
		      t->by_id ? ", by an id" : "", v->text, r, o->culprit, o->text);
		/* Who has the communicator already learns who it was, and why only if that comes before the end. */
		CHECK(v->created || o->created || strstr(o->text, what),
		      "%d, %d of rank %d%s (%s): rank %d does not say why: %s", t->how, t->n, t->victim,
		      t->by_id ? ", by an id" : "", v->text, r, o->text);
		/* Others may close descriptors meanwhile. */
		CHECK(t->how == DESCRIPTORS || o->took_s < CREATE_LIMIT_S / 2,
		      "%d, %d of rank %d%s: rank %d took %.1f s: %s", t->how, t->n, t->victim,
		      t->by_id ? ", by an id" : "", r, o->took_s, o->text);
	}
	return true;
}

/* For both victims and ways to meet. */
static void each(enum how how, const char *setting, int n, const char *what, int *met)
{
	for (int i = 0; i < 4; i++) {
		const struct trouble t = {how, setting, i % 2 ? RANKS - 1 : 0, n, i / 2};

		if (atomic_load(&plain_failures) == 0)
			*met += meet(&t, what);
	}
}

/* First: threads of a process, as those of ids, have address space of their own, in which memory is left. With less a
 * rank has no memory for its settings, and cannot know who it is. */
TEST(own_failure, a_limit_of_address_space)
{
	int met = 0;

	for (int n = 4; n < 200; n += every ? 1 : 1 + n / 2)
		each(ADDRESSES, NULL, n, "emory", &met);
	CHECK(met > 0);
}

TEST(own_failure, a_setting_that_is_refused)
{
	static const char *const rows[][2] = {{"COLL_DEBUG=loud", "COLL_DEBUG"},
	                                      {"COLL_TIMEOUT_MS=soon", "COLL_TIMEOUT_MS"},
	                                      {"COLL_SLOTS=1", "COLL_SLOTS"},
	                                      {"COLL_LOG_FILE=/proc/nowhere/log", "No such file"},
	                                      {"COLL_DUMP_SIGNAL=term", "COLL_DUMP_SIGNAL"},
	                                      {"COLL_ISA=abacus", "COLL_ISA"}};
	int met = 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		each(SETTING, rows[i][0], 0, rows[i][1], &met);
	CHECK(met == 4 * (int)(sizeof(rows) / sizeof(rows[0])), "%d", met);
}

TEST(own_failure, an_allocation)
{
	int met = 1, total = 0;

	/* Without memory for its settings, the first, a rank cannot know who it is. */
	for (int k = 2; k < MOST && met > 0 && atomic_load(&plain_failures) == 0; k += every ? 1 : 1 + k / 6) {
		met = 0;
		each(ALLOCATION, NULL, k, "memory", &met);
		total += met;
	}
	printf("     %d refusals\n", total);
	CHECK(total > 0);
}

TEST(own_failure, a_limit_of_descriptors)
{
	int met = 0;

	/* Rank 0 takes a listener, a file that leads to it and a connection to tell anybody. */
	for (int n = 3; n < 24; n += every ? 1 : 1 + n / 4)
		each(DESCRIPTORS, NULL, n, "oo many open files", &met);
	CHECK(met > 0);
}

PROGRAM(own_failure, "shm|tcp some|every")
{
	if (argc < 3)
		return -1;
	transport = argv[1];
	every = strcmp(argv[2], "every") == 0;
	shared = meeting_page(sizeof(*shared));
	refusing_begin();
	return 3;
}
