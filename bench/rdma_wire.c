/*
 * The rdma transport alone, from one process to another on this machine: no engine, only
 * slots and views (value) or registered memory to registered memory (ref). bench/rdma.sh
 * sets it beside perftest's programs on the same device.
 *
 *   rdma_wire lat|value|ref BYTES COUNT [BLOCKS]
 *
 * Prints one figure per block: microseconds one way (lat), or MB/s one way (10^6).
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "transports/registry.h"

enum { DEPTH = 8 };

static const struct coll_transport *T = &coll_transport_rdma;

struct shared {
	atomic_int step[2];
	struct {
		char address[512];
		size_t len;
		struct coll_process_id id;
	} card[2];
};

struct side {
	int me, step;
	struct shared *s;
	struct coll_transport_env env;
	struct coll_memory mem;
	void *inst, *link, *tx, *rx;
	uint64_t sent, got;
	bool spin;
};

static void barrier(struct side *b)
{
	const int step = ++b->step;

	atomic_store(&b->s->step[b->me], step);
	while (atomic_load(&b->s->step[!b->me]) < step)
		if (b->inst && T->progress(b->inst) == 0)
			sched_yield();
}

static const char *setting(void *ctx, const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

static void log_line(void *ctx, int level, const char *format, ...)
{
	va_list ap;

	if (level > (getenv("VERBOSE") ? 3 : 1))
		return;
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void link_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	fprintf(stderr, "link down: %s\n", cause);
	exit(1);
}

static void *service(void *arg)
{
	struct side *b = arg;
	struct pollfd p = {T->service_fd(b->inst), POLLIN, 0};

	for (;;)
		if (poll(&p, 1, -1) > 0)
			T->service(b->inst);
	return NULL;
}

static void check(coll_status status, const char *what)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "%s: status %d\n", what, (int)status);
	exit(1);
}

static void set_up(struct side *b, size_t bytes)
{
	const struct coll_channel_key key = {.comm = 1};
	pthread_t thread;

	b->env = (struct coll_transport_env){.size = sizeof(b->env),
	                                     .self = {{(uint64_t)getpid(), coll_clock_ns()}},
	                                     .job_key = {1, 2},
	                                     .host_id = "bench",
	                                     .wake_fd = eventfd(0, EFD_NONBLOCK),
	                                     .ctx = b,
	                                     .setting = setting,
	                                     .log = log_line,
	                                     .link_down = link_down};
	check(T->open(&b->env, &b->inst), "open");
	check(T->mem_alloc(b->inst, bytes, &b->mem), "memory");
	memset(b->mem.base, 1 + b->me, bytes);
	check(T->address(b->inst, b->s->card[b->me].address, 512, &b->s->card[b->me].len), "address");
	b->s->card[b->me].id = b->env.self;
	pthread_create(&thread, NULL, service, b);
	barrier(b);
	check(T->link_open(b->inst, &b->s->card[!b->me].id, b->s->card[!b->me].address, b->s->card[!b->me].len,
	                   &b->link),
	      "link_open");
	while (T->link_status(b->link) == COLL_AGAIN)
		T->progress(b->inst);
	check(T->link_status(b->link), "link");
	check(T->channel_open(b->link, &key, COLL_DIR_SEND, bytes, DEPTH, &b->tx), "channel");
	check(T->channel_open(b->link, &key, COLL_DIR_RECV, bytes, DEPTH, &b->rx), "channel");
}

/* Nothing to do: sleep as the library does, or the spinning takes a processor from the device. */
static void idle(struct side *b)
{
	struct pollfd p[2] = {{b->env.wake_fd, POLLIN, 0}, {T->poll_fd(b->inst), POLLIN, 0}};
	uint64_t count;

	if (b->spin || T->arm(b->inst) != COLL_OK)
		return;
	poll(p, 2, 100);
	if (p[0].revents && read(b->env.wake_fd, &count, sizeof(count)) < 0)
		abort();
	T->disarm(b->inst);
}

static void progress(struct side *b)
{
	if (T->progress(b->inst) == 0)
		idle(b);
}

static void send_value(struct side *b, size_t bytes)
{
	const struct coll_frame f = {++b->sent, 7, (uint32_t)bytes};
	void *p;

	while (T->slot(b->tx, bytes, &p) == COLL_AGAIN)
		progress(b);
	*(char *)p = (char)f.sequence;
	check(T->post(b->tx, &f), "post");
}

static void recv_value(struct side *b)
{
	const void *p;
	struct coll_frame f;

	while (T->view(b->rx, &p, &f) == COLL_AGAIN)
		progress(b);
	if (f.sequence != ++b->got || *(const char *)p != (char)f.sequence)
		check(COLL_ERR_CORRUPT, "view");
	check(T->done(b->rx), "done");
}

static void lat(struct side *b, size_t bytes, int n)
{
	for (int i = 0; i < 2 * n; i++)
		if (i % 2 == b->me)
			send_value(b, bytes);
		else
			recv_value(b);
}

static void value(struct side *b, size_t bytes, int n)
{
	for (int i = 0; i < n; i++)
		if (b->me == 0)
			send_value(b, bytes);
		else
			recv_value(b);
}

static void ref_out(struct side *b, size_t bytes, int n)
{
	struct coll_cookie out[DEPTH];

	for (int sent = 0, taken = 0; taken < n;) {
		const struct coll_frame f = {b->sent + 1, 7, (uint32_t)bytes};

		if (sent < n && sent - taken < DEPTH &&
		    T->post_ref(b->tx, b->mem.base, &b->mem, &f, &out[sent % DEPTH]) == COLL_OK) {
			sent++;
			b->sent++;
		}
		progress(b);
		while (taken < sent && coll_cookie_pending(&out[taken % DEPTH]) == 0)
			check(out[taken++ % DEPTH].status, "lent");
	}
}

static void ref_in(struct side *b, size_t bytes, int n)
{
	for (int i = 0; i < n; i++) {
		const struct coll_frame f = {++b->got, 7, (uint32_t)bytes};
		struct coll_cookie in = {0};

		check(T->recv_into(b->rx, b->mem.base, &b->mem, &f, &in), "recv_into");
		while (coll_cookie_pending(&in))
			progress(b);
		check(in.status, "announced");
	}
}

static void ref(struct side *b, size_t bytes, int n)
{
	if (b->me == 0)
		ref_out(b, bytes, n);
	else
		ref_in(b, bytes, n);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	const size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	const int n = argc > 3 ? atoi(argv[3]) : 0, blocks = argc > 4 ? atoi(argv[4]) : 1;
	void (*work)(struct side *, size_t, int) = strcmp(mode, "lat") == 0     ? lat
	                                           : strcmp(mode, "value") == 0 ? value
	                                           : strcmp(mode, "ref") == 0   ? ref
	                                                                        : NULL;
	struct side b = {0};
	pid_t child;

	if (!work || bytes < 1 || n < 1 || blocks < 1)
		return 2;
	b.s = mmap(NULL, sizeof(*b.s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	b.me = child == 0;
	b.spin = work == lat;
	set_up(&b, bytes);
	work(&b, bytes, n / 10 + 1);
	for (int i = 0; i < blocks; i++) {
		uint64_t t;
		double ns;

		barrier(&b);
		t = coll_clock_ns();
		work(&b, bytes, n);
		barrier(&b);
		ns = (double)(coll_clock_ns() - t) / n;
		if (b.me == 0)
			printf("%s %zu %.2f\n", mode, bytes, work == lat ? ns / 2000 : (double)bytes / ns * 1000);
	}
	barrier(&b);
	if (b.me == 1)
		for (;;) /* a peer that is gone would be reported */
			pause();
	fflush(stdout);
	kill(child, SIGKILL);
	_exit(0);
}
