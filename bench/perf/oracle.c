/*
 * The oracle: the input of every rank at a position, and what the reduction of
 * all ranks' inputs there must be. Independent of the library: its own conversions
 * and its own arithmetic (64-bit integers, long double).
 *
 * Integers are arbitrary bits and results exact. Of the floats, fifteen of
 * sixteen positions hold values whose sums and products are exact in the type in
 * any order (small integers; powers of two), so that a single flipped bit shows;
 * the sixteenth holds arbitrary fractions, whose result must be within
 * (r + 1) u sum|x|: r roundings (one per further rank, one more for a division or
 * scaling), u the unit roundoff of the type. No product overflows or underflows:
 * only the first eight ranks contribute magnitudes other than one.
 */
#include <math.h>
#include <string.h>

#include "perf.h"

enum { ROUNDING_PERIOD = 16, ROUNDING_AT = 5, PROD_RANKS = 8 };

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	return x ^ x >> 32;
}

static bool is_real(coll_dtype type)
{
	return type >= COLL_F16 && type <= COLL_F64;
}

/* Bits of the significand, the hidden one included. */
static int precision(coll_dtype type)
{
	return type == COLL_F16 ? 11 : type == COLL_BF16 ? 8 : type == COLL_F32 ? 24 : 53;
}

/* ---- Conversions: by the definition of the formats ---- */

static double widen_half(uint64_t bits, int fraction_bits, int exponent_bits)
{
	const int fraction = (int)(bits & ((1u << fraction_bits) - 1));
	const int exponent = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1));
	const int bias = (1 << (exponent_bits - 1)) - 1;
	double v;

	if (exponent == (1 << exponent_bits) - 1)
		v = fraction ? NAN : INFINITY;
	else if (exponent == 0)
		v = ldexp(fraction, 1 - bias - fraction_bits);
	else
		v = ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
	return bits & 0x8000 ? -v : v;
}

double perf_oracle_widen(coll_dtype type, uint64_t bits)
{
	float f;
	double d;

	if (type == COLL_F16)
		return widen_half(bits, 10, 5);
	if (type == COLL_BF16)
		return widen_half(bits, 7, 8);
	if (type == COLL_F32) {
		const uint32_t low = (uint32_t)bits;

		memcpy(&f, &low, sizeof(f));
		return f;
	}
	memcpy(&d, &bits, sizeof(d));
	return d;
}

/* Finite values only: all that is needed here. */
static uint64_t narrow_half(double v, int fraction_bits, int bias)
{
	uint64_t body;
	int exponent;

	if (v == 0)
		return 0;
	(void)frexp(v, &exponent);
	if (exponent < 2 - bias) /* subnormal: fixed unit */
		exponent = 2 - bias;
	/* nearbyint rounds to nearest even; a carry moves into the exponent. */
	body = (uint64_t)nearbyint(ldexp(fabs(v), fraction_bits + 1 - exponent));
	body += (uint64_t)(exponent - 2 + bias) << fraction_bits;
	return signbit(v) ? body | 0x8000 : body;
}

static uint64_t narrow(coll_dtype type, double v)
{
	const float f = (float)v;
	uint64_t bits = 0;

	if (type == COLL_F16)
		return narrow_half(v, 10, 15);
	if (type == COLL_BF16)
		return narrow_half(v, 7, 127);
	if (type == COLL_F32)
		memcpy(&bits, &f, sizeof(f));
	else
		memcpy(&bits, &v, sizeof(v));
	return bits;
}

static uint64_t truncated(coll_dtype type, uint64_t v)
{
	const size_t bits = 8 * coll_dtype_size(type);

	return bits == 64 ? v : v & ((1ull << bits) - 1);
}

/* The value of an integer type, sign extended. */
static int64_t extended(coll_dtype type, uint64_t v)
{
	const int unused = 64 - 8 * (int)coll_dtype_size(type);

	return (int64_t)(v << unused) >> unused;
}

/* ---- Inputs ---- */

/* An integer in [-m, m]: sums over all ranks stay exact in the type. */
static double small_integer(coll_dtype type, int size, uint64_t h)
{
	uint64_t m = (1ull << precision(type)) / (uint64_t)size;

	if (m > 1 << 20)
		m = 1 << 20;
	if (m == 0)
		m = 1;
	return (double)((int64_t)(h % (2 * m + 1)) - (int64_t)m);
}

static double fraction(uint64_t h)
{
	return (double)(int64_t)h * 0x1p-63;
}

static double real_input(coll_dtype type, int op, int size, int rank, bool rounding, uint64_t h)
{
	const double sign = h >> 63 ? -1 : 1;

	switch (op) {
	case COLL_LAND:
	case COLL_LOR:
	case COLL_LXOR: return h & 1 ? sign * 1.5 : 0;
	case COLL_PROD:
		if (rank >= PROD_RANKS)
			return sign;
		return sign * (rounding ? 1 + fabs(fraction(h)) / 4 : ldexp(1, (int)(h % 3) - 1));
	default: return rounding ? fraction(h) : small_integer(type, size, h);
	}
}

static bool rounds_at(int op, uint32_t position)
{
	const bool arithmetic = op == COLL_SUM || op == COLL_PROD || op == COLL_AVG || op == PERF_MULSUM;

	return arithmetic && position % ROUNDING_PERIOD == ROUNDING_AT;
}

uint64_t perf_oracle_input(coll_dtype type, int op, int size, int rank, uint32_t position)
{
	const uint64_t h = mix(mix((uint64_t)rank + 1) + position);

	if (op < 0)
		return truncated(type, h);
	if (is_real(type))
		return narrow(type, real_input(type, op, size, rank, rounds_at(op, position), h));
	if (op == COLL_PROD)
		return truncated(type, h | 1); /* an even factor or two would leave only zeros */
	if (op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR)
		return h & 1 ? truncated(type, h) : 0;
	return truncated(type, h);
}

/* ---- Results ---- */

static uint64_t join_integers(coll_dtype type, int op, uint64_t a, uint64_t b)
{
	const bool is_signed = type == COLL_I8 || type == COLL_I16 || type == COLL_I32 || type == COLL_I64;
	const bool less = is_signed ? extended(type, a) < extended(type, b) : a < b;

	switch (op) {
	case COLL_PROD: return truncated(type, a * b);
	case COLL_MIN: return less ? a : b;
	case COLL_MAX: return less ? b : a;
	case COLL_BAND: return a & b;
	case COLL_BOR: return a | b;
	case COLL_BXOR: return a ^ b;
	case COLL_LAND: return a && b;
	case COLL_LOR: return a || b;
	case COLL_LXOR: return !a != !b;
	default: return truncated(type, a + b);
	}
}

static struct perf_expected integer_result(coll_dtype type, int op, int size, uint32_t position)
{
	const bool is_signed = type == COLL_I8 || type == COLL_I16 || type == COLL_I32 || type == COLL_I64;
	uint64_t v = perf_oracle_input(type, op, size, 0, position);

	if (size == 1 && (op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR))
		v = v != 0;
	for (int rank = 1; rank < size; rank++)
		v = join_integers(type, op, v, perf_oracle_input(type, op, size, rank, position));
	if (op == COLL_AVG)
		v = truncated(type, is_signed ? (uint64_t)(extended(type, v) / size) : v / (uint64_t)size);
	return (struct perf_expected){.bits = v, .tolerance = -1};
}

static long double join_reals(int op, long double a, long double b)
{
	switch (op) {
	case COLL_PROD: return a * b;
	case COLL_MIN: return a < b ? a : b;
	case COLL_MAX: return a < b ? b : a;
	case COLL_LAND: return a != 0 && b != 0;
	case COLL_LOR: return a != 0 || b != 0;
	case COLL_LXOR: return (a != 0) != (b != 0);
	default: return a + b;
	}
}

static struct perf_expected real_result(coll_dtype type, int op, int size, uint32_t position)
{
	const bool scaled = op == COLL_AVG || op == PERF_MULSUM, sums = scaled || op == COLL_SUM;
	const double u = ldexp(1, -precision(type));
	long double v = perf_oracle_widen(type, perf_oracle_input(type, op, size, 0, position));
	long double magnitude = fabsl(v);
	struct perf_expected e = {.tolerance = -1};

	if (size == 1 && (op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR))
		v = v != 0;
	for (int rank = 1; rank < size; rank++) {
		const double x = perf_oracle_widen(type, perf_oracle_input(type, op, size, rank, position));

		v = join_reals(op, v, x);
		magnitude += fabs(x);
	}
	if (op == COLL_PROD)
		magnitude = fabsl(v);
	if (op == COLL_AVG) {
		/* An exact sum is a double; one rounding then, as in f64 itself. */
		v = rounds_at(op, position) ? v / size : (long double)((double)v / size);
		magnitude /= size;
	}
	if (op == PERF_MULSUM) {
		v *= PERF_MULSUM_SCALE;
		magnitude *= PERF_MULSUM_SCALE;
	}
	e.value = (double)v;
	e.bits = narrow(type, e.value);
	/* Exact sums need room for the largest of them; a huge job has not got it. */
	if (rounds_at(op, position) || (sums && u * size > 1))
		e.tolerance =
		        (double)(size - 1 + scaled + 1) * u * (double)magnitude + (type == COLL_F16 ? 0x1p-24 : 0);
	return e;
}

struct perf_expected perf_oracle_result(coll_dtype type, int op, int size, uint32_t position)
{
	return is_real(type) ? real_result(type, op, size, position) : integer_result(type, op, size, position);
}
