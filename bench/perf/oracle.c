/*
 * The oracle: the input of every rank at a position, and what the reduction of
 * all ranks' inputs there must be. Independent of the library: its own conversions
 * and its own arithmetic (64-bit integers, long double).
 *
 * Integers are arbitrary bits and results exact. Of the floats, fifteen of
 * sixteen positions hold values whose sums and products are exact in the type in
 * any order (small integers; powers of two), so that a single flipped bit shows;
 * the sixteenth holds arbitrary fractions, whose result must be within
 * ((1 + u)^(r + 1) - 1) sum|x|: r roundings (one per further rank, one more for a
 * division or scaling), u the unit roundoff of the type. No product overflows or
 * underflows: only the first eight ranks contribute magnitudes other than one. And
 * where there are more ranks than the type counts exactly, only so many of them
 * contribute to the sum at a position, others at the next one.
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
	return type >= COLL_F16;
}

/* The fields of the floats of 8 and 16 bits. */
struct fields {
	int bits, fraction_bits, exponent_bits;
};

static bool fields_of(coll_dtype type, struct fields *f)
{
	switch (type) {
	case COLL_F16: *f = (struct fields){16, 10, 5}; return true;
	case COLL_BF16: *f = (struct fields){16, 7, 8}; return true;
	case COLL_F8E4M3: *f = (struct fields){8, 3, 4}; return true;
	case COLL_F8E5M2: *f = (struct fields){8, 2, 5}; return true;
	default: return false;
	}
}

/* Bits of the significand, the hidden one included. */
static int precision(coll_dtype type)
{
	struct fields f;

	return fields_of(type, &f) ? f.fraction_bits + 1 : type == COLL_F32 ? 24 : 53;
}

static int bias_of(const struct fields *f)
{
	return (1 << (f->exponent_bits - 1)) - 1;
}

/* ---- Conversions: by the definition of the formats ---- */

static double widen_small(coll_dtype type, const struct fields *f, uint64_t bits)
{
	const int fraction = (int)(bits & ((1u << f->fraction_bits) - 1));
	const int exponent = (int)(bits >> f->fraction_bits & ((1u << f->exponent_bits) - 1));
	const bool top = exponent == (1 << f->exponent_bits) - 1;
	double v;

	if (top && (type != COLL_F8E4M3 || fraction == 7)) /* e4m3: numbers there too, but one */
		v = fraction ? NAN : INFINITY;
	else if (exponent == 0)
		v = ldexp(fraction, 1 - bias_of(f) - f->fraction_bits);
	else
		v = ldexp((1 << f->fraction_bits) + fraction, exponent - bias_of(f) - f->fraction_bits);
	return bits >> (f->bits - 1) & 1 ? -v : v;
}

double perf_oracle_widen(coll_dtype type, uint64_t bits)
{
	struct fields fields;
	float f;
	double d;

	if (fields_of(type, &fields))
		return widen_small(type, &fields, bits);
	if (type == COLL_F32) {
		const uint32_t low = (uint32_t)bits;

		memcpy(&f, &low, sizeof(f));
		return f;
	}
	memcpy(&d, &bits, sizeof(d));
	return d;
}

/* Finite values within the range of the type: all that is needed here. */
static uint64_t narrow_small(const struct fields *f, double v)
{
	const int lowest = 2 - bias_of(f);
	uint64_t body;
	int exponent;

	if (v == 0)
		return 0;
	(void)frexp(v, &exponent);
	if (exponent < lowest) /* subnormal: fixed unit */
		exponent = lowest;
	/* nearbyint rounds to nearest even; a carry moves into the exponent. */
	body = (uint64_t)nearbyint(ldexp(fabs(v), f->fraction_bits + 1 - exponent));
	body += (uint64_t)(exponent - lowest) << f->fraction_bits;
	return signbit(v) ? body | 1ull << (f->bits - 1) : body;
}

static uint64_t narrow(coll_dtype type, double v)
{
	const float f = (float)v;
	struct fields fields;
	uint64_t bits = 0;

	if (fields_of(type, &fields))
		return narrow_small(&fields, v);
	if (type == COLL_F32)
		memcpy(&bits, &f, sizeof(f));
	else
		memcpy(&bits, &v, sizeof(v));
	return bits;
}

/* Half the distance of subnormal numbers: the most that rounding one of them moves it. */
static double least_error(coll_dtype type)
{
	struct fields f;

	return fields_of(type, &f) ? ldexp(1, -bias_of(&f) - f.fraction_bits) : 0;
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

/* An integer in [-m, m], or 0: sums over all ranks stay exact in the type. */
static double small_integer(coll_dtype type, int size, int rank, uint32_t position, uint64_t h)
{
	const uint64_t most = 1ull << precision(type);
	uint64_t m = most / (uint64_t)size;

	if (m > 1 << 20)
		m = 1 << 20;
	if (m == 0) {
		m = 1;
		if (((uint64_t)rank + position) % (uint64_t)size >= most)
			return 0;
	}
	return (double)((int64_t)(h % (2 * m + 1)) - (int64_t)m);
}

static double fraction(uint64_t h)
{
	return (double)(int64_t)h * 0x1p-63;
}

static double real_input(coll_dtype type, int op, int size, int rank, uint32_t position, bool rounding, uint64_t h)
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
	default: return rounding ? fraction(h) : small_integer(type, size, rank, position, h);
	}
}

/* Averages of narrow types are means of means: each is rounded. */
static bool rounds_at(coll_dtype type, int op, uint32_t position)
{
	const bool arithmetic = op == COLL_SUM || op == COLL_PROD || op == COLL_AVG || op == PERF_MULSUM;

	return arithmetic && (position % ROUNDING_PERIOD == ROUNDING_AT || (op == COLL_AVG && precision(type) < 24));
}

uint64_t perf_oracle_input(coll_dtype type, int op, int size, int rank, uint32_t position)
{
	const uint64_t h = mix(mix((uint64_t)rank + 1) + position);

	if (op < 0)
		return truncated(type, h);
	if (is_real(type))
		return narrow(type, real_input(type, op, size, rank, position, rounds_at(type, op, position), h));
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

static struct perf_expected integer_result(coll_dtype type, int op, int size, int ranks, uint32_t position)
{
	const bool is_signed = type == COLL_I8 || type == COLL_I16 || type == COLL_I32 || type == COLL_I64;
	uint64_t v = perf_oracle_input(type, op, size, 0, position);

	if (ranks == 1 && (op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR))
		v = v != 0;
	for (int rank = 1; rank < ranks; rank++)
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

static struct perf_expected real_result(coll_dtype type, int op, int size, int ranks, uint32_t position)
{
	const bool scaled = op == COLL_AVG || op == PERF_MULSUM;
	const double u = ldexp(1, -precision(type));
	long double v = perf_oracle_widen(type, perf_oracle_input(type, op, size, 0, position));
	long double magnitude = fabsl(v);
	struct perf_expected e = {.tolerance = -1};

	if (ranks == 1 && (op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR))
		v = v != 0;
	for (int rank = 1; rank < ranks; rank++) {
		const double x = perf_oracle_widen(type, perf_oracle_input(type, op, size, rank, position));

		v = join_reals(op, v, x);
		magnitude += fabs(x);
	}
	if (op == COLL_PROD)
		magnitude = fabsl(v);
	if (op == COLL_AVG) {
		/* An exact sum is a double; one rounding then, as in f64 itself. */
		v = rounds_at(type, op, position) ? v / size : (long double)((double)v / size);
		magnitude /= size;
	}
	if (op == PERF_MULSUM) {
		v *= PERF_MULSUM_SCALE;
		magnitude *= PERF_MULSUM_SCALE;
	}
	e.value = (double)v;
	e.bits = narrow(type, e.value);
	if (rounds_at(type, op, position))
		e.tolerance =
		        expm1((ranks + scaled) * log1p(u)) * (double)magnitude + (ranks + scaled) * least_error(type);
	return e;
}

struct perf_expected perf_oracle_result(coll_dtype type, int op, int size, int ranks, uint32_t position)
{
	return is_real(type) ? real_result(type, op, size, ranks, position)
	                     : integer_result(type, op, size, ranks, position);
}
