/*
 * Ranks with devices for tests of what goes wrong: a process for each rank, or threads of one, with settings of their
 * own, a bound on how long they may take, and one text per rank of what was wrong. Nothing of the driver may be loaded
 * before the processes start.
 */
#ifndef TESTS_CUDA_JOB_H
#define TESTS_CUDA_JOB_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "cuda_user.h"
#include "device/kernels.h"
#include "tests/multi/meeting.h"
#include "tests/plain.h"

enum { JOB_RANKS_MAX = 4, JOB_TEXT = 1200 };

struct job_rank {
	int rank, size;
	coll_comm *comm;
	const void *arg;
	struct job_page *page;
};

struct job_page {
	struct meeting meeting;
	atomic_int counters[4]; /* for the ranks */
	struct {
		atomic_int ended;
		char wrong[JOB_TEXT], said[JOB_TEXT]; /* what failed; the error that the library gave */
		coll_status status;
	} of[JOB_RANKS_MAX];
};

static struct job_page *job_page; /* of the last job */

__attribute__((format(printf, 2, 3))) static inline void job_wrong(const struct job_rank *r, const char *format, ...)
{
	char *text = r->page->of[r->rank].wrong;
	va_list ap;

	if (text[0])
		return;
	va_start(ap, format);
	vsnprintf(text, JOB_TEXT, format, ap);
	va_end(ap);
}

/* True if the status is OK; else the error is noted. */
static inline bool job_ok(const struct job_rank *r, coll_status st, const char *what)
{
	if (st != COLL_OK)
		job_wrong(r, "%s: %d %s", what, (int)st, coll_last_error(r->comm)->message);
	return st == COLL_OK;
}

/* The error that a rank ended with. */
static inline void job_said(const struct job_rank *r, coll_comm *comm, coll_status st)
{
	r->page->of[r->rank].status = st;
	snprintf(r->page->of[r->rank].said, JOB_TEXT, "%s", coll_last_error(comm)->message);
}

/* All ranks of a job have come here with the same number. */
static inline void job_meet(const struct job_rank *r, int counter)
{
	atomic_fetch_add(&r->page->counters[counter], 1);
	for (int ms = 0; ms < 60000 && atomic_load(&r->page->counters[counter]) < r->size; ms++)
		poll(NULL, 0, 1);
}

typedef void (*job_fn)(struct job_rank *r);

struct job_work {
	job_fn fn;
	const void *arg;
	const char *const *environment; /* pairs, ended by NULL; "NAME@1": of rank 1 alone */
	int size;
};

static inline void job_environment(const struct job_work *w, int rank)
{
	for (const char *const *e = w->environment; e && *e; e += 2) {
		const char *at = strchr(e[0], '@');
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)(at ? (size_t)(at - e[0]) : strlen(e[0])), e[0]);
		if (!at || atoi(at + 1) == rank)
			setenv(name, e[1], 1);
	}
}

/* The errors are wanted, and reports of sanitizers are not hidden. */
static inline void job_quiet(void *arg, int level, const char *line)
{
}

static inline void job_process(const void *arg, int rank)
{
	const struct job_work *w = arg;
	struct job_rank r = {.rank = rank, .size = w->size, .arg = w->arg, .page = job_page};
	struct meeting_seat seat = {&job_page->meeting, rank, w->size};
	coll_config cfg = COLL_CONFIG_INIT;

	job_environment(w, rank);
	meeting_sit(&seat, &cfg);
	cfg.log = job_quiet;
	if (!job_ok(&r, coll_comm_create(&r.comm, &cfg), "creation")) {
		atomic_store(&job_page->of[rank].ended, 1);
		_exit(9);
	}
	w->fn(&r);
	atomic_store(&job_page->of[rank].ended, 1);
	_exit(job_page->of[rank].wrong[0] != 0);
}

/* The ranks end by themselves in so many seconds. A rank that is lost (>= 0) may end in any way. */
static inline void job_judge(const pid_t *pids, int n, int limit_s, int lost)
{
	int left = n;
	bool over[JOB_RANKS_MAX] = {false};

	for (int ms = 0; left > 0 && ms < limit_s * 1000; ms += 2) {
		for (int i = 0; i < n; i++) {
			int status = 0;

			if (over[i] || waitpid(pids[i], &status, WNOHANG) != pids[i])
				continue;
			over[i] = true;
			left--;
			CHECK(i == lost || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "rank %d: status 0x%x: %s",
			      i, (unsigned)status, job_page->of[i].wrong);
		}
		poll(NULL, 0, 2);
	}
	for (int i = 0; i < n; i++) {
		if (over[i])
			continue;
		CHECK(false, "rank %d is still there after %d s: %s", i, limit_s, job_page->of[i].wrong);
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

static inline void job_run(int size, job_fn fn, const void *arg, const char *const *environment, int limit_s)
{
	const struct job_work w = {fn, arg, environment, size};
	pid_t pids[JOB_RANKS_MAX];

	if (!job_page)
		job_page = meeting_page(sizeof(*job_page));
	meeting_start(pids, size, job_page, sizeof(*job_page), job_process, &w);
	job_judge(pids, size, limit_s, -1);
}

/* ---- The same with ranks that are threads of one process ---- */

static inline void *job_thread(void *arg)
{
	struct job_rank *r = arg;

	((const struct job_work *)r->arg)->fn(r);
	return NULL;
}

static inline void job_threads_in_child(const void *arg, int child)
{
	const struct job_work *w = arg;
	struct job_rank ranks[JOB_RANKS_MAX];
	pthread_t threads[JOB_RANKS_MAX];
	coll_comm *comms[JOB_RANKS_MAX];
	struct job_rank first = {.page = job_page};
	coll_config cfg = COLL_CONFIG_INIT;

	job_environment(w, 0);
	cfg.log = job_quiet;
	if (!job_ok(&first, coll_comm_create_all(comms, w->size, &cfg), "creation"))
		_exit(9);
	for (int i = 0; i < w->size; i++) {
		ranks[i] = (struct job_rank){.rank = i, .size = w->size, .comm = comms[i], .arg = w, .page = job_page};
		pthread_create(&threads[i], NULL, job_thread, &ranks[i]);
	}
	for (int i = 0; i < w->size; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < w->size; i++)
		if (job_page->of[i].wrong[0]) {
			if (i > 0)
				memcpy(job_page->of[0].wrong, job_page->of[i].wrong, JOB_TEXT);
			_exit(1);
		}
	_exit(0);
}

static inline void job_run_threads(int size, job_fn fn, const char *const *environment, int limit_s)
{
	const struct job_work w = {fn, NULL, environment, size};
	pid_t pid;

	if (!job_page)
		job_page = meeting_page(sizeof(*job_page));
	meeting_start(&pid, 1, job_page, sizeof(*job_page), job_threads_in_child, &w);
	job_judge(&pid, 1, limit_s, -1);
}

/* ---- A call and its result ---- */

/* Device memory of n integers. */
static inline int *job_memory(const struct job_rank *r, size_t n)
{
	int *p = NULL;

	job_ok(r, coll_mem_alloc_on(r->comm, (void **)&p, n * sizeof(*p), COLL_MEM_DEVICE), "memory");
	return p;
}

static inline void job_fill(const struct job_rank *r, int *device, size_t n, int salt)
{
	int *x = malloc(n * sizeof(*x));

	for (size_t i = 0; i < n; i++)
		x[i] = r->rank + salt + (int)(i % 1000);
	if (!cuda_user_write(device, x, n * sizeof(*x)))
		job_wrong(r, "cannot write device memory");
	free(x);
}

/* Whether it has the sum of all ranks. */
static inline void job_check(const struct job_rank *r, const int *device, size_t n, int salt, const char *what)
{
	int *x = malloc(n * sizeof(*x));
	const int s = r->size;

	if (!cuda_user_read(x, device, n * sizeof(*x)))
		job_wrong(r, "cannot read device memory");
	for (size_t i = 0; i < n && r->page; i++)
		if (x[i] != s * (salt + (int)(i % 1000)) + s * (s - 1) / 2) {
			job_wrong(r, "%s: element %zu of %zu is %d", what, i, n, x[i]);
			break;
		}
	free(x);
}

/* For PROGRAM(): the driver's file, then the name of a test. */
static inline int job_begin(int argc, char **argv)
{
	setenv("COLL_CUDA_LIBRARY", argv[1], 1);
	setenv("COLL_DEVICE", "cuda", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	job_page = meeting_page(sizeof(*job_page));
	return coll_kernels_ptx() ? 2 : plain_skip_all("this build has no kernels");
}

#endif
