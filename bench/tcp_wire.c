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
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "base/clock.h"
#include "median.h"
#include "transports/registry.h"
#include "wire.h"

enum { DEPTH = 4, BLOCKS_MAX = 101, SLOT_MAX = 1 << 20 };

static const struct coll_transport *T = &coll_transport_tcp;

struct side {
	struct wire w;
	int bare;
	char *out, *in;
};

static void relax(struct wire *w)
{
	coll_cpu_relax();
}

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void meet(void *wire)
{
	wire_barrier(wire);
}

/* ---- ping-pong ------------------------------------------------------------ */

static void bare_pong(void *side, size_t bytes, int n)
{
	struct side *b = side;

	for (int i = 0; i < n; i++)
		bare_ping(b->bare, b->w.me, b->out, b->in, bytes);
}

static void send_value(struct side *b, size_t bytes, uint64_t i)
{
	const struct coll_frame f = {i, 7, (uint32_t)bytes};
	void *p;

	while (T->slot(b->w.tx, bytes, &p) == COLL_AGAIN)
		T->progress(b->w.inst);
	*(char *)p = (char)i;
	wire_check(T->post(b->w.tx, &f), "post");
}

static void recv_value(struct side *b, uint64_t i)
{
	const void *p;
	struct coll_frame f;

	while (T->view(b->w.rx, &p, &f) == COLL_AGAIN)
		T->progress(b->w.inst);
	if (f.sequence != i || *(const char *)p != (char)i)
		exit(1);
	T->done(b->w.rx);
}

static void our_pong(void *side, size_t bytes, int n)
{
	struct side *b = side;
	for (int i = 0; i < n; i++)
		for (int half = 0; half < 2; half++)
			if (half == b->w.me)
				send_value(b, bytes, (uint64_t)i);
			else
				recv_value(b, (uint64_t)i);
}

/* ---- two-way streams --------------------------------------------------------- */

static void socket_duplex(void *side, size_t bytes, int n)
{
	struct side *b = side;

	bare_duplex(b->bare, b->out, b->in, bytes, n);
}

static void value_duplex(void *side, size_t bytes, int n)
{
	struct side *b = side;
	int sent = 0, got = 0;

	while (sent < n || got < n) {
		const struct coll_frame f = {(uint64_t)sent, 7, (uint32_t)bytes};
		struct coll_frame g;
		const void *v;
		void *p;

		if (sent < n && T->slot(b->w.tx, bytes, &p) == COLL_OK) {
			wire_check(T->post(b->w.tx, &f), "post");
			sent++;
		}
		T->progress(b->w.inst);
		while (got < n && T->view(b->w.rx, &v, &g) == COLL_OK) {
			T->done(b->w.rx);
			got++;
		}
	}
}

static void ref_duplex(void *side, size_t bytes, int n)
{
	struct side *b = side;
	struct coll_cookie out[DEPTH], in = {0};
	int sent = 0, taken = 0, got = 0;
	bool announced = false;

	while (taken < n || got < n) {
		const struct coll_frame f = {(uint64_t)sent, 7, (uint32_t)bytes};
		const struct coll_frame g = {(uint64_t)got, 7, (uint32_t)bytes};

		if (!announced && got < n) {
			wire_check(T->recv_into(b->w.rx, b->in, NULL, &g, &in), "recv_into");
			announced = true;
		}
		if (sent < n && sent - taken < DEPTH &&
		    T->post_ref(b->w.tx, b->out, NULL, &f, &out[sent % DEPTH]) == COLL_OK)
			sent++;
		T->progress(b->w.inst);
		while (taken < sent && coll_cookie_pending(&out[taken % DEPTH]) == 0)
			taken++;
		if (announced && coll_cookie_pending(&in) == 0) {
			wire_check(in.status, "announced");
			announced = false;
			got++;
		}
	}
}

/* ---- blocks ------------------------------------------------------------------- */

/* ours / bare, block by block. */
static void compare(struct side *b, const char *name, wire_work bare, wire_work ours, size_t bytes, int n, int blocks,
                    bool stream)
{
	double ratio[BLOCKS_MAX], a[BLOCKS_MAX], o[BLOCKS_MAX];
	double ma, mo, mr;

	wire_timed(&b->w, bare, b, bytes, n);
	wire_timed(&b->w, ours, b, bytes, n);
	for (int i = 0; i < blocks; i++) {
		a[i] = wire_timed(&b->w, bare, b, bytes, n);
		o[i] = wire_timed(&b->w, ours, b, bytes, n);
		ratio[i] = stream ? a[i] / o[i] : o[i] / a[i];
	}
	if (b->w.me != 0)
		return;
	ma = median_of(a, blocks);
	mo = median_of(o, blocks);
	mr = median_of(ratio, blocks);
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

	wire_channels(&b->w, SLOT_MAX, DEPTH);
	for (size_t i = 0; i < 3; i++)
		compare(b, "ping-pong", bare_pong, our_pong, small[i], 3000 / scale, blocks, false);
	for (size_t bytes = 4096; bytes <= SLOT_MAX; bytes *= 4) {
		const int n = (int)((64 << 20) / bytes) / scale;

		compare(b, "by value", socket_duplex, value_duplex, bytes, n, blocks, true);
		compare(b, "by ref", socket_duplex, ref_duplex, bytes, n, blocks, true);
	}
}

int main(int argc, char **argv)
{
	const int blocks = argc > 1 ? atoi(argv[1]) : 9;
	const int scale = argc > 2 ? atoi(argv[2]) : 1;
	struct side b = {.w = {.t = &coll_transport_tcp, .relax = relax, .log_level = 2}};

	if (scale < 1 || scale > 64 || blocks < 1 || blocks > BLOCKS_MAX)
		return 2;
	wire_begin(&b.w);
	pin(b.w.me);
	b.out = aligned_alloc(64, SLOT_MAX);
	b.in = aligned_alloc(64, SLOT_MAX);
	memset(b.out, 1, SLOT_MAX);
	memset(b.in, 1, SLOT_MAX);
	b.bare = bare_connect(b.w.me, (struct sockaddr_in *)(void *)b.w.shared->note, meet, &b.w, "reno");
	wire_connect(&b.w);
	run(&b, blocks, scale);
	wire_end(&b.w);
}
