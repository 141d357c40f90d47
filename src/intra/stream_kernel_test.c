/*
 * Chunks that are moved at the same time, against scalar reductions and memcpy(): the loop by itself, legs of all
 * lengths; and two ranks of one thread, polled in turns drawn at random, with vectors that end before, at and behind
 * all that pair_stream.c cuts them into, wherever they begin, in place or not, past the caches or not.
 * Bytes around results, and inputs elsewhere, stay as they were.
 */
#include <stdlib.h>

#include "intra/enter.h"
#include "intra/pair_stream.h"
#include "intra/region.h"
#include "intra/stream_kernel.h"
#include "tests/plain.h"

enum { RANKS = 2, GUARD = 64, SHIFTS = 64, PAYLOAD_BYTES = 4096, LONG = (8 << 20) + (96 << 10) };

static uint64_t seed = 20261122;

static uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull >> 8;
}

/* All have kernels of their own; the first and the last ones also for several places. */
static const struct {
	coll_dtype type;
	coll_op op;
} sums[] = {{COLL_F32, COLL_SUM}, {COLL_I8, COLL_MAX}, {COLL_BF16, COLL_SUM}, {COLL_F64, COLL_AVG}};
enum { SUMS = sizeof(sums) / sizeof(sums[0]) };

/* Numbers; where bits that were drawn would be none. */
static void put(char *p, coll_dtype type)
{
	const double d = (double)(int64_t)(draw() % 100000) / 7 - 5000;
	const float f = (float)d;
	uint64_t v = draw();

	if (type == COLL_F64)
		memcpy(&v, &d, 8);
	else if (type >= COLL_F16)
		memcpy(&v, &f, 4);
	if (type == COLL_BF16)
		v = (uint32_t)v >> 16;
	memcpy(p, &v, coll_dtype_size(type));
}

static void fill(char *p, size_t bytes, coll_dtype type)
{
	for (size_t i = 0; i < bytes; i += coll_dtype_size(type))
		put(p + i, type);
}

static struct coll_reduction reduction_of(int sum, enum coll_isa isa)
{
	struct coll_reduction r = {0};

	CHECK(coll_reduce_bind(&r, sums[sum].type, sums[sum].op, RANKS, isa) == COLL_OK);
	return r;
}

/* Memory of a caller: so many bytes from `at` on, and guards. */
struct buffer {
	char *memory, *at;
	size_t bytes;
};

static bool get(struct buffer *b, size_t bytes)
{
	b->bytes = bytes;
	b->memory = malloc(bytes + 2 * GUARD + SHIFTS);
	if (!b->memory)
		return false;
	memset(b->memory, 0x5a, bytes + 2 * GUARD + SHIFTS);
	b->at = b->memory + GUARD + draw() % SHIFTS;
	return true;
}

static bool guarded(const struct buffer *b)
{
	for (size_t i = 0; i < GUARD; i++)
		if (b->at[b->bytes + i] != 0x5a || b->at[-1 - (ptrdiff_t)i] != 0x5a)
			return false;
	return true;
}

/* ---- Spans ---- */

/* Each byte once, in either order; nothing past the last one. */
static void cut(size_t bytes)
{
	const size_t chunk = coll_intra_chunk(bytes), pieces = (bytes + chunk - 1) / chunk;
	size_t sum = 0, least = bytes, most = 0;

	CHECK(chunk >= COLL_PAIR_STREAM_MIN && chunk <= COLL_PAIR_SLOT_BYTES && chunk % 4096 == 0, "%zu: %zu", bytes,
	      chunk);
	for (size_t k = 0; k < pieces; k++) {
		const struct coll_span p = coll_intra_span(bytes, chunk, k);

		CHECK(p.at % chunk == 0 && p.bytes > 0 && p.bytes <= chunk);
		sum += p.bytes;
		least = p.at < least ? p.at : least;
		most = p.at + p.bytes > most ? p.at + p.bytes : most;
	}
	CHECK(sum == bytes && least == 0 && most == bytes, "%zu bytes", bytes);
	CHECK(coll_intra_span(bytes, chunk, pieces).bytes == 0);
	CHECK(coll_intra_span(bytes, chunk, pieces + 1).bytes == 0);
}

TEST(stream_kernel, spans_are_the_whole)
{
	for (int i = 0; i < 2000; i++)
		cut(1 + draw() % ((size_t)1 << (1 + i % 26)));
}

/* ---- The loop ---- */

enum { LEG_MAX = 3000 };

struct trio {
	struct buffer slot[2], own[2], kept, to[3]; /* taken and sent: slot 0; joined: slot 1, own 1 */
	size_t bytes[3];                            /* taken, joined, sent */
	char want_to[3][LEG_MAX], want_slot[2][LEG_MAX];
};

/* Lengths are those of whole elements of all types. */
static bool make_trio(struct trio *t)
{
	struct buffer *all[] = {&t->slot[0], &t->slot[1], &t->own[0], &t->own[1],
	                        &t->kept,    &t->to[0],   &t->to[1],  &t->to[2]};
	bool made = true;

	for (int i = 0; i < 3; i++)
		t->bytes[i] = draw() % 4 ? draw() % (LEG_MAX / 8) * 8 : 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		made = get(all[i], LEG_MAX) && made;
	return made;
}

static void drop_trio(struct trio *t)
{
	struct buffer *all[] = {&t->slot[0], &t->slot[1], &t->own[0], &t->own[1],
	                        &t->kept,    &t->to[0],   &t->to[1],  &t->to[2]};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		CHECK(!all[i]->memory || guarded(all[i]));
		free(all[i]->memory);
	}
}

static void expect(struct trio *t, const struct coll_weave *w, int sum)
{
	const struct coll_reduction scalar = reduction_of(sum, COLL_ISA_SCALAR);
	const void *src[2];

	for (int i = 0; i < 3; i++)
		memcpy(t->want_to[i], t->to[i].at, LEG_MAX);
	for (int i = 0; i < 2; i++)
		memcpy(t->want_slot[i], t->slot[i].at, LEG_MAX);
	memcpy(t->want_to[0], t->slot[0].at, t->bytes[0]);
	src[!w->own_first] = t->own[1].at;
	src[w->own_first] = t->slot[1].at;
	coll_reduce_run(&scalar, t->want_to[1], src, 2, -1, true, t->bytes[1] / scalar.elem_bytes);
	if (w->returns)
		memcpy(t->want_slot[1], t->want_to[1], t->bytes[1]);
	memcpy(t->want_slot[0], t->own[0].at, t->bytes[2]);
	if (w->sent.to)
		memcpy(t->want_to[2], t->kept.at, t->bytes[2]);
}

static void move(struct trio *t, int sum)
{
	const struct coll_reduction best = reduction_of(sum, coll_reduce_best_isa());
	const struct coll_weave w = {
	        .taken = {.slot = t->slot[0].at, .to = t->to[0].at, .bytes = t->bytes[0]},
	        .joined = {.slot = t->slot[1].at, .own = t->own[1].at, .to = t->to[1].at, .bytes = t->bytes[1]},
	        .sent = {.slot = t->slot[0].at,
	                 .own = t->own[0].at,
	                 .next = t->kept.at,
	                 .next_bytes = LEG_MAX,
	                 .kept = t->kept.at,
	                 .to = draw() % 2 ? t->to[2].at : NULL,
	                 .bytes = t->bytes[2]},
	        .reduction = &best,
	        .own_first = draw() % 2,
	        .returns = draw() % 2,
	        .stream = draw() % 2};

	expect(t, &w, sum);
	coll_intra_stream_kernel(&w);
	for (int i = 0; i < 3; i++)
		CHECK(memcmp(t->to[i].at, t->want_to[i], LEG_MAX) == 0, "leg %d of %zu bytes", i, t->bytes[i]);
	for (int i = 0; i < 2; i++)
		CHECK(memcmp(t->slot[i].at, t->want_slot[i], LEG_MAX) == 0, "slot %d", i);
}

TEST(stream_kernel, legs_of_all_lengths)
{
	static struct trio t;

	for (int i = 0; i < 4000; i++) {
		const int sum = i % SUMS;

		REQUIRE(make_trio(&t));
		fill(t.slot[0].at, LEG_MAX, COLL_U8);
		fill(t.slot[1].at, t.bytes[1], sums[sum].type);
		fill(t.own[0].at, LEG_MAX, COLL_U8);
		fill(t.own[1].at, t.bytes[1], sums[sum].type);
		fill(t.kept.at, LEG_MAX, COLL_U8);
		move(&t, sum);
		drop_trio(&t);
	}
}

/* ---- Two ranks ---- */

struct pair {
	struct coll_intra n[RANKS];
	struct intra_peer peers[RANKS][RANKS]; /* no links: nobody is nudged */
	struct coll_nt past;                   /* all that is told of stores goes past the caches */
	uint64_t sequence;
};
static const unsigned awake;

static bool meet(struct pair *p)
{
	const size_t bytes = (coll_intra_region_bytes(PAYLOAD_BYTES) + 4095) & ~(size_t)4095;

	memset(p, 0, sizeof(*p));
	coll_nt_init(&p->past, (struct coll_nt_rule){0});
	for (int r = 0; r < RANKS; r++) {
		struct intra_region *region = aligned_alloc(4096, bytes);

		if (!region)
			return false;
		memset(region, 0, bytes);
		p->n[r] = (struct coll_intra){.rank = r,
		                              .size = RANKS,
		                              .verdict = INTRA_GOOD,
		                              .mine = region,
		                              .peers = p->peers[r],
		                              .payload_bytes = PAYLOAD_BYTES};
		p->peers[!r][r] = (struct intra_peer){.region = region, .asleep = &awake};
		p->peers[r][r].asleep = &awake;
	}
	return true;
}

static void part(struct pair *p)
{
	for (int r = 0; r < RANKS; r++)
		free(p->n[r].mine);
}

/* One call of both: an all_reduce, or a reduce_scatter of blocks of so many elements. */
struct call {
	enum coll_kind kind;
	int sum;
	size_t count, in_bytes, out_bytes;
	struct coll_plan plan;
	struct coll_reduction reduction;
	struct buffer in[RANKS], out[RANKS];
	bool in_place[RANKS];
	char *inputs[RANKS], *want; /* want: as long as an input */
};

static bool make_rank(struct call *c, int r)
{
	const size_t block = c->kind == COLL_KIND_ALL_REDUCE ? 0 : (size_t)r * c->out_bytes;

	if (!get(&c->in[r], c->in_bytes) || !get(&c->out[r], c->out_bytes))
		return false;
	c->inputs[r] = malloc(c->in_bytes);
	if (!c->inputs[r])
		return false;
	fill(c->in[r].at, c->in_bytes, sums[c->sum].type);
	memcpy(c->inputs[r], c->in[r].at, c->in_bytes);
	c->in_place[r] = draw() % 2;
	if (c->in_place[r]) {
		free(c->out[r].memory);
		c->out[r] = (struct buffer){.at = c->in[r].at + block, .bytes = c->out_bytes};
	}
	return true;
}

static bool make_call(struct call *c)
{
	const struct coll_reduction scalar = reduction_of(c->sum, COLL_ISA_SCALAR);

	c->plan.kind = c->kind;
	c->plan.size = RANKS;
	c->reduction = reduction_of(c->sum, coll_reduce_best_isa());
	c->out_bytes = c->count * scalar.elem_bytes;
	c->in_bytes = c->out_bytes * (c->kind == COLL_KIND_ALL_REDUCE ? 1 : RANKS);
	c->want = malloc(c->in_bytes);
	if (!c->want || !make_rank(c, 0) || !make_rank(c, 1))
		return false;
	coll_reduce_run(&scalar, c->want, (const void *const[]){c->inputs[0], c->inputs[1]}, 2, -1, true,
	                c->in_bytes / scalar.elem_bytes);
	return true;
}

static void assess(const struct call *c, int r)
{
	const size_t at = c->kind == COLL_KIND_ALL_REDUCE ? 0 : (size_t)r * c->out_bytes, end = at + c->out_bytes;
	const char *in = c->in[r].at, *was = c->inputs[r];
	const bool all = !c->in_place[r];

	CHECK(memcmp(c->out[r].at, c->want + at, c->out_bytes) == 0, "rank %d, kind %d, sum %d, %zu elements%s", r,
	      (int)c->kind, c->sum, c->count, all ? "" : ", in place");
	CHECK(memcmp(in, was, all ? c->in_bytes : at) == 0, "the input of rank %d", r);
	CHECK(all || memcmp(in + end, was + end, c->in_bytes - end) == 0, "the input of rank %d", r);
	CHECK(guarded(&c->in[r]) && (!all || guarded(&c->out[r])), "around rank %d's, %zu elements", r, c->count);
}

static void drop_call(struct call *c)
{
	for (int r = 0; r < RANKS; r++) {
		free(c->in[r].memory);
		free(c->out[r].memory);
		free(c->inputs[r]);
	}
	free(c->want);
}

static struct coll_job job_of(const struct pair *p, const struct call *c, int r)
{
	return (struct coll_job){.plan = &c->plan,
	                         .in = {.base = c->in[r].at, .count = c->count},
	                         .out = {.base = c->out[r].at, .count = c->count},
	                         .elem_bytes = c->reduction.elem_bytes,
	                         .reduction = &c->reduction,
	                         .sequence = p->sequence,
	                         .signature = 77};
}

/* Whichever is drawn goes as far as it can. */
static void make(struct pair *p, const struct call *c)
{
	struct coll_intra_state s[RANKS] = {{0}};
	bool over[RANKS] = {false, false};

	p->sequence++;
	for (size_t polls = 0; !over[0] || !over[1]; polls++) {
		const int r = (int)(draw() % RANKS);
		const struct coll_job job = job_of(p, c, r);
		coll_status st;

		REQUIRE(polls < 100000, "%zu elements: nobody goes on", c->count);
		if (over[r])
			continue;
		st = coll_intra_poll_pair_stream(&p->n[r], &job, &s[r]);
		REQUIRE(st == COLL_OK || st == COLL_AGAIN, "rank %d: %d", r, (int)st);
		over[r] = st == COLL_OK;
	}
}

static void call(struct pair *p, enum coll_kind kind, int sum, size_t count)
{
	struct call c = {.kind = kind, .sum = sum, .count = count};
	bool made;

	for (int r = 0; r < RANKS; r++)
		p->n[r].fabric.nt = draw() % 2 ? &p->past : NULL;
	made = make_call(&c);
	CHECK(made, "no memory");
	if (made) {
		make(p, &c);
		assess(&c, 0);
		assess(&c, 1);
	}
	drop_call(&c);
}

/* Around every end of a block, chunk or pair of chunks, by elements. */
static void around(struct pair *p, enum coll_kind kind, size_t bytes)
{
	for (int sum = 0; sum < SUMS; sum++) {
		const size_t count = bytes / coll_dtype_size(sums[sum].type);

		call(p, kind, sum, count - 1);
		call(p, kind, sum, count);
		call(p, kind, sum, count + 1);
	}
}

static void all_ends(enum coll_kind kind)
{
	struct pair p;

	REQUIRE(meet(&p));
	for (size_t k = 1; k <= 17; k++) {
		around(&p, kind, k * 512);
		around(&p, kind, k * COLL_PAIR_STREAM_MIN);
	}
	for (size_t k = 15; k <= 21; k++)
		around(&p, kind, k * COLL_PAIR_SLOT_BYTES);
	for (int i = 0; i < 200; i++)
		call(&p, kind, (int)(draw() % SUMS), 1 + draw() % 70000);
	part(&p);
}

TEST(stream_kernel, halves_end_anywhere)
{
	all_ends(COLL_KIND_ALL_REDUCE);
}

TEST(stream_kernel, streams_end_anywhere)
{
	all_ends(COLL_KIND_REDUCE_SCATTER);
}

/* By turns each goes as far as it can: how often it has to wait for the other does not depend on the bytes. */
static int turns_of(struct pair *p, const struct call *c)
{
	struct coll_intra_state s[RANKS] = {{0}};
	bool over[RANKS] = {false, false};
	int turns = 0;

	p->sequence++;
	for (; turns < 1000 && (!over[0] || !over[1]); turns++) {
		const int r = turns % RANKS;
		const struct coll_job job = job_of(p, c, r);
		coll_status st = over[r] ? COLL_OK : COLL_AGAIN;
		uint32_t events = UINT32_MAX;

		while (st == COLL_AGAIN && s[r].events != events) {
			events = s[r].events;
			st = coll_intra_poll_pair_stream(&p->n[r], &job, &s[r]);
		}
		over[r] = st == COLL_OK;
	}
	return turns;
}

TEST(stream_kernel, a_rank_goes_on_while_the_other_does_not)
{
	const size_t counts[] = {64 << 10, 3 << 18, 25 << 18, 30 << 18};
	struct pair p;

	REQUIRE(meet(&p));
	p.n[0].alone = p.n[1].alone = true;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct call c = {.kind = COLL_KIND_ALL_REDUCE, .count = counts[i]};
		const bool made = make_call(&c);

		CHECK(made, "no memory");
		if (made) {
			const int turns = turns_of(&p, &c);

			CHECK(turns <= (i < 3 ? 4 : 6), "%zu bytes: %d turns", 4 * counts[i], turns);
			assess(&c, 0);
			assess(&c, 1);
		}
		drop_call(&c);
	}
	part(&p);
}

/* What is gone through forwards. */
TEST(stream_kernel, long_vectors)
{
	struct pair p;

	REQUIRE(meet(&p));
	for (int i = 0; i < 2; i++) {
		call(&p, COLL_KIND_ALL_REDUCE, 0, LONG / 4 + 1);
		call(&p, COLL_KIND_REDUCE_SCATTER, 0, LONG / 4 + 1);
	}
	part(&p);
}
