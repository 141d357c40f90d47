/*
 * The large yardstick: a ring all-reduce of floats between two processes, written by
 * hand (slots in shared memory, the same slot size, the same copies, two tiles in
 * flight, no engine) and through the library, forced to its ring over shm.
 *
 *   yardstick_ring [--slot BYTES] [--from BYTES] [--to BYTES] [--windows W]
 *
 * Paired blocks, interleaved; prints microseconds of both and library / hand with
 * the 95 % interval of 30 blocks. Exit status 1 only if a result is wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "pair.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

/* Slots begin at a page, like the library's: loads that run ahead must not look like
 * the stores behind them. */
enum { SLOTS = 8, BLOCK_BYTES = 8192, HEADS_BYTES = 4096 };

/* One direction. posted and freed are written by one side each. */
struct way {
	_Alignas(128) atomic_uint_least64_t posted;
	_Alignas(128) atomic_uint_least64_t freed;
	char *slots; /* set before the fork: the same address in both */
};

struct hand {
	struct way *to, *from;
	int rank;
	size_t slot_bytes;
	uint64_t posted, freed_seen, taken;
	const struct coll_reduction *sum;
	const float *in;
	float *out;
	size_t count;
	size_t tile; /* elements of two slots, or of the whole vector */
};

struct library {
	coll_comm *comm;
	const float *in;
	float *out;
	size_t count;
	int failed;
};

/* ---- By hand ---------------------------------------------------------- */

static char *slot(struct hand *h)
{
	char *p = h->to->slots + h->posted % SLOTS * h->slot_bytes;

	while (h->posted - h->freed_seen >= SLOTS) {
		h->freed_seen = atomic_load_explicit(&h->to->freed, memory_order_acquire);
		if (h->posted - h->freed_seen >= SLOTS)
			coll_cpu_relax();
	}
	return p;
}

static void post(struct hand *h)
{
	atomic_store_explicit(&h->to->posted, ++h->posted, memory_order_release);
}

static const char *view(struct hand *h)
{
	while (atomic_load_explicit(&h->from->posted, memory_order_acquire) == h->taken)
		coll_cpu_relax();
	return h->from->slots + h->taken % SLOTS * h->slot_bytes;
}

static void done(struct hand *h)
{
	atomic_store_explicit(&h->from->freed, ++h->taken, memory_order_release);
}

/* Chunk c of tile t: the first is one longer when the tile is odd. */
static void cut(const struct hand *h, size_t t, int c, size_t *first, size_t *len)
{
	const size_t left = h->count - t * h->tile, tile = left < h->tile ? left : h->tile;

	*first = t * h->tile + (c ? (tile + 1) / 2 : 0);
	*len = c ? tile / 2 : (tile + 1) / 2;
}

static void send_chunk(struct hand *h, size_t t)
{
	size_t first, len;

	cut(h, t, h->rank, &first, &len);
	coll_reduce_copy(slot(h), h->in + first, len * sizeof(float));
	post(h);
}

/* out = in + incoming; forward out. */
static void reduce_and_forward(struct hand *h, size_t t)
{
	size_t first, len;
	const float *incoming = (const float *)(const void *)view(h);
	char *to = slot(h);

	cut(h, t, !h->rank, &first, &len);
	for (size_t at = 0; at < len; at += BLOCK_BYTES / sizeof(float)) {
		const size_t n = len - at < BLOCK_BYTES / sizeof(float) ? len - at : BLOCK_BYTES / sizeof(float);
		const void *operands[2] = {incoming + at, h->in + first + at};

		coll_reduce_run(h->sum, h->out + first + at, operands, 2, -1, true, n);
		coll_reduce_copy(to + at * sizeof(float), h->out + first + at, n * sizeof(float));
	}
	post(h);
	done(h);
}

static void receive(struct hand *h, size_t t)
{
	size_t first, len;
	const char *incoming = view(h);

	cut(h, t, h->rank, &first, &len);
	coll_reduce_copy(h->out + first, incoming, len * sizeof(float));
	done(h);
}

/* Posted in the order s0 s1 r0 s2 r1 s3 r2 ..., and consumed in that order. */
static void by_hand(void *arg, int times)
{
	struct hand *h = arg;
	const size_t tiles = (h->count + h->tile - 1) / h->tile;

	for (int i = 0; i < times; i++) {
		send_chunk(h, 0);
		for (size_t t = 0; t < tiles; t++) {
			if (t + 1 < tiles)
				send_chunk(h, t + 1);
			reduce_and_forward(h, t);
			if (t > 0)
				receive(h, t - 1);
		}
		receive(h, tiles - 1);
	}
}

/* ---- Through the library ---------------------------------------------- */

static void by_library(void *arg, int times)
{
	struct library *l = arg;

	for (int i = 0; i < times; i++)
		if (coll_all_reduce(l->in, l->out, l->count, COLL_F32, COLL_SUM, l->comm, NULL) != COLL_OK)
			l->failed = 1;
}

/* ---- Both ------------------------------------------------------------- */

/* Once more, into a buffer of zeros. */
static int wrong(const struct pair_side *side, float *out, size_t count)
{
	memset(out, 0, count * sizeof(float));
	side->fn(side->arg, 1);
	for (size_t i = 0; i < count; i++)
		if (out[i] != (float)(i % 1000) * 2 + 1)
			return 1;
	return 0;
}

static int compare(struct pair *p, struct hand *h, struct library *l, size_t len_bytes)
{
	double ratio[PAIR_BLOCKS], hand[PAIR_BLOCKS], library[PAIR_BLOCKS], mean, half, hand_mean, library_mean, unused;
	struct pair_side sides[2] = {{by_hand, h, 0}, {by_library, l, 0}};

	h->count = l->count = len_bytes / sizeof(float);
	h->tile = 2 * h->slot_bytes / sizeof(float);
	pair_calibrate(p, &sides[0]);
	pair_calibrate(p, &sides[1]);
	for (int b = 0; b < PAIR_BLOCKS; b++) {
		double seconds[2];

		pair_block(p, sides, seconds);
		hand[b] = seconds[0] * 1e6;
		library[b] = seconds[1] * 1e6;
		ratio[b] = library[b] / hand[b];
	}
	pair_interval(hand, PAIR_BLOCKS, &hand_mean, &unused);
	pair_interval(library, PAIR_BLOCKS, &library_mean, &unused);
	pair_interval(ratio, PAIR_BLOCKS, &mean, &half);
	if (p->rank == 0)
		printf("%12zu %12.1f %12.1f %8.3f   %.3f .. %.3f\n", len_bytes, hand_mean, library_mean, mean,
		       mean - half, mean + half);
	fflush(stdout);
	return l->failed || wrong(&sides[0], h->out, h->count) || wrong(&sides[1], l->out, l->count);
}

struct options {
	size_t slot, from, to;
	int windows;
};

static int parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--slot") == 0)
			o->slot = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--from") == 0)
			o->from = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--to") == 0)
			o->to = strtoull(argv[i + 1], NULL, 0);
		else if (strcmp(argv[i], "--windows") == 0)
			o->windows = atoi(argv[i + 1]);
		else
			return 0;
	}
	return argc % 2 == 1 && o->slot >= 64 && o->from >= 8 && o->to >= o->from;
}

static float *vector(size_t count, int fill, int rank)
{
	float *v = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);

	if (!v)
		exit(1);
	for (size_t i = 0; i < count; i++)
		v[i] = fill ? (float)(i % 1000) + (float)rank : 0;
	return v;
}

int main(int argc, char **argv)
{
	struct options o = {.slot = 65536, .from = 65536, .to = 16 << 20};
	char slot_setting[64], windows_setting[64];
	struct coll_reduction sum;
	struct pair p;
	struct way *ways;
	struct hand h;
	struct library l;
	int status = 0;

	if (!parse(argc, argv, &o)) {
		fprintf(stderr, "usage: yardstick_ring [--slot BYTES] [--from BYTES] [--to BYTES] [--windows W]\n");
		return 2;
	}
	pair_begin(&p, HEADS_BYTES + 2 * SLOTS * o.slot);
	snprintf(slot_setting, sizeof(slot_setting), "COLL_SLOT_BYTES=%zu", o.slot);
	snprintf(windows_setting, sizeof(windows_setting), "COLL_WINDOWS=%d", o.windows);
	pair_connect(&p, (const char *const[]){"COLL_TRANSPORTS=shm", "COLL_ALGO=all_reduce:ring", slot_setting,
	                                       windows_setting, NULL});
	coll_reduce_bind(&sum, COLL_F32, COLL_SUM, 2, coll_reduce_best_isa());
	ways = (struct way *)(void *)p.memory;
	for (int r = 0; r < 2; r++)
		ways[r].slots = p.memory + HEADS_BYTES + (size_t)r * SLOTS * o.slot;
	h = (struct hand){
	        .to = &ways[p.rank], .from = &ways[!p.rank], .rank = p.rank, .slot_bytes = o.slot, .sum = &sum};
	h.in = vector(o.to / sizeof(float), 1, p.rank);
	h.out = vector(o.to / sizeof(float), 0, p.rank);
	/* The same buffers for both: where they lie to each other is worth a tenth of the time. */
	l = (struct library){.comm = p.comm, .in = h.in, .out = h.out};
	if (p.rank == 0)
		printf("%12s %12s %12s %8s   95 %% interval\n", "bytes", "bare us", "library us", "ratio");
	for (size_t len = o.from; len <= o.to; len *= 4)
		status |= compare(&p, &h, &l, len);
	free((void *)(uintptr_t)h.in);
	free(h.out);
	return pair_end(&p, status);
}
