/*
 * The rdma transport alone, from one process to another on this machine: no engine, only
 * slots and views (value) or registered memory to registered memory (ref). bench/rdma.sh
 * sets it beside perftest's programs on the same device.
 *
 *   rdma_wire lat|value|ref BYTES COUNT [BLOCKS]
 *
 * Prints one figure per block: microseconds one way, typical and average (lat), or MB/s one way (10^6). With
 * VERBOSE=1 what the transport counted at each end, too: frames, notes, work requests,
 * doorbells, completions, bytes copied.
 */
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/ticks.h"
#include "transports/registry.h"
#include "wire.h"

enum { DEPTH = 8 };

static const struct coll_transport *T = &coll_transport_rdma;

struct side {
	struct wire w;
	struct coll_memory mem;
	uint64_t sent, got;
	bool spin;
	uint64_t *ticks; /* lat: when each round trip began */
};

static void relax(struct wire *w)
{
	if (w->inst && T->progress(w->inst) == 0)
		sched_yield();
}

static void set_up(struct side *b, size_t bytes)
{
	wire_begin(&b->w);
	wire_connect(&b->w);
	wire_check(T->mem_alloc(b->w.inst, bytes, &b->mem), "memory");
	memset(b->mem.base, 1 + b->w.me, bytes);
	wire_channels(&b->w, bytes, DEPTH);
}

/* Nothing to do: sleep as the library does, or the spinning takes a processor from the device. */
static void idle(struct side *b)
{
	struct pollfd p[2] = {{b->w.env.wake_fd, POLLIN, 0}, {T->poll_fd(b->w.inst), POLLIN, 0}};
	uint64_t count;

	if (b->spin || T->arm(b->w.inst) != COLL_OK)
		return;
	poll(p, 2, 100);
	if (p[0].revents && read(b->w.env.wake_fd, &count, sizeof(count)) < 0)
		abort();
	T->disarm(b->w.inst);
}

static void progress(struct side *b)
{
	if (T->progress(b->w.inst) == 0)
		idle(b);
}

static void send_value(struct side *b, size_t bytes)
{
	const struct coll_frame f = {++b->sent, 7, (uint32_t)bytes};
	void *p;

	while (T->slot(b->w.tx, bytes, &p) == COLL_AGAIN)
		progress(b);
	*(char *)p = (char)f.sequence;
	wire_check(T->post(b->w.tx, &f), "post");
}

static void recv_value(struct side *b)
{
	const void *p;
	struct coll_frame f;

	while (T->view(b->w.rx, &p, &f) == COLL_AGAIN)
		progress(b);
	if (f.sequence != ++b->got || *(const char *)p != (char)f.sequence)
		wire_check(COLL_ERR_CORRUPT, "view");
	wire_check(T->done(b->w.rx), "done");
}

static void lat(void *side, size_t bytes, int n)
{
	struct side *b = side;

	for (int i = 0; i < 2 * n; i++) {
		/* As perftest does, by the counter itself: an emulated machine has no other cheap clock. */
		if (i % 2 == 0)
			b->ticks[i / 2] = coll_ticks(true);
		if (i % 2 == b->w.me)
			send_value(b, bytes);
		else
			recv_value(b);
	}
	b->ticks[n] = coll_ticks(true);
}

static int by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Of the last n round trips the one in the middle, as a share of the average one. */
static double typical(struct side *b, int n)
{
	const double average = (double)(b->ticks[n] - b->ticks[0]) / n;

	for (int i = 0; i < n; i++)
		b->ticks[i] = b->ticks[i + 1] - b->ticks[i];
	qsort(b->ticks, (size_t)n, sizeof(*b->ticks), by_size);
	return (double)b->ticks[n / 2] / average;
}

static void value(void *side, size_t bytes, int n)
{
	struct side *b = side;

	for (int i = 0; i < n; i++)
		if (b->w.me == 0)
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
		    T->post_ref(b->w.tx, b->mem.base, &b->mem, &f, &out[sent % DEPTH]) == COLL_OK) {
			sent++;
			b->sent++;
		}
		progress(b);
		while (taken < sent && coll_cookie_pending(&out[taken % DEPTH]) == 0)
			wire_check(out[taken++ % DEPTH].status, "lent");
	}
}

static void ref_in(struct side *b, size_t bytes, int n)
{
	struct coll_cookie in[DEPTH];

	for (int announced = 0, taken = 0; taken < n;) {
		const struct coll_frame f = {b->got + 1, 7, (uint32_t)bytes};
		coll_status status = COLL_AGAIN;

		if (announced < n && announced - taken < DEPTH)
			status = T->recv_into(b->w.rx, b->mem.base, &b->mem, &f, &in[announced % DEPTH]);
		if (status == COLL_OK) {
			announced++;
			b->got++;
			continue;
		}
		if (status != COLL_AGAIN)
			wire_check(status, "recv_into");
		if (coll_cookie_pending(&in[taken % DEPTH]))
			progress(b);
		while (taken < announced && coll_cookie_pending(&in[taken % DEPTH]) == 0)
			wire_check(in[taken++ % DEPTH].status, "announced");
	}
}

static void ref(void *side, size_t bytes, int n)
{
	struct side *b = side;

	if (b->w.me == 0)
		ref_out(b, bytes, n);
	else
		ref_in(b, bytes, n);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	const size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	const int n = argc > 3 ? atoi(argv[3]) : 0, blocks = argc > 4 ? atoi(argv[4]) : 1;
	const wire_work work = strcmp(mode, "lat") == 0     ? lat
	                       : strcmp(mode, "value") == 0 ? value
	                       : strcmp(mode, "ref") == 0   ? ref
	                                                    : NULL;
	struct side b = {.w = {.t = &coll_transport_rdma, .relax = relax, .log_level = getenv("VERBOSE") ? 3 : 1}};

	if (!work || bytes < 1 || n < 1 || blocks < 1)
		return 2;
	b.spin = work == lat;
	b.ticks = calloc((size_t)n + 1, sizeof(*b.ticks));
	if (!b.ticks)
		return 1;
	set_up(&b, bytes);
	work(&b, bytes, n / 10 + 1);
	for (int i = 0; i < blocks; i++) {
		const double ns = wire_timed(&b.w, work, &b, bytes, n);

		if (b.w.me == 0 && work == lat)
			printf("%s %zu %.2f average %.2f\n", mode, bytes, ns / 2000 * typical(&b, n), ns / 2000);
		else if (b.w.me == 0)
			printf("%s %zu %.2f\n", mode, bytes, (double)bytes / ns * 1000);
	}
	wire_end(&b.w);
}
