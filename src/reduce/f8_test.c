/*
 * 8-bit floats against the definition of OCP (OFP8, February 2023), in plain double arithmetic: all 256 values,
 * rounding at and beside every midpoint, and each operation on all 65536 pairs, at every ISA level. tests/f8_torch.py,
 * run by hand, compares the conversions with those of PyTorch.
 */
#include <math.h>

#include "reduce/element.h"
#include "reduce/reduce.h"
#include "tests/plain.h"

enum { PAIRS = 65536 };

struct format {
	coll_dtype type;
	int fraction_bits, bias;
	int top;       /* the largest finite number */
	bool infinite; /* the one behind it is infinity; otherwise there is none, and overflow gives top */
	float (*widen)(uint8_t b);
	uint8_t (*narrow)(float f);
};

static float widen_e4m3(uint8_t b)
{
	return f8e4m3_to_f32(b);
}

static uint8_t narrow_e4m3(float f)
{
	return f8e4m3_from_f32(f);
}

static float widen_e5m2(uint8_t b)
{
	return f8e5m2_to_f32(b);
}

static uint8_t narrow_e5m2(float f)
{
	return f8e5m2_from_f32(f);
}

static const struct format formats[] = {
        {COLL_F8E4M3, 3, 7, 0x7e, false, widen_e4m3, narrow_e4m3},
        {COLL_F8E5M2, 2, 15, 0x7b, true, widen_e5m2, narrow_e5m2},
};

/* ---- The definition ---- */

/* As if exponents went on: also of the number behind top. */
static double magnitude(const struct format *t, int body)
{
	const int fraction = body % (1 << t->fraction_bits), exponent = body >> t->fraction_bits;
	const int whole = exponent ? 1 << t->fraction_bits : 0;

	return ldexp(whole + fraction, (exponent ? exponent : 1) - t->bias - t->fraction_bits);
}

static double value_of(const struct format *t, uint8_t b)
{
	const int body = b & 0x7f;
	const double v = body <= t->top ? magnitude(t, body) : t->infinite && body == t->top + 1 ? INFINITY : NAN;

	return b & 0x80 ? -v : v;
}

static bool is_nan(const struct format *t, uint8_t b)
{
	return isnan(value_of(t, b));
}

/* Halfway between two neighbours, the second of which may be the one behind top. */
static double middle(const struct format *t, int body)
{
	return (magnitude(t, body) + magnitude(t, body + 1)) / 2;
}

/* The nearest, of two that are equally near the even one. Behind the last midpoint lies overflow. */
static uint8_t nearest(const struct format *t, double x)
{
	const double m = fabs(x);
	int body = 0, end = t->top + 1;

	if (isnan(x))
		return 0x7f;
	while (body < end) {
		const int k = (body + end) / 2;

		if (m > middle(t, k))
			body = k + 1;
		else
			end = k;
	}
	if (body <= t->top && body % 2 && m == middle(t, body))
		body++;
	if (body > t->top)
		body = t->infinite ? t->top + 1 : t->top;
	return (uint8_t)(body | (signbit(x) ? 0x80 : 0));
}

static bool same(const struct format *t, uint8_t a, uint8_t b)
{
	return a == b || (is_nan(t, a) && is_nan(t, b));
}

/* ---- Conversions ---- */

/* Tables of the paper that defines the formats: largest, smallest normal, largest and smallest subnormal numbers. */
TEST(f8, the_definition_has_the_published_limits)
{
	CHECK(value_of(&formats[0], 0x7e) == 448 && value_of(&formats[0], 0xfe) == -448);
	CHECK(value_of(&formats[0], 0x08) == 0x1p-6 && value_of(&formats[0], 0x07) == 0.875 * 0x1p-6);
	CHECK(value_of(&formats[0], 0x01) == 0x1p-9 && isnan(value_of(&formats[0], 0x7f)));
	CHECK(value_of(&formats[1], 0x7b) == 57344 && value_of(&formats[1], 0xfc) == -INFINITY);
	CHECK(value_of(&formats[1], 0x04) == 0x1p-14 && value_of(&formats[1], 0x03) == 0.75 * 0x1p-14);
	CHECK(value_of(&formats[1], 0x01) == 0x1p-16 && isnan(value_of(&formats[1], 0x7d)));
}

TEST(f8, every_value_widens_exactly_and_returns)
{
	for (int k = 0; k < 2; k++)
		for (int b = 0; b < 256; b++) {
			const struct format *t = &formats[k];
			const double want = value_of(t, (uint8_t)b);
			const float got = t->widen((uint8_t)b);

			CHECK(!signbit(got) == !(b & 0x80), "%d %x", k, b);
			CHECK(isnan(want) ? isnan(got) : (double)got == want, "%d %x", k, b);
			CHECK(isnan(want) ? t->narrow(got) == (b | 0x7f) : t->narrow(got) == b, "%d %x", k, b);
		}
}

static void check_narrow(const struct format *t, float f)
{
	CHECK(t->narrow(f) == nearest(t, (double)f), "%s %a", coll_dtype_name(t->type), (double)f);
	CHECK(t->narrow(-f) == nearest(t, -(double)f), "%s %a", coll_dtype_name(t->type), -(double)f);
}

TEST(f8, narrowing_rounds_to_nearest_even)
{
	uint32_t bits = 0;

	for (int k = 0; k < 2; k++) {
		const struct format *t = &formats[k];

		for (int body = 0; body <= t->top; body++) {
			const float f = (float)middle(t, body);

			check_narrow(t, f);
			check_narrow(t, nextafterf(f, INFINITY));
			check_narrow(t, nextafterf(f, 0));
		}
		check_narrow(t, INFINITY);
		check_narrow(t, 0x1p-149f);
		/* Floats of all exponents: 9973 is a prime. */
		do {
			if (isfinite(f32_from_bits(bits)))
				check_narrow(t, f32_from_bits(bits));
			bits += 9973 << 4;
		} while (bits > 9973 << 4);
	}
}

/* What PyTorch 2.13 gives for these. */
TEST(f8, overflow_saturates_e4m3_and_makes_infinity_of_e5m2)
{
	CHECK(f8e4m3_from_f32(464) == 0x7e && f8e4m3_from_f32(465) == 0x7e && f8e4m3_from_f32(480) == 0x7e);
	CHECK(f8e4m3_from_f32(-1e9f) == 0xfe && f8e4m3_from_f32(INFINITY) == 0x7e &&
	      f8e4m3_from_f32(-INFINITY) == 0xfe);
	CHECK(f8e5m2_from_f32(61439) == 0x7b && f8e5m2_from_f32(61440) == 0x7c && f8e5m2_from_f32(-1e9f) == 0xfc);
	CHECK(f8e5m2_from_f32(INFINITY) == 0x7c && f8e5m2_from_f32(-INFINITY) == 0xfc);
	for (int k = 0; k < 2; k++) {
		CHECK(formats[k].narrow(f32_from_bits(0x7f800001)) == 0x7f);
		CHECK(formats[k].narrow(f32_from_bits(0xffc00000)) == 0xff);
		CHECK(formats[k].narrow(f32_from_bits(0x7fffffff)) == 0x7f);
	}
}

/* ---- Operations ---- */

enum { RANKS = 3 };
#define SCALE 0.75

/* minimum and maximum of IEEE 754-2019. */
static double extreme(double a, double b, bool largest)
{
	if (isnan(a) || isnan(b))
		return NAN;
	if (a == b)
		return !signbit(a) == largest ? a : b;
	return (a < b) == largest ? b : a;
}

/* Exact in double, but for quotients. Scaled operands are rounded before they are added. */
static double joined(const struct format *t, coll_op op, double a, double b)
{
	switch (op) {
	case COLL_SUM: return a + b;
	case COLL_PROD: return a * b;
	case COLL_MIN: return extreme(a, b, false);
	case COLL_MAX: return extreme(a, b, true);
	case COLL_AVG: return (a + b) / 2;
	case COLL_LAND: return a != 0 && b != 0;
	case COLL_LOR: return a != 0 || b != 0;
	case COLL_LXOR: return (a != 0) != (b != 0);
	default: return value_of(t, nearest(t, a * SCALE)) + value_of(t, nearest(t, b * SCALE));
	}
}

static void check_pairs(const struct format *t, coll_op op)
{
	static uint8_t left[PAIRS], right[PAIRS], want[PAIRS], got[PAIRS];
	const void *src[2] = {left, right};
	struct coll_reduction r;

	for (int i = 0; i < PAIRS; i++) {
		left[i] = (uint8_t)(i >> 8);
		right[i] = (uint8_t)i;
		/* The arithmetic is that of f32. */
		want[i] = nearest(t, (double)(float)joined(t, op, value_of(t, left[i]), value_of(t, right[i])));
	}
	for (int isa = 0; isa <= (int)coll_reduce_best_isa(); isa++) {
		int wrong = 0, first = 0;

		REQUIRE(coll_reduce_bind(&r, t->type, op, RANKS, (enum coll_isa)isa) == COLL_OK);
		r.scale = SCALE;
		coll_reduce_run(&r, got, src, 2, -2, true, PAIRS);
		for (int i = 0; i < PAIRS; i++)
			if (!same(t, got[i], want[i]))
				first = wrong++ ? first : i;
		CHECK(wrong == 0, "%s %s op %u: %d wrong, the first %04x gives %02x",
		      coll_reduce_isa_name((enum coll_isa)isa), coll_dtype_name(t->type), op, wrong, (unsigned)first,
		      got[first]);
	}
}

TEST(f8, every_pair_of_values_at_every_level)
{
	int tables = 0;

	for (int k = 0; k < 2; k++)
		for (coll_op op = 0; op <= COLL_OP_PREMUL_SUM; op++)
			if (coll_reduce_supports(formats[k].type, op)) {
				check_pairs(&formats[k], op);
				tables++;
			}
	CHECK(tables == 2 * 9, "%d tables", tables);
}

/* 16 + 1 + 1 is 18, and 8 + 1 + 1 is 10; rounding after each operand would stay at 16 and at 8. The average of two
 * largest numbers does not overflow on the way. */
TEST(f8, rounding_once_per_call)
{
	static const double wide[] = {16, 8};

	for (int isa = 0; isa <= (int)coll_reduce_best_isa(); isa++)
		for (int k = 0; k < 2; k++) {
			const struct format *t = &formats[k];
			const uint8_t large = nearest(t, wide[k]), one = nearest(t, 1), top = (uint8_t)t->top;
			const void *three[] = {&large, &one, &one}, *two[] = {&top, &top};
			struct coll_reduction r;
			uint8_t out;

			REQUIRE(coll_reduce_bind(&r, t->type, COLL_SUM, 3, (enum coll_isa)isa) == COLL_OK);
			coll_reduce_run(&r, &out, three, 3, -1, true, 1);
			CHECK(value_of(t, out) == wide[k] + 2, "%d %d: %02x", isa, k, out);
			REQUIRE(coll_reduce_bind(&r, t->type, COLL_AVG, 2, (enum coll_isa)isa) == COLL_OK);
			coll_reduce_run(&r, &out, two, 2, -1, true, 1);
			CHECK(out == top, "%d %d: %02x", isa, k, out);
		}
}
