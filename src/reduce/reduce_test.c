/*
 * The scalar level, the oracle of all others, against expectations of its own:
 * conversions of every half against arithmetic in double, wrapping and truncating
 * integers, order of zeros and NaNs, user operations, copies.
 */
#include <math.h>
#include <stdlib.h>

#include "reduce/copy.h"
#include "reduce/element.h"
#include "reduce/reduce.h"
#include "tests/plain.h"

static uint64_t seed = 20261122;

static uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull;
}

/* ---- Conversions ---- */

struct half {
	const char *name;
	int fraction_bits;
	int exponent_bits;
	float (*widen)(uint16_t h);
	uint16_t (*narrow)(float f);
};

static float widen_f16(uint16_t h)
{
	return f16_to_f32(h);
}

static uint16_t narrow_f16(float f)
{
	return f16_from_f32(f);
}

static float widen_bf16(uint16_t h)
{
	return bf16_to_f32(h);
}

static uint16_t narrow_bf16(float f)
{
	return bf16_from_f32(f);
}

static const struct half halves[] = {
        {"f16", 10, 5, widen_f16, narrow_f16},
        {"bf16", 7, 8, widen_bf16, narrow_bf16},
};

/* The value of the fields, by the definition of the formats. */
static double value_of(const struct half *t, uint16_t h)
{
	const int fraction = h & ((1 << t->fraction_bits) - 1);
	const int exponent = h >> t->fraction_bits & ((1 << t->exponent_bits) - 1);
	const int bias = (1 << (t->exponent_bits - 1)) - 1;
	const double sign = h & 0x8000 ? -1 : 1;

	if (exponent == (1 << t->exponent_bits) - 1)
		return fraction ? NAN : sign * INFINITY;
	if (exponent == 0)
		return sign * ldexp(fraction, 1 - bias - t->fraction_bits);
	return sign * ldexp((1 << t->fraction_bits) + fraction, exponent - bias - t->fraction_bits);
}

TEST(oracle, every_half_widens_exactly_and_returns)
{
	for (size_t k = 0; k < 2; k++)
		for (uint32_t h = 0; h < 65536; h++) {
			const struct half *t = &halves[k];
			const double want = value_of(t, (uint16_t)h);
			const float got = t->widen((uint16_t)h);

			if (isnan(want)) {
				CHECK(isnan(got), "%s %x", t->name, h);
				CHECK(isnan(value_of(t, t->narrow(got))), "%s %x", t->name, h);
				continue;
			}
			CHECK((double)got == want && !signbit(got) == !signbit(want), "%s %x", t->name, h);
			CHECK(t->narrow(got) == h, "%s %x", t->name, h);
		}
}

/* No other half is nearer, and a tie goes to the even one. Beyond the largest
 * finite one the next power of two stands for infinity. */
static void check_nearest(const struct half *t, float f)
{
	const uint16_t infinity = (uint16_t)(((1 << t->exponent_bits) - 1) << t->fraction_bits);
	const uint16_t h = t->narrow(f), body = h & 0x7fff;
	const double beyond = ldexp(1, 1 << (t->exponent_bits - 1)), x = fabs((double)f);
	const double value = body == infinity ? beyond : value_of(t, body);
	const double error = fabs(value - x);

	CHECK((h >> 15) == !!signbit(f), "%s %a", t->name, (double)f);
	if (body == infinity && x >= beyond)
		return;
	CHECK(body <= infinity, "%s %a", t->name, (double)f);
	if (body > 0) {
		const double below = fabs(value_of(t, (uint16_t)(body - 1)) - x);

		CHECK(error < below || (error == below && body % 2 == 0), "%s %a", t->name, (double)f);
	}
	if (body < infinity) {
		const double above = fabs((body + 1 == infinity ? beyond : value_of(t, (uint16_t)(body + 1))) - x);

		CHECK(error < above || (error == above && body % 2 == 0), "%s %a", t->name, (double)f);
	}
}

TEST(oracle, narrowing_rounds_to_nearest_even)
{
	for (size_t k = 0; k < 2; k++) {
		const struct half *t = &halves[k];
		const uint32_t infinity = ((1u << t->exponent_bits) - 1) << t->fraction_bits;

		/* Every midpoint, and the floats next to it. */
		for (uint32_t h = 0; h < infinity; h++) {
			const double lower = value_of(t, (uint16_t)h);
			const double upper = h + 1 == infinity ? ldexp(1, 1 << (t->exponent_bits - 1))
			                                       : value_of(t, (uint16_t)(h + 1));
			const float middle = (float)((lower + upper) / 2);

			check_nearest(t, middle);
			check_nearest(t, -middle);
			check_nearest(t, nextafterf(middle, INFINITY));
			check_nearest(t, nextafterf(middle, 0));
		}
		for (int i = 0; i < 1000000; i++) {
			const float f = f32_from_bits((uint32_t)draw());

			if (isfinite(f))
				check_nearest(t, f);
		}
		check_nearest(t, INFINITY);
		check_nearest(t, -INFINITY);
	}
}

TEST(oracle, known_halves)
{
	CHECK(f16_from_f32(1.0f) == 0x3c00);
	CHECK(f16_from_f32(65504.0f) == 0x7bff);
	CHECK(f16_from_f32(65519.996f) == 0x7bff);
	CHECK(f16_from_f32(65520.0f) == 0x7c00);
	CHECK(f16_from_f32(0x1p-24f) == 1);
	CHECK(f16_from_f32(0x1p-25f) == 0);
	CHECK(f16_from_f32(0x1.8p-24f) == 2);
	CHECK(f16_from_f32(2049.0f) == 0x6800);
	CHECK(f16_from_f32(2051.0f) == 0x6802);
	CHECK(bf16_from_f32(1.0f) == 0x3f80);
	CHECK(bf16_from_f32(0x1.01p0f) == 0x3f80);
	CHECK(bf16_from_f32(0x1.03p0f) == 0x3f82);
	CHECK(bf16_from_f32(0x1.fffffep127f) == 0x7f80);
	CHECK(bf16_from_f32(0x1p-133f) == 1);
}

/* ---- Operations ---- */

/* Reduce nsrc inputs of count elements, scalar level, out of place. */
static void reduce(coll_dtype type, coll_op op, int nranks, void *dst, const void *const *src, int nsrc, bool last,
                   size_t count)
{
	struct coll_reduction r;

	REQUIRE(coll_reduce_bind(&r, type, op, nranks, COLL_ISA_SCALAR) == COLL_OK);
	coll_reduce_run(&r, dst, src, nsrc, -1, last, count);
}

#define REDUCE1(T, type, op, nranks, last, ...)                     \
	({                                                          \
		const T in_[] = {__VA_ARGS__};                      \
		const int n_ = sizeof(in_) / sizeof(in_[0]);        \
		const void *src_[8];                                \
		T out_ = 0;                                         \
		for (int s_ = 0; s_ < n_; s_++)                     \
			src_[s_] = &in_[s_];                        \
		reduce(type, op, nranks, &out_, src_, n_, last, 1); \
		out_;                                               \
	})

TEST(oracle, integers_wrap)
{
	CHECK(REDUCE1(int8_t, COLL_I8, COLL_SUM, 2, true, 127, 1) == -128);
	CHECK(REDUCE1(int8_t, COLL_I8, COLL_PROD, 2, true, -128, -1) == -128);
	CHECK(REDUCE1(uint8_t, COLL_U8, COLL_SUM, 2, true, 250, 10) == 4);
	CHECK(REDUCE1(int16_t, COLL_I16, COLL_PROD, 2, true, 32767, 32767) == 1);
	CHECK(REDUCE1(uint16_t, COLL_U16, COLL_PROD, 2, true, 65535, 65535) == 1);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_SUM, 2, true, INT32_MAX, 1) == INT32_MIN);
	CHECK(REDUCE1(uint32_t, COLL_U32, COLL_PROD, 2, true, UINT32_MAX, UINT32_MAX) == 1);
	CHECK(REDUCE1(int64_t, COLL_I64, COLL_SUM, 2, true, INT64_MAX, INT64_MAX) == -2);
	CHECK(REDUCE1(int64_t, COLL_I64, COLL_PROD, 2, true, INT64_MIN, -1) == INT64_MIN);
	CHECK(REDUCE1(uint64_t, COLL_U64, COLL_SUM, 2, true, UINT64_MAX, 2) == 1);
}

TEST(oracle, integer_average_truncates_toward_zero_and_only_when_last)
{
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_AVG, 2, true, -3, -4) == -3);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_AVG, 2, true, 3, 4) == 3);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_AVG, 2, false, 3, 4) == 7);
	CHECK(REDUCE1(int8_t, COLL_I8, COLL_AVG, 3, true, -1, -1, -3) == -1);
	CHECK(REDUCE1(int8_t, COLL_I8, COLL_AVG, 2, true, 100, 100) == -28);
	CHECK(REDUCE1(uint8_t, COLL_U8, COLL_AVG, 2, true, 200, 100) == 22);
	CHECK(REDUCE1(int64_t, COLL_I64, COLL_AVG, 3, true, INT64_MIN, 0, 0) == INT64_MIN / 3);
	CHECK(REDUCE1(uint64_t, COLL_U64, COLL_AVG, 3, true, UINT64_MAX, 0, 0) == UINT64_MAX / 3);
	CHECK(REDUCE1(int16_t, COLL_I16, COLL_AVG, 7, true, -20) == -2);
}

TEST(oracle, order_of_floats)
{
	const float nan_in = NAN;

	CHECK(signbit(REDUCE1(float, COLL_F32, COLL_MIN, 2, true, 0.0f, -0.0f)));
	CHECK(signbit(REDUCE1(float, COLL_F32, COLL_MIN, 2, true, -0.0f, 0.0f)));
	CHECK(!signbit(REDUCE1(float, COLL_F32, COLL_MAX, 2, true, 0.0f, -0.0f)));
	CHECK(!signbit(REDUCE1(float, COLL_F32, COLL_MAX, 2, true, -0.0f, 0.0f)));
	CHECK(signbit(REDUCE1(float, COLL_F32, COLL_MAX, 2, true, -0.0f, -0.0f)));
	CHECK(isnan(REDUCE1(float, COLL_F32, COLL_MIN, 2, true, nan_in, -INFINITY)));
	CHECK(isnan(REDUCE1(float, COLL_F32, COLL_MIN, 2, true, -INFINITY, nan_in)));
	CHECK(isnan(REDUCE1(double, COLL_F64, COLL_MAX, 3, true, 1.0, (double)nan_in, 2.0)));
	CHECK(REDUCE1(double, COLL_F64, COLL_MAX, 3, true, 1.0, INFINITY, 2.0) == INFINITY);
	CHECK(REDUCE1(uint16_t, COLL_F16, COLL_MIN, 2, true, 0x0000, 0x8000) == 0x8000);
	CHECK(REDUCE1(uint16_t, COLL_BF16, COLL_MAX, 2, true, 0x8000, 0x0000) == 0x0000);
	CHECK(REDUCE1(int8_t, COLL_I8, COLL_MIN, 2, true, -1, 1) == -1);
	CHECK(REDUCE1(uint8_t, COLL_U8, COLL_MIN, 2, true, 255, 1) == 1);
}

TEST(oracle, logical_operations_give_zero_or_one)
{
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_LAND, 2, true, 4, 2) == 1);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_LAND, 2, true, 4, 0) == 0);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_LOR, 2, true, 0, 8) == 1);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_LXOR, 3, true, 4, 2, 1) == 1);
	CHECK(REDUCE1(int32_t, COLL_I32, COLL_LXOR, 2, true, 4, 2) == 0);
	CHECK(REDUCE1(float, COLL_F32, COLL_LAND, 2, true, 0.5f, -0.0f) == 0);
	CHECK(REDUCE1(float, COLL_F32, COLL_LOR, 2, true, -0.0f, NAN) == 1);
	CHECK(REDUCE1(uint16_t, COLL_F16, COLL_LAND, 2, true, 0x0001, 0x4000) == 0x3c00);
	/* One rank: the only input is the result. */
	CHECK(REDUCE1(uint64_t, COLL_U64, COLL_LAND, 1, true, 77) == 1);
	CHECK(REDUCE1(uint64_t, COLL_U64, COLL_LAND, 1, false, 77) == 77);
	CHECK(REDUCE1(uint8_t, COLL_U8, COLL_BXOR, 3, true, 0x0f, 0xff, 0x01) == 0xf1);
}

/* 2049 ones and friends: rounding once, after all inputs, not at each. */
TEST(oracle, halves_round_once_per_call)
{
	/* 2048 + 1 + 1 = 2050 in f32; rounding after each would stay at 2048. */
	CHECK(REDUCE1(uint16_t, COLL_F16, COLL_SUM, 3, true, 0x6800, 0x3c00, 0x3c00) == 0x6801);
	CHECK(REDUCE1(uint16_t, COLL_BF16, COLL_SUM, 3, true, 0x4380, 0x3f80, 0x3f80) == 0x4381);
	/* 65504 + 65504 overflows f16 but its average does not. */
	CHECK(REDUCE1(uint16_t, COLL_F16, COLL_AVG, 2, true, 0x7bff, 0x7bff) == 0x7bff);
}

TEST(oracle, floats_against_double)
{
	for (int i = 0; i < 100000; i++) {
		const float a = (float)((int64_t)draw() >> 40) / 1024, b = (float)((int64_t)draw() >> 44) / 64;

		CHECK(REDUCE1(float, COLL_F32, COLL_SUM, 2, true, a, b) == (float)((double)a + b));
		CHECK(REDUCE1(float, COLL_F32, COLL_PROD, 2, true, a, b) == (float)((double)a * b));
		CHECK(REDUCE1(float, COLL_F32, COLL_AVG, 3, true, a, 0.0f) == (float)((double)a / 3));
		CHECK(REDUCE1(double, COLL_F64, COLL_AVG, 3, true, a, 1.0) == ((double)a + 1) / 3);
	}
}

static double widened(coll_dtype type, uint64_t bits)
{
	float f;
	double d;

	switch (type) {
	case COLL_F16: return (double)f16_to_f32((uint16_t)bits);
	case COLL_BF16: return (double)bf16_to_f32((uint16_t)bits);
	case COLL_F8E4M3: return (double)f8e4m3_to_f32((uint8_t)bits);
	case COLL_F8E5M2: return (double)f8e5m2_to_f32((uint8_t)bits);
	case COLL_F32: memcpy(&f, &bits, sizeof(f)); return (double)f;
	default: memcpy(&d, &bits, sizeof(d)); return d;
	}
}

TEST(oracle, premultiplied_sum_scales_the_raw_input_only)
{
	const float x[3] = {1, 10, 100};
	const void *src[3] = {&x[0], &x[1], &x[2]};
	struct coll_reduction r;
	float out = 0;

	REQUIRE(coll_reduce_bind(&r, COLL_F32, COLL_OP_PREMUL_SUM, 3, COLL_ISA_SCALAR) == COLL_OK);
	r.scale = 2;
	coll_reduce_run(&r, &out, src, 3, -1, true, 1);
	CHECK(out == 111);
	coll_reduce_run(&r, &out, src, 3, 1, true, 1);
	CHECK(out == 121);
	coll_reduce_run(&r, &out, src, 3, -2, true, 1);
	CHECK(out == 222);
	coll_reduce_run(&r, &out, src, 1, 0, false, 1);
	CHECK(out == 2);
	coll_reduce_run(&r, &out, src, 1, -1, false, 1);
	CHECK(out == 1);
}

/* One rank adds what it has scaled, another what it has received: the same bits. */
TEST(oracle, a_scaled_contribution_is_the_same_where_it_was_sent_first)
{
	static const coll_dtype types[] = {COLL_F16, COLL_BF16, COLL_F32, COLL_F64, COLL_F8E4M3, COLL_F8E5M2};

	for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)
		for (int i = 0; i < 20000; i++) {
			const uint64_t mask =
			        types[k] == COLL_F16 || types[k] == COLL_BF16 ? 0x80ff80ff80ff80ff : ~0ull;
			uint64_t x = draw() & mask, y = draw() & mask, sent = 0, here = 0, there = 0;
			const void *raw[] = {&x, &y}, *travelled[] = {&sent, &y};
			struct coll_reduction r;

			REQUIRE(coll_reduce_bind(&r, types[k], COLL_OP_PREMUL_SUM, 2, COLL_ISA_SCALAR) == COLL_OK);
			r.scale = 0.5;
			coll_reduce_run(&r, &here, raw, 2, 0, true, 1);
			coll_reduce_run(&r, &sent, raw, 1, 0, false, 1);
			coll_reduce_run(&r, &there, travelled, 2, -1, true, 1);
			CHECK(here == there || isnan(widened(types[k], here)), "%s %llx %llx",
			      coll_dtype_name(types[k]), (unsigned long long)x, (unsigned long long)y);
		}
}

TEST(oracle, what_is_defined)
{
	struct coll_reduction r;

	for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++) {
		const bool real = type >= COLL_F16;

		for (coll_op op = 0; op < COLL_OP_COUNT; op++) {
			const bool bits = op == COLL_BAND || op == COLL_BOR || op == COLL_BXOR;

			CHECK(coll_reduce_supports(type, op) == !(bits && real), "%d %u", (int)type, op);
		}
		CHECK(coll_reduce_supports(type, COLL_OP_PREMUL_SUM) == real);
		CHECK(coll_reduce_supports(type, COLL_OP_USER));
		CHECK(!coll_reduce_supports(type, COLL_OP_COUNT));
		CHECK(!coll_reduce_supports(type, 99));
	}
	CHECK(!coll_reduce_supports(COLL_DTYPE_COUNT, COLL_SUM));
	CHECK(coll_reduce_bind(&r, COLL_F32, COLL_BAND, 2, COLL_ISA_SCALAR) == COLL_ERR_ARGUMENT);
	CHECK(coll_reduce_bind(&r, COLL_DTYPE_COUNT, COLL_OP_USER, 2, COLL_ISA_SCALAR) == COLL_ERR_ARGUMENT);
	CHECK(coll_reduce_isa_name(COLL_ISA_COUNT) == NULL);
	CHECK(strcmp(coll_reduce_isa_name(COLL_ISA_SCALAR), "scalar") == 0);
}

/* ---- User operations ---- */

enum { USER_COUNT = 3000, USER_SOURCES = 9 };

/* Neither commutative nor associative, so that order and grouping show. */
static int32_t mix(int32_t left, int32_t right)
{
	return (int32_t)((uint32_t)left * 31u + (uint32_t)right);
}

static void mix_all(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const int32_t *l = left;
	int32_t *r = inout;

	CHECK((uintptr_t)left % 4 == 0 && (uintptr_t)inout % 4 == 0 && type == COLL_I32);
	*(size_t *)arg += count;
	for (size_t i = 0; i < count; i++)
		r[i] = mix(l[i], r[i]);
}

static void check_user(int nsrc, int in_place, size_t shift)
{
	static char space[USER_SOURCES + 1][USER_COUNT * 4 + 16];
	static int32_t in[USER_SOURCES][USER_COUNT], out[USER_COUNT];
	const void *src[USER_SOURCES];
	struct coll_reduction r;
	size_t calls = 0;
	char *dst = space[in_place < 0 ? USER_SOURCES : in_place] + shift;

	for (int s = 0; s < nsrc; s++) {
		for (int i = 0; i < USER_COUNT; i++)
			in[s][i] = (int32_t)draw();
		src[s] = memcpy(space[s] + shift, in[s], sizeof(in[s]));
	}
	REQUIRE(coll_reduce_bind(&r, COLL_I32, COLL_OP_USER, nsrc, COLL_ISA_SCALAR) == COLL_OK);
	r.user_fn = mix_all;
	r.user_arg = &calls;
	coll_reduce_run(&r, dst, src, nsrc, -1, true, USER_COUNT);
	CHECK(calls == (size_t)(nsrc - 1) * USER_COUNT);
	memcpy(out, dst, sizeof(out));
	for (int i = 0; i < USER_COUNT; i++) {
		int32_t want = in[0][i];

		for (int s = 1; s < nsrc; s++)
			want = mix(want, in[s][i]);
		CHECK(out[i] == want, "nsrc %d in place %d shift %zu: %d", nsrc, in_place, shift, i);
	}
	for (int s = 0; s < nsrc; s++)
		CHECK(s == in_place || memcmp(space[s] + shift, in[s], sizeof(in[s])) == 0, "input %d was written", s);
}

TEST(user, folds_left_to_right_and_leaves_the_inputs_alone)
{
	for (int nsrc = 1; nsrc <= USER_SOURCES; nsrc++)
		for (int in_place = -1; in_place < nsrc; in_place++)
			for (size_t shift = 0; shift < 2; shift++)
				check_user(nsrc, in_place, shift);
}

/* ---- Copies ---- */

TEST(copy, same_bytes_and_nothing_beside_them)
{
	enum { MAX = 70000, PAD = 80 };
	static char src[MAX + 2 * PAD], dst[MAX + 2 * PAD], want[MAX + 2 * PAD];

	for (size_t i = 0; i < sizeof(src); i++)
		src[i] = (char)draw();
	for (int round = 0; round < 3000; round++) {
		const size_t len = round < 1200 ? (size_t)round : draw() % MAX;
		const size_t to = draw() % PAD, from = draw() % PAD;

		memset(dst, 0x5a, sizeof(dst));
		memcpy(want, dst, sizeof(dst));
		memcpy(want + to, src + from, len);
		(round % 2 ? coll_reduce_copy : coll_reduce_copy_nt)(dst + to, src + from, len);
		CHECK(memcmp(want, dst, sizeof(dst)) == 0, "len %zu to %zu from %zu nt %d", len, to, from,
		      !(round % 2));
	}
	coll_reduce_copy(dst, dst, sizeof(dst));
	coll_reduce_copy_nt(dst, dst, sizeof(dst));
	CHECK(memcmp(want, dst, sizeof(dst)) == 0);
	coll_reduce_copy(NULL, NULL, 0);
	coll_reduce_copy_nt(NULL, NULL, 0);
}
