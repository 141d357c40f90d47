/*
 * System calls that fail. Of two ranks one makes a call that the system refuses once: the k-th of a function, with each
 * plausible errno, while its communicator is made or in calls that open channels. Either nobody notices, or the rank
 * says the reason of the system, whoever of the two fails names it, and neither waits without end.
 *
 * The functions are this program's own, in front of those of the C library.
 *
 * usage: errnos shm|tcp one|all
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "meeting.h"
#include "plain.h"

/* ---- The functions ---- */

static struct {
	_Atomic(const char *) name; /* NULL: nothing fails */
	int error;
	atomic_int left; /* calls before the one that fails */
} armed;

static struct shared {
	struct meeting meeting;
	atomic_int fired, failed;
	struct report {
		coll_status status;
		int culprit;
		char text[1024];
	} report[2];
} * shared;

static bool fails(const char *name)
{
	const char *which = atomic_load(&armed.name);

	if (!which || strcmp(which, name) != 0 || atomic_fetch_sub(&armed.left, 1) != 0)
		return false;
	atomic_store(&shared->fired, 1);
	errno = armed.error;
	return true;
}

#define FUNCTION(result, name, symbol, parameters, arguments) \
	result name parameters                                \
	{                                                     \
		result(*next) parameters;                     \
                                                              \
		if (fails(#name))                             \
			return (result)-1;                    \
		*(void **)&next = dlsym(RTLD_NEXT, symbol);   \
		return next arguments;                        \
	}

FUNCTION(int, socket, "socket", (int d, int t, int p), (d, t, p))
FUNCTION(int, bind, "bind", (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
FUNCTION(int, listen, "listen", (int fd, int n), (fd, n))
FUNCTION(int, accept4, "accept4", (int fd, struct sockaddr *a, socklen_t *n, int f), (fd, a, n, f))
FUNCTION(int, connect, "connect", (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
FUNCTION(int, getifaddrs, "getifaddrs", (struct ifaddrs * *all), (all))
FUNCTION(int, epoll_create1, "epoll_create1", (int f), (f))
FUNCTION(int, eventfd, "eventfd", (unsigned v, int f), (v, f))
FUNCTION(int, timerfd_create, "timerfd_create", (clockid_t c, int f), (c, f))
FUNCTION(int, memfd_create, "memfd_create", (const char *n, unsigned f), (n, f))
FUNCTION(int, ftruncate, "ftruncate64", (int fd, off_t n), (fd, n))
FUNCTION(void *, mmap, "mmap64", (void *p, size_t n, int prot, int f, int fd, off_t o), (p, n, prot, f, fd, o))
FUNCTION(int, poll, "poll", (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
FUNCTION(ssize_t, recvmsg, "recvmsg", (int fd, struct msghdr *m, int f), (fd, m, f))

FUNCTION(ssize_t, recv, "recv", (int fd, void *p, size_t n, int f), (fd, p, n, f))
FUNCTION(ssize_t, send, "send", (int fd, const void *p, size_t n, int f), (fd, p, n, f))
FUNCTION(int, getsockname, "getsockname", (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n))
FUNCTION(int, setsockopt, "setsockopt", (int fd, int l, int o, const void *v, socklen_t n), (fd, l, o, v, n))

/* To take something out needs nothing. */
int epoll_ctl(int e, int op, int fd, struct epoll_event *v)
{
	int (*next)(int, int, int, struct epoll_event *);

	if (op != EPOLL_CTL_DEL && fails("epoll_ctl"))
		return -1;
	*(void **)&next = dlsym(RTLD_NEXT, "epoll_ctl");
	return next(e, op, fd, v);
}

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*run)(void *), void *arg)
{
	int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (fails("pthread_create"))
		return errno;
	*(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
	return next(t, a, run, arg);
}

static const struct {
	const char *name;
	int errors[4];
	bool in_calls; /* alone: of a link on which nothing is open yet nobody is told */
} functions[] = {
        {"socket", {EMFILE, ENFILE, ENOBUFS, EACCES}},
        {"bind", {EADDRNOTAVAIL, EACCES, ENOMEM}},
        {"listen", {ENOBUFS, EACCES}},
        {"accept4", {EMFILE, ENFILE, ENOMEM, ECONNABORTED}},
        {"connect", {EADDRNOTAVAIL, EAGAIN, EPERM, ENETUNREACH}},
        {"getifaddrs", {EMFILE, ENOMEM}},
        {"epoll_create1", {EMFILE, ENFILE, ENOMEM}},
        {"epoll_ctl", {ENOSPC, ENOMEM}},
        {"eventfd", {EMFILE, ENFILE, ENOMEM}},
        {"timerfd_create", {EMFILE, ENFILE, ENOMEM}},
        {"memfd_create", {EMFILE, EPERM, ENFILE, ENOMEM}},
        {"ftruncate", {ENOSPC, EFBIG, EPERM}},
        {"mmap", {ENOMEM, ENFILE, EPERM}},
        {"poll", {EINVAL, ENOMEM}},
        {"recvmsg", {ENOMEM, ECONNRESET}},
        {"recv", {ENOMEM}},
        {"send", {ENOBUFS, ENOMEM}},
        {"getsockname", {ENOBUFS}},
        {"setsockopt", {ENOMEM, EPERM}},
        {"pthread_create", {EAGAIN, EPERM}},
};

/* ---- Two ranks ---- */

enum phase { CREATION, CALLS };

static const char *transport;
static int cases, noticed;

/* Ends when the other rank has failed: the test's exchange is not what is tested. */
static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	const int rank = *(const int *)arg;
	struct meeting *m = &shared->meeting;

	memcpy(m->peer_infos[rank], mine, len_bytes);
	atomic_fetch_add(&m->arrived, 1);
	while (atomic_load(&m->arrived) < 2)
		if (usleep(100), atomic_load(&shared->failed))
			return 1;
	for (int r = 0; r < 2; r++)
		memcpy((char *)all + (size_t)r * len_bytes, m->peer_infos[r], len_bytes);
	return 0;
}

static coll_status calls(coll_comm *comm, int rank)
{
	static float x[100000], y[100000];
	coll_comm *again = NULL;
	coll_status st = coll_comm_duplicate(comm, &again);

	if (st == COLL_OK)
		st = coll_send_recv(x, 70000, !rank, y, 70000, !rank, COLL_F32, again, NULL);
	if (st == COLL_OK)
		st = coll_all_reduce(x, y, 100000, COLL_F32, COLL_SUM, again, NULL);
	if (st != COLL_OK && again) {
		shared->report[rank].culprit = coll_last_error(again)->rank;
		snprintf(shared->report[rank].text, sizeof(shared->report[rank].text), "%s",
		         coll_last_error(again)->message);
	}
	coll_comm_destroy(&again);
	return st;
}

static void run_rank(int rank, const char *name, int error, int k, enum phase phase)
{
	char setting[64];
	const char *settings[] = {setting, "COLL_DEBUG=error", "COLL_TIMEOUT_MS=3000", "COLL_LOG_FILE=/dev/null", NULL};
	struct report *r = &shared->report[rank];
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	float x = 1, y;

	snprintf(setting, sizeof(setting), "COLL_TRANSPORTS=%s", transport);
	cfg.settings = settings;
	cfg.exchange = exchange;
	cfg.exchange_arg = &rank;
	cfg.rank = rank;
	cfg.size = 2;
	armed.error = error;
	atomic_store(&armed.left, k);
	armed.name = rank == 1 && phase == CREATION ? name : NULL;
	r->culprit = -1;
	r->status = coll_comm_create(&comm, &cfg);
	if (rank == 1 && armed.name)
		usleep(5000); /* the other has connected by then, before this rank has opened the link */
	if (r->status == COLL_OK)
		r->status = coll_all_reduce(&x, &y, 1, COLL_F32, COLL_SUM, comm, NULL);
	armed.name = rank == 1 && phase == CALLS ? name : NULL;
	if (r->status == COLL_OK)
		r->status = calls(comm, rank);
	armed.name = NULL;
	if (r->status != COLL_OK && !r->text[0]) {
		r->culprit = coll_last_error(comm)->rank;
		snprintf(r->text, sizeof(r->text), "%s", coll_last_error(comm)->message);
	}
	if (r->status != COLL_OK)
		atomic_store(&shared->failed, 1);
	coll_comm_destroy(&comm);
	_exit(0);
}

/* Whether the text has the system's reason, or something as good. */
static bool says(const char *text, int error)
{
	return strstr(text, strerror(error)) || (error == EINVAL && strstr(text, strerror(EMFILE)));
}

/* False: there is no such call. */
static bool refuse(const char *name, int error, int k, enum phase phase)
{
	const struct report *r = shared->report;
	pid_t pids[2];
	int status;

	memset(shared, 0, sizeof(*shared));
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			run_rank(i, name, error, k, phase);
	}
	for (int i = 0; i < 2; i++)
		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0, "%s %d: rank %d: %x", name, error, i,
		      status);
	if (!atomic_load(&shared->fired))
		return false;
	cases++;
	if (r[0].status == COLL_OK && r[1].status == COLL_OK)
		return true;
	noticed++;
	CHECK(says(r[1].text, error) && r[1].culprit != 0, "%s %s of call %d %s: rank 1 blames %d: %s", name,
	      strerror(error), k, phase ? "in calls" : "in creation", r[1].culprit, r[1].text);
	CHECK(r[0].status == COLL_OK || (r[0].culprit != 0 && (phase == CREATION || says(r[0].text, error))),
	      "%s %s of call %d %s: rank 0 blames %d: %s", name, strerror(error), k, phase ? "in calls" : "in creation",
	      r[0].culprit, r[0].text);
	return true;
}

static bool all;
static const char *only = "";

TEST(errnos, the_reason_reaches_the_user)
{
	for (size_t f = 0; f < sizeof(functions) / sizeof(functions[0]); f++)
		for (int e = 0; e < (all ? 4 : 1) && functions[f].errors[e]; e++)
			for (int phase = functions[f].in_calls ? CALLS : CREATION;
			     phase <= CALLS && strstr(functions[f].name, only); phase++)
				for (int k = 0; k < (all ? 12 : 1); k++)
					if (!refuse(functions[f].name, functions[f].errors[e], k, (enum phase)phase))
						break;
	printf("     %d calls refused over %s, %d noticed\n", cases, transport, noticed);
	CHECK(only[0] || (cases >= 8 && noticed >= 4));
}

PROGRAM(errnos, "shm|tcp one|all [FUNCTION]")
{
	if (argc < 3)
		return -1;
	transport = argv[1];
	all = strcmp(argv[2], "all") == 0;
	only = argc > 3 ? argv[3] : "";
	shared = meeting_page(sizeof(*shared));
	return argc;
}
