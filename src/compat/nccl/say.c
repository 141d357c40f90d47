/*
 * See say.h. The forms of the lines are those that users of NCCL search for. Each line is one write, so lines of
 * several processes do not mix. Owns the descriptor of NCCL_DEBUG_FILE, which stays open.
 */
#include "compat/nccl/say.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "compat/nccl/handle.h"

/* Set by the thread that reads the variables, before the first line. */
static _Atomic(enum nccl_level) said;
static atomic_int to = STDOUT_FILENO;
static atomic_flag version_was_said = ATOMIC_FLAG_INIT;

/* A reader that has gone ends the lines, and not the program. */
static void write_line(const char *line, size_t len_bytes)
{
	const struct timespec now = {0};
	sigset_t pipe, before;
	ssize_t n;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	do
		n = write(to, line, len_bytes);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EPIPE) {
		said = NCCL_SAY_NOTHING;
		if (!sigismember(&before, SIGPIPE))
			sigtimedwait(&pipe, NULL, &now);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

bool nccl_say_begin(const char *level, const char *file)
{
	static const struct {
		const char *name;
		enum nccl_level level;
	} names[] = {{"VERSION", NCCL_SAY_VERSION}, {"WARN", NCCL_SAY_WARN},  {"INFO", NCCL_SAY_INFO},
	             {"ABORT", NCCL_SAY_INFO},      {"TRACE", NCCL_SAY_INFO}, {"NONE", NCCL_SAY_NOTHING}};
	char path[256];
	int fd;

	if (!level || !*level)
		return true;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(level, names[i].name) != 0)
			continue;
		said = names[i].level;
		if (said == NCCL_SAY_NOTHING || !file || !*file)
			return true;
		coll_log_path(file, 0, path, sizeof(path));
		fd = coll_log_open(path);
		if (fd >= 0)
			to = fd;
		else
			nccl_say(NCCL_SAY_WARN, "NCCL_DEBUG_FILE=%s: %s", path, strerror(errno));
		return true;
	}
	return false;
}

void nccl_say(enum nccl_level level, const char *format, ...)
{
	char host[65] = "", line[1400];
	size_t at, n;
	va_list ap;

	if (level > said)
		return;
	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = 0;
	at = (size_t)snprintf(line, sizeof(line), "%s:%d:%d NCCL %s ", host, (int)getpid(), (int)syscall(SYS_gettid),
	                      level == NCCL_SAY_INFO ? "INFO" : "WARN");
	va_start(ap, format);
	vsnprintf(line + at, sizeof(line) - at - 1, format, ap);
	va_end(ap);
	n = strlen(line);
	line[n] = '\n';
	write_line(line, n + 1);
}

void nccl_say_version(int rank, int version)
{
	char line[512];
	Dl_info file = {.dli_fname = "?"};
	int n;

	if (said == NCCL_SAY_NOTHING || (rank != 0 && said != NCCL_SAY_INFO) ||
	    atomic_flag_test_and_set(&version_was_said))
		return;
	dladdr((const void *)&version_was_said, &file);
	n = snprintf(line, sizeof(line), "NCCL version %d.%d.%d, by libcoll %s in %s\n", version / 10000,
	             version / 100 % 100, version % 100, coll_version_text(), file.dli_fname);
	if (n >= (int)sizeof(line))
		line[(n = sizeof(line)) - 1] = '\n';
	write_line(line, (size_t)n);
}

/* As NCCL calls it. */
static const char *way(const coll_comm *comm, int rank)
{
	const char *t = coll_comm_transport(comm, rank);

	return !t                       ? "?"
	       : strcmp(t, "shm") == 0  ? "SHM"
	       : strcmp(t, "tcp") == 0  ? "NET/Socket"
	       : strcmp(t, "rdma") == 0 ? "NET/IB"
	                                : t;
}

void nccl_say_comm(const struct ncclComm *h, const char *what)
{
	nccl_say(NCCL_SAY_INFO, "comm %p rank %d nranks %d cudaDev %d - %s", (const void *)h, h->rank, h->size,
	         h->device, what);
}

void nccl_say_made(const struct ncclComm *h, const coll_comm *comm)
{
	const int rank = coll_comm_rank(comm), size = coll_comm_size(comm), next = (rank + 1) % size;
	const char *network = NULL;

	if (said != NCCL_SAY_INFO)
		return;
	for (int r = 0; r < size && !network; r++)
		if (strncmp(way(comm, r), "NET/", 4) == 0)
			network = way(comm, r) + 4;
	if (network)
		nccl_say(NCCL_SAY_INFO, "Using network %s", network);
	if (size > 1)
		nccl_say(NCCL_SAY_INFO, "Channel 00 : %d -> %d via %s", rank, next, way(comm, next));
	nccl_say_comm(h, "Init COMPLETE");
}
