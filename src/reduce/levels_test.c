/*
 * Every ISA level of this CPU against the scalar level, bit for bit (two NaNs are
 * equal): every type and operation, 1 to 9 inputs, every length to 130 and some
 * longer, misaligned, out of place and in place on each input, scaled or not,
 * last or not. Bytes around the result must stay as they were.
 */
#include <math.h>
#include <stdlib.h>

#include "reduce/copy.h"
#include "reduce/reduce.h"
#include "reduce/spread.h"
#include "tests/plain.h"

enum { SOURCES_MAX = 9, COUNT_MAX = 1100, BUF_BYTES = COUNT_MAX * 8 + 128, GUARD = 32 };

static uint64_t seed = 20261121;

static uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull;
}

static const uint64_t special_f16[] = {0,      0x8000, 1,      0x8001, 0x3ff,  0x83ff, 0x400,
                                       0x3c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01};
static const uint64_t special_bf16[] = {0,      0x8000, 1,      0x8001, 0x7f,   0x80,   0x3f80,
                                        0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0x3f81};
static const uint64_t special_f32[] = {0,          0x80000000, 1,          0x80000001, 0x7fffff,
                                       0x800000,   0x3f800000, 0x7f7fffff, 0xff7fffff, 0x7f800000,
                                       0xff800000, 0x7fc00000, 0x7f800001, 0xbf800000};
static const uint64_t special_f64[] = {0,
                                       1ull << 63,
                                       1,
                                       (1ull << 63) + 1,
                                       (1ull << 52) - 1,
                                       1ull << 52,
                                       0x3ff0000000000000,
                                       0x7fefffffffffffff,
                                       0xffefffffffffffff,
                                       0x7ff0000000000000,
                                       0xfff0000000000000,
                                       0x7ff8000000000000,
                                       0x7ff0000000000001,
                                       0xbff0000000000000};

/* Any bits, ordinary numbers near one, and special values. Of a byte any bits are enough. */
static void put_random(char *p, coll_dtype type)
{
	const uint64_t r = draw(), kind = r >> 60;
	const size_t k = (r >> 32) % 14;
	uint64_t v = draw();

	if (kind < 6 && type >= COLL_F16 && type <= COLL_F64) {
		const float f = (float)((int64_t)(v & 0xffffff) - 0x800000) / 65536;
		const double d = (double)((int64_t)v >> 8) / 0x1p40;

		memcpy(&v, &d, 8);
		if (type != COLL_F64)
			memcpy(&v, &f, 4);
		if (type == COLL_BF16)
			v = (v & 0xffffffff) >> 16;
		if (type == COLL_F16)
			v = draw() & 0xbfff; /* below 2 */
	} else if (kind < 10) {
		switch (type) {
		case COLL_F16: v = special_f16[k]; break;
		case COLL_BF16: v = special_bf16[k]; break;
		case COLL_F32: v = special_f32[k]; break;
		case COLL_F64: v = special_f64[k]; break;
		default: v = k < 4 ? 0 : k < 8 ? ~0ull >> (k - 4) : (uint64_t)(k - 8) << 7; break;
		}
	}
	memcpy(p, &v, coll_dtype_size(type));
}

static bool is_nan(const char *p, coll_dtype type)
{
	uint16_t h;
	float f;
	double d;

	switch (type) {
	case COLL_F8E4M3: return (*p & 0x7f) == 0x7f;
	case COLL_F8E5M2: return (*p & 0x7f) > 0x7c;
	case COLL_F16: memcpy(&h, p, 2); return (h & 0x7fff) > 0x7c00;
	case COLL_BF16: memcpy(&h, p, 2); return (h & 0x7fff) > 0x7f80;
	case COLL_F32: memcpy(&f, p, 4); return isnan(f);
	case COLL_F64: memcpy(&d, p, 8); return isnan(d);
	default: return false;
	}
}

/* Index of the first element that differs, or count. */
static size_t first_difference(const char *a, const char *b, coll_dtype type, size_t count)
{
	const size_t bytes = coll_dtype_size(type);

	if (memcmp(a, b, count * bytes) == 0)
		return count;
	for (size_t i = 0; i < count; i++)
		if (memcmp(a + i * bytes, b + i * bytes, bytes) != 0 &&
		    !(is_nan(a + i * bytes, type) && is_nan(b + i * bytes, type)))
			return i;
	return count;
}

struct bench {
	char pool[SOURCES_MAX][BUF_BYTES]; /* inputs */
	char work[SOURCES_MAX][BUF_BYTES]; /* inputs of one call, one of which may be dst */
	char want[BUF_BYTES];
	char got[BUF_BYTES];
};

static bool guarded(const char *buf, size_t at, size_t len)
{
	for (size_t i = 0; i < GUARD; i++)
		if (buf[at - 1 - i] != (char)0xa5 || buf[at + len + i] != (char)0xa5)
			return false;
	return true;
}

struct call {
	int nsrc;
	int in_place; /* input that is dst, or -1 */
	int raw;
	bool last;
	size_t count;
	size_t shift; /* bytes off alignment */
};

static void run_at(const struct coll_reduction *r, struct bench *b, const struct call *c, char *dst)
{
	const void *src[SOURCES_MAX];
	const size_t len = c->count * r->elem_bytes;

	for (int s = 0; s < c->nsrc; s++) {
		char *p = s == c->in_place ? dst : b->work[s] + (s * 5 + c->shift) % 64;

		memcpy(p, b->pool[s], len);
		src[s] = p;
	}
	coll_reduce_run(r, dst, src, c->nsrc, c->raw, c->last, c->count);
}

static void compare(const struct coll_reduction *oracle, const struct coll_reduction *r, struct bench *b,
                    const struct call *c)
{
	const size_t len = c->count * r->elem_bytes, at = GUARD + c->shift;
	size_t i;

	memset(b->want, 0xa5, at + len + GUARD);
	memset(b->got, 0xa5, at + len + GUARD);
	run_at(oracle, b, c, b->want + at);
	run_at(r, b, c, b->got + at);
	i = first_difference(b->want + at, b->got + at, r->type, c->count);
	CHECK(i == c->count, "%s %s %u: nsrc %d in place %d raw %d last %d count %zu: element %zu differs",
	      coll_reduce_isa_name(r->isa), coll_dtype_name(r->type), r->op, c->nsrc, c->in_place, c->raw, c->last,
	      c->count, i);
	CHECK(guarded(b->want, at, len), "scalar %s %u count %zu", coll_dtype_name(r->type), r->op, c->count);
	CHECK(guarded(b->got, at, len), "%s %s %u count %zu", coll_reduce_isa_name(r->isa), coll_dtype_name(r->type),
	      r->op, c->count);
}

static void compare_counts(const struct coll_reduction *oracle, const struct coll_reduction *r, struct bench *b,
                           struct call c)
{
	static const size_t longer[] = {255, 256, 257, 511, 640, 1023, 1100};

	for (size_t i = 0; i < 131 + sizeof(longer) / sizeof(longer[0]); i++) {
		c.count = i < 131 ? i : longer[i - 131];
		c.shift = draw() % 5 == 0 ? 0 : draw() % 32;
		c.last = draw() & 1;
		c.raw = r->op == COLL_OP_PREMUL_SUM ? (int)(draw() % (unsigned)(c.nsrc + 2)) - 2 : -1;
		compare(oracle, r, b, &c);
	}
}

static void compare_op(struct bench *b, coll_dtype type, coll_op op, enum coll_isa isa)
{
	static const int sources[] = {1, 2, 3, 5, 9};
	static const int ranks[] = {1, 2, 3, 7, 16, 1000, 70001};
	struct coll_reduction oracle, r;
	const int nranks = ranks[draw() % 7];

	REQUIRE(coll_reduce_bind(&oracle, type, op, nranks, COLL_ISA_SCALAR) == COLL_OK);
	REQUIRE(coll_reduce_bind(&r, type, op, nranks, isa) == COLL_OK);
	oracle.scale = r.scale = 0.3;
	for (int s = 0; s < SOURCES_MAX; s++)
		for (size_t i = 0; i < COUNT_MAX; i++)
			put_random(b->pool[s] + i * r.elem_bytes, type);
	for (size_t k = 0; k < sizeof(sources) / sizeof(sources[0]); k++)
		for (int in_place = -1; in_place < sources[k]; in_place++)
			compare_counts(&oracle, &r, b, (struct call){.nsrc = sources[k], .in_place = in_place});
}

static void compare_level(enum coll_isa isa)
{
	struct bench *b = malloc(sizeof(*b));
	int pairs = 0;

	REQUIRE(b);
	printf("seed %llu, level %s\n", (unsigned long long)seed, coll_reduce_isa_name(isa));
	for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++)
		for (coll_op op = 0; op <= COLL_OP_PREMUL_SUM; op++)
			if (coll_reduce_supports(type, op)) {
				compare_op(b, type, op, isa);
				pairs++;
			}
	/* 8 integer types x 11, 6 float types x (8 + premultiplied). */
	CHECK(pairs == 8 * 11 + 6 * 9, "%d pairs", pairs);
	free(b);
}

TEST(levels, avx2_equals_scalar)
{
	if (coll_reduce_best_isa() < COLL_ISA_AVX2)
		SKIP("no AVX2 here");
	compare_level(COLL_ISA_AVX2);
}

TEST(levels, avx512_equals_scalar)
{
	if (coll_reduce_best_isa() < COLL_ISA_AVX512)
		SKIP("no AVX-512 here");
	compare_level(COLL_ISA_AVX512);
}

/* ---- To several places ---- */

/* Some places, in place of some inputs or not, alike in their lines or not, streamed or not:
 * each holds what the scalar level makes in one. */
static void compare_spread(const struct coll_reduction *oracle, const struct coll_reduction *r, struct bench *b,
                           size_t count)
{
	const int nsrc = 1 + (int)(draw() % 5), ndst = draw() % 2 ? nsrc : 1 + (int)(draw() % 5);
	const size_t len = count * r->elem_bytes, shift = draw() % 2 ? 0 : draw() % 64 / r->elem_bytes * r->elem_bytes;
	const bool in_place = draw() % 2, alike = draw() % 2, stream = draw() % 2;
	const char *src[SOURCES_MAX];
	char *dst[SOURCES_MAX], *more = malloc(SOURCES_MAX * (size_t)BUF_BYTES);

	REQUIRE(more);
	memset(b->work, 0xa5, sizeof(b->work));
	memset(more, 0xa5, SOURCES_MAX * (size_t)BUF_BYTES);
	for (int i = 0; i < SOURCES_MAX; i++) {
		const size_t at = (-(uintptr_t)b->work[i] % 64) + shift + (alike ? 0 : (size_t)i * r->elem_bytes);
		char *p = b->work[i] + at, *q = more + (size_t)i * BUF_BYTES;

		memcpy(p, b->pool[i], len);
		src[i] = p;
		dst[i] = in_place && i < nsrc ? p : q + (-(uintptr_t)q % 64) + shift + (alike ? 0 : (size_t)i);
	}
	coll_reduce_run(oracle, b->want, (const void *const *)src, nsrc, -1, true, count);
	coll_reduce_spread(r, dst, ndst, src, nsrc, stream, len);
	coll_reduce_fence();
	for (int d = 0; d < ndst; d++) {
		CHECK(first_difference(b->want, dst[d], r->type, count) == count,
		      "%s %s %u: %d to %d, place %d of %zu elements, in place %d, streamed %d",
		      coll_reduce_isa_name(r->isa), coll_dtype_name(r->type), r->op, nsrc, ndst, d, count, in_place,
		      stream);
		CHECK(dst[d][len] == (char)0xa5, "behind place %d", d);
	}
	free(more);
}

TEST(levels, several_places_hold_the_same)
{
	struct bench *b = malloc(sizeof(*b));

	REQUIRE(b);
	printf("seed %llu\n", (unsigned long long)seed);
	for (int isa = 0; isa <= (int)coll_reduce_best_isa(); isa++)
		for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++)
			for (coll_op op = 0; op < COLL_OP_COUNT; op++) {
				struct coll_reduction oracle, r;

				if (!coll_reduce_supports(type, op))
					continue;
				REQUIRE(coll_reduce_bind(&oracle, type, op, 3, COLL_ISA_SCALAR) == COLL_OK);
				REQUIRE(coll_reduce_bind(&r, type, op, 3, (enum coll_isa)isa) == COLL_OK);
				for (int s = 0; s < SOURCES_MAX; s++)
					for (size_t i = 0; i < COUNT_MAX; i++)
						put_random(b->pool[s] + i * r.elem_bytes, type);
				for (int i = 0; i < 40; i++)
					compare_spread(&oracle, &r, b, 1 + draw() % (COUNT_MAX - 80));
			}
	free(b);
}

/* Levels below the best are reached by asking for them, and are really theirs. */
TEST(levels, each_level_has_kernels_of_its_own)
{
	struct coll_reduction a, b;

	for (int isa = 1; isa <= (int)coll_reduce_best_isa(); isa++)
		for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++) {
			REQUIRE(coll_reduce_bind(&a, type, COLL_SUM, 2, (enum coll_isa)isa) == COLL_OK);
			REQUIRE(coll_reduce_bind(&b, type, COLL_SUM, 2, (enum coll_isa)(isa - 1)) == COLL_OK);
			CHECK(a.run != b.run, "level %d type %d", isa, (int)type);
		}
}
