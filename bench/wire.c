/*
 * See wire.h.
 */
#include "wire.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

void wire_begin(struct wire *w)
{
	w->shared = mmap(NULL, sizeof(*w->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	w->child = w->shared == MAP_FAILED ? -1 : fork();
	if (w->child < 0) {
		perror("wire");
		exit(1);
	}
	if (w->child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	w->me = w->child == 0;
}

void wire_barrier(struct wire *w)
{
	const int step = ++w->step;

	atomic_store(&w->shared->step[w->me], step);
	while (atomic_load(&w->shared->step[!w->me]) < step)
		w->relax(w);
}

void wire_check(coll_status status, const char *what)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "%s: status %d\n", what, (int)status);
	exit(1);
}

/* ---- the environment of the transport ------------------------------------------- */

static const char *setting(void *ctx, const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

static void log_line(void *ctx, int level, const char *format, ...)
{
	const struct wire *w = ctx;
	va_list ap;

	if (level > w->log_level)
		return;
	fprintf(stderr, "end %d: ", w->me);
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void link_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	const struct wire *w = ctx;

	fprintf(stderr, "end %d: link down: %s\n", w->me, cause);
	exit(1);
}

static void *service(void *arg)
{
	struct wire *w = arg;
	struct pollfd p = {w->t->service_fd(w->inst), POLLIN, 0};

	while (!atomic_load(&w->over))
		if (poll(&p, 1, 50) > 0)
			w->t->service(w->inst);
	return NULL;
}

void wire_connect(struct wire *w)
{
	__typeof__(w->shared->card[0]) *mine = &w->shared->card[w->me], *other = &w->shared->card[!w->me];

	w->env = (struct coll_transport_env){.size = sizeof(w->env),
	                                     .self = {{(uint64_t)getpid(), coll_clock_ns()}},
	                                     .job_key = {1, 2},
	                                     .host_id = "bench",
	                                     .wake_fd = eventfd(0, EFD_NONBLOCK),
	                                     .ctx = w,
	                                     .setting = setting,
	                                     .log = log_line,
	                                     .link_down = link_down};
	wire_check(w->t->open(&w->env, &w->inst), "open");
	wire_check(w->t->address(w->inst, mine->address, sizeof(mine->address), &mine->len), "address");
	mine->id = w->env.self;
	pthread_create(&w->thread, NULL, service, w);
	wire_barrier(w);
	wire_check(w->t->link_open(w->inst, &other->id, other->address, other->len, &w->link), "link_open");
	while (w->t->link_status(w->link) == COLL_AGAIN)
		w->t->progress(w->inst);
	wire_check(w->t->link_status(w->link), "link");
}

void wire_channels(struct wire *w, size_t bytes, uint32_t depth)
{
	const struct coll_channel_key key = {.comm = 1};

	wire_check(w->t->channel_open(w->link, &key, COLL_DIR_SEND, bytes, depth, &w->tx), "channel");
	wire_check(w->t->channel_open(w->link, &key, COLL_DIR_RECV, bytes, depth, &w->rx), "channel");
}

double wire_timed(struct wire *w, wire_work work, void *arg, size_t bytes, int n)
{
	uint64_t t;

	wire_barrier(w);
	t = coll_clock_ns();
	work(arg, bytes, n);
	wire_barrier(w);
	return (double)(coll_clock_ns() - t) / n;
}

void wire_end(struct wire *w)
{
	wire_barrier(w);
	w->t->channel_close(w->tx);
	w->t->channel_close(w->rx);
	w->t->link_close(w->link);
	wire_barrier(w);
	poll(NULL, 0, 100); /* for the other's goodbye */
	atomic_store(&w->over, true);
	pthread_join(w->thread, NULL);
	w->t->close(w->inst);
	w->t->fini(w->inst);
	if (w->me == 0)
		waitpid(w->child, NULL, 0);
	fflush(stdout);
	_exit(0);
}
