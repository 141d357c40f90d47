/*
 * The tcp transport against a bare socket with the same options: two processes,
 * one core each, the two interleaved block by block; medians of the per-block
 * ratios. No engine: frames go from slot to view (by value) or from user memory
 * to user memory (by reference).
 *
 *   tcp_wire [blocks [scale]]
 *
 * scale divides the length of a block (about 10 ms): short blocks and the best
 * of many say something on a machine that others use, too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "transports/registry.h"

enum { DEPTH = 4, BLOCKS_MAX = 101, SLOT_MAX = 1 << 20 };

static const struct coll_transport *T = &coll_transport_tcp;

struct shared {
	_Alignas(64) atomic_int step[2];
	struct {
		char address[512];
		size_t len;
		struct coll_process_id id;
	} card[2];
	struct sockaddr_in bare;
};

struct side {
	int me;
	struct shared *s;
	int step;
	struct coll_transport_env env;
	void *inst, *link;
	void *tx, *rx;
	int bare;
	char *out, *in;
};

static void barrier(struct side *b)
{
	const int step = ++b->step;

	atomic_store(&b->s->step[b->me], step);
	while (atomic_load(&b->s->step[!b->me]) < step)
		coll_cpu_relax();
}

static const char *setting(void *ctx, const char *name)
{
	const char *v = getenv(name);

	return v ? v : "";
}

static void log_line(void *ctx, int level, const char *format, ...)
{
	va_list ap;

	if (level > 2)
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

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void check(coll_status status, const char *what)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "%s: status %d\n", what, (int)status);
	exit(1);
}

static void connect_transport(struct side *b)
{
	pthread_t thread;

	b->env = (struct coll_transport_env){.size = sizeof(b->env),
	                                     .self = {{getpid(), coll_clock_ns()}},
	                                     .job_key = {1, 2},
	                                     .host_id = "bench",
	                                     .wake_fd = eventfd(0, EFD_NONBLOCK),
	                                     .ctx = b,
	                                     .setting = setting,
	                                     .log = log_line,
	                                     .link_down = link_down};
	check(T->open(&b->env, &b->inst), "open");
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
}

static void connect_bare(struct side *b)
{
	const int one = 1;
	socklen_t len = sizeof(b->s->bare);
	int l;

	if (b->me == 0) {
		l = socket(AF_INET, SOCK_STREAM, 0);
		b->s->bare = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		if (bind(l, (struct sockaddr *)&b->s->bare, len) || listen(l, 1))
			exit(1);
		getsockname(l, (struct sockaddr *)&b->s->bare, &len);
		barrier(b);
		b->bare = accept(l, NULL, NULL);
	} else {
		barrier(b);
		b->bare = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(b->bare, (struct sockaddr *)&b->s->bare, len))
			exit(1);
	}
	setsockopt(b->bare, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(b->bare, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	fcntl(b->bare, F_SETFL, O_NONBLOCK);
}

static void open_channels(struct side *b, size_t bytes)
{
	const struct coll_channel_key key = {.comm = 1, .lane = 0};

	check(T->channel_open(b->link, &key, COLL_DIR_SEND, bytes, DEPTH, &b->tx), "channel");
	check(T->channel_open(b->link, &key, COLL_DIR_RECV, bytes, DEPTH, &b->rx), "channel");
}

/* ---- ping-pong ------------------------------------------------------------ */

static void bare_pong(struct side *b, size_t bytes, int n)
{
	for (int i = 0; i < n; i++)
		for (int half = 0; half < 2; half++)
			for (size_t done = 0; done < bytes;) {
				const ssize_t k = half == b->me
				                          ? send(b->bare, b->out + done, bytes - done, MSG_NOSIGNAL)
				                          : recv(b->bare, b->in + done, bytes - done, 0);

				if (k > 0)
					done += (size_t)k;
			}
}

static void send_value(struct side *b, size_t bytes, uint64_t i)
{
	const struct coll_frame f = {i, 7, (uint32_t)bytes};
	void *p;

	while (T->slot(b->tx, bytes, &p) == COLL_AGAIN)
		T->progress(b->inst);
	*(char *)p = (char)i;
	check(T->post(b->tx, &f), "post");
}

static void recv_value(struct side *b, uint64_t i)
{
	const void *p;
	struct coll_frame f;

	while (T->view(b->rx, &p, &f) == COLL_AGAIN)
		T->progress(b->inst);
	if (f.sequence != i || *(const char *)p != (char)i)
		exit(1);
	T->done(b->rx);
}

static void our_pong(struct side *b, size_t bytes, int n)
{
	for (int i = 0; i < n; i++)
		for (int half = 0; half < 2; half++)
			if (half == b->me)
				send_value(b, bytes, (uint64_t)i);
			else
				recv_value(b, (uint64_t)i);
}

/* ---- two-way streams --------------------------------------------------------- */

static void bare_duplex(struct side *b, size_t bytes, int n)
{
	const size_t total = bytes * (size_t)n;
	size_t sent = 0, got = 0;

	while (sent < total || got < total) {
		if (sent < total) {
			const ssize_t k = send(b->bare, b->out + sent % bytes, bytes - sent % bytes, MSG_NOSIGNAL);

			sent += k > 0 ? (size_t)k : 0;
		}
		if (got < total) {
			const ssize_t k = recv(b->bare, b->in + got % bytes, bytes - got % bytes, 0);

			got += k > 0 ? (size_t)k : 0;
		}
	}
}

static void value_duplex(struct side *b, size_t bytes, int n)
{
	int sent = 0, got = 0;

	while (sent < n || got < n) {
		const struct coll_frame f = {(uint64_t)sent, 7, (uint32_t)bytes};
		struct coll_frame g;
		const void *v;
		void *p;

		if (sent < n && T->slot(b->tx, bytes, &p) == COLL_OK) {
			check(T->post(b->tx, &f), "post");
			sent++;
		}
		T->progress(b->inst);
		while (got < n && T->view(b->rx, &v, &g) == COLL_OK) {
			T->done(b->rx);
			got++;
		}
	}
}

static void ref_duplex(struct side *b, size_t bytes, int n)
{
	struct coll_cookie out[DEPTH], in = {0};
	int sent = 0, taken = 0, got = 0;
	bool announced = false;

	while (taken < n || got < n) {
		const struct coll_frame f = {(uint64_t)sent, 7, (uint32_t)bytes};
		const struct coll_frame g = {(uint64_t)got, 7, (uint32_t)bytes};

		if (!announced && got < n) {
			check(T->recv_into(b->rx, b->in, NULL, &g, &in), "recv_into");
			announced = true;
		}
		if (sent < n && sent - taken < DEPTH &&
		    T->post_ref(b->tx, b->out, NULL, &f, &out[sent % DEPTH]) == COLL_OK)
			sent++;
		T->progress(b->inst);
		while (taken < sent && coll_cookie_pending(&out[taken % DEPTH]) == 0)
			taken++;
		if (announced && coll_cookie_pending(&in) == 0) {
			check(in.status, "announced");
			announced = false;
			got++;
		}
	}
}

/* ---- blocks ------------------------------------------------------------------- */

typedef void (*work_fn)(struct side *b, size_t bytes, int n);

static double timed(struct side *b, work_fn work, size_t bytes, int n)
{
	uint64_t t;

	barrier(b);
	t = coll_clock_ns();
	work(b, bytes, n);
	barrier(b);
	return (double)(coll_clock_ns() - t) / n;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return v[n / 2];
}

/* ours / bare, block by block. */
static void compare(struct side *b, const char *name, work_fn bare, work_fn ours, size_t bytes, int n, int blocks,
                    bool stream)
{
	double ratio[BLOCKS_MAX], a[BLOCKS_MAX], o[BLOCKS_MAX];
	double ma, mo, mr;

	timed(b, bare, bytes, n);
	timed(b, ours, bytes, n);
	for (int i = 0; i < blocks; i++) {
		a[i] = timed(b, bare, bytes, n);
		o[i] = timed(b, ours, bytes, n);
		ratio[i] = stream ? a[i] / o[i] : o[i] / a[i];
	}
	if (b->me != 0)
		return;
	ma = median(a, blocks);
	mo = median(o, blocks);
	mr = median(ratio, blocks);
	if (stream)
		printf("%-12s %8zu B  bare %6.2f GB/s  ours %6.2f GB/s  rate %5.3f of bare (%5.3f .. %5.3f), best "
		       "%6.2f %6.2f\n",
		       name, bytes, (double)bytes / ma, (double)bytes / mo, mr, ratio[0], ratio[blocks - 1],
		       (double)bytes / a[0], (double)bytes / o[0]);
	else
		printf("%-12s %8zu B  bare %6.2f us  ours %6.2f us  time %5.3f of bare (%5.3f .. %5.3f), best %6.2f "
		       "%6.2f\n",
		       name, bytes, ma / 2000, mo / 2000, mr, ratio[0], ratio[blocks - 1], a[0] / 2000, o[0] / 2000);
	fflush(stdout);
}

static void run(struct side *b, int blocks, int scale)
{
	static const size_t small[] = {8, 512, 4096};

	open_channels(b, SLOT_MAX);
	for (size_t i = 0; i < 3; i++)
		compare(b, "ping-pong", bare_pong, our_pong, small[i], 3000 / scale, blocks, false);
	for (size_t bytes = 4096; bytes <= SLOT_MAX; bytes *= 4) {
		const int n = (int)((64 << 20) / bytes) / scale;

		compare(b, "by value", bare_duplex, value_duplex, bytes, n, blocks, true);
		compare(b, "by ref", bare_duplex, ref_duplex, bytes, n, blocks, true);
	}
	barrier(b);
}

int main(int argc, char **argv)
{
	const int blocks = argc > 1 ? atoi(argv[1]) : 9;
	const int scale = argc > 2 ? atoi(argv[2]) : 1;
	struct side b = {0};
	pid_t child;

	if (scale < 1 || scale > 64 || blocks < 1 || blocks > BLOCKS_MAX)
		return 2;
	b.s = mmap(NULL, sizeof(*b.s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	b.me = child == 0;
	pin(b.me);
	b.out = aligned_alloc(64, SLOT_MAX);
	b.in = aligned_alloc(64, SLOT_MAX);
	memset(b.out, 1, SLOT_MAX);
	memset(b.in, 1, SLOT_MAX);
	connect_bare(&b);
	connect_transport(&b);
	run(&b, blocks, scale);
	if (b.me == 1)
		_exit(0);
	waitpid(child, NULL, 0);
	return 0;
}
