/*
 * Arithmetic on one element of each type: the meaning of every reduction.
 *
 * For each type T: T_v, the accumulator; T_load and T_store, which convert
 * between memory and accumulator (any alignment); and T_sum, T_prod, T_min,
 * T_max, T_band .. T_lxor, T_truth, T_div, T_scale, T_weigh on accumulators. Integers are
 * held unsigned, so that nothing overflows in the sense of C. f16, bf16 and the
 * 8-bit floats are held as float: converting in is exact, converting out rounds to
 * nearest even.
 * No function depends on the C library, on a half type of the compiler or on
 * the rounding of anything but single IEEE operations.
 */
#ifndef COLL_REDUCE_ELEMENT_H
#define COLL_REDUCE_ELEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Device kernels set it: their functions are of the device. */
#ifndef ELEMENT_INLINE
#define ELEMENT_INLINE static inline __attribute__((always_inline, unused))
#endif

/* ---- f16 and bf16 ---- */

ELEMENT_INLINE uint32_t f32_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

ELEMENT_INLINE float f32_from_bits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/*
 * binary16 to binary32, exact. Normal numbers: move the fields and rebias the
 * exponent by 127 - 15. Subnormal: the fraction counts units of 2^-24, so put it
 * below the exponent of 2^-14 (0x38800000) and subtract that.
 */
ELEMENT_INLINE float f16_to_f32(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	const uint32_t body = (uint32_t)(h & 0x7fff) << 13;
	const uint32_t exponent = body & 0x0f800000;
	uint32_t u;

	if (exponent == 0x0f800000) /* infinity or NaN, which becomes quiet */
		u = body + 0x70000000 + ((body & 0x007fe000) ? 0x00400000 & ~body : 0);
	else if (exponent != 0)
		u = body + 0x38000000;
	else
		u = f32_bits(f32_from_bits(body + 0x38800000) - f32_from_bits(0x38800000));
	return f32_from_bits(sign | u);
}

/*
 * binary32 to binary16, to nearest even. Too small for a normal half: add 0.5,
 * whose unit in the last place is 2^-24, the subnormal spacing, and let the
 * addition round. Otherwise add just under half a unit (plus the odd bit) and cut.
 */
ELEMENT_INLINE uint16_t f16_from_f32(float f)
{
	const uint32_t bits = f32_bits(f);
	const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	const uint32_t u = bits & 0x7fffffff;

	if (u > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x1ff));
	if (u >= 0x477ff000) /* 65520, halfway from 65504 to 65536, and above */
		return sign | 0x7c00;
	if (u < 0x38800000)
		return (uint16_t)(sign | (f32_bits(f32_from_bits(u) + 0.5f) - 0x3f000000));
	return (uint16_t)(sign | ((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13));
}

ELEMENT_INLINE float bf16_to_f32(uint16_t h)
{
	return f32_from_bits((uint32_t)h << 16);
}

ELEMENT_INLINE uint16_t bf16_from_f32(float f)
{
	const uint32_t u = f32_bits(f);

	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x0040);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* ---- 8-bit floats: OCP OFP8, February 2023 ---- */

/*
 * f8e5m2 is the upper half of an f16. f8e4m3 has no infinity, and one NaN of each
 * sign, 0x7f. largest: what overflow gives, which is what a cast of PyTorch gives
 * since its release 2.12: infinity, or the largest finite number (448).
 */
enum {
	f8e4m3_fraction_bits = 3,
	f8e4m3_bias = 7,
	f8e4m3_largest = 0x7e,
	f8e5m2_fraction_bits = 2,
	f8e5m2_bias = 15,
	f8e5m2_largest = 0x7c
};

/* The fields of f8e4m3 in those of an f16 make 2^-8 of the value: 7 - 15 in the exponent. */
ELEMENT_INLINE float f8e4m3_to_f32(uint8_t b)
{
	const uint16_t nan = (b & 0x7f) == 0x7f ? 0x7c00 : 0;

	return 256 * f16_to_f32((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7 | nan));
}

ELEMENT_INLINE float f8e5m2_to_f32(uint8_t b)
{
	return f16_to_f32((uint16_t)(b << 8));
}

/* The constants of rounding an f32 of a sign cut off: subtracted from a normal number; the
 * smallest normal number; a number whose unit in the last place is the subnormal spacing. */
#define F8_REBIAS(T)  ((uint32_t)(127 - T##_bias) << 23)
#define F8_NORMAL(T)  ((uint32_t)(128 - T##_bias) << 23)
#define F8_SPACING(T) ((uint32_t)(151 - T##_bias - T##_fraction_bits) << 23)

/* binary32 to T, as f16_from_f32() does it. */
#define ELEMENT_F8_ROUND(T)                                                                            \
	ELEMENT_INLINE uint8_t T##_from_f32(float f)                                                   \
	{                                                                                              \
		const int shift = 23 - T##_fraction_bits;                                              \
		const uint32_t bits = f32_bits(f), u = bits & 0x7fffffff;                              \
		uint32_t r;                                                                            \
                                                                                                       \
		if (u > 0x7f800000)                                                                    \
			return (uint8_t)(bits >> 24 | 0x7f);                                           \
		if (u < F8_NORMAL(T))                                                                  \
			r = f32_bits(f32_from_bits(u) + f32_from_bits(F8_SPACING(T))) - F8_SPACING(T); \
		else                                                                                   \
			r = (u - F8_REBIAS(T) + (1u << (shift - 1)) - 1 + (u >> shift & 1)) >> shift;  \
		return (uint8_t)((bits >> 24 & 0x80) | (r < T##_largest ? r : T##_largest));           \
	}
ELEMENT_F8_ROUND(f8e4m3)
ELEMENT_F8_ROUND(f8e5m2)

/* ---- Integers: T is the name, S the type, U its unsigned companion ---- */

/* W is unsigned and at least as wide as unsigned int, for products. */
#define ELEMENT_INTEGER(T, S, U, W)                 \
	typedef U T##_v;                            \
	enum { T##_bytes = sizeof(S) };             \
	ELEMENT_INLINE U T##_load(const char *p)    \
	{                                           \
		U v;                                \
		memcpy(&v, p, sizeof(v));           \
		return v;                           \
	}                                           \
	ELEMENT_INLINE void T##_store(char *p, U v) \
	{                                           \
		memcpy(p, &v, sizeof(v));           \
	}                                           \
	ELEMENT_INLINE U T##_sum(U a, U b)          \
	{                                           \
		return (U)((W)a + (W)b);            \
	}                                           \
	ELEMENT_INLINE U T##_prod(U a, U b)         \
	{                                           \
		return (U)((W)a * (W)b);            \
	}                                           \
	ELEMENT_INLINE U T##_min(U a, U b)          \
	{                                           \
		return (S)a < (S)b ? a : b;         \
	}                                           \
	ELEMENT_INLINE U T##_max(U a, U b)          \
	{                                           \
		return (S)a > (S)b ? a : b;         \
	}                                           \
	ELEMENT_INLINE U T##_band(U a, U b)         \
	{                                           \
		return a & b;                       \
	}                                           \
	ELEMENT_INLINE U T##_bor(U a, U b)          \
	{                                           \
		return a | b;                       \
	}                                           \
	ELEMENT_INLINE U T##_bxor(U a, U b)         \
	{                                           \
		return a ^ b;                       \
	}                                           \
	ELEMENT_INLINE U T##_truth(U a)             \
	{                                           \
		return a != 0;                      \
	}                                           \
	ELEMENT_INLINE U T##_land(U a, U b)         \
	{                                           \
		return (a != 0) & (b != 0);         \
	}                                           \
	ELEMENT_INLINE U T##_lor(U a, U b)          \
	{                                           \
		return (a | b) != 0;                \
	}                                           \
	ELEMENT_INLINE U T##_lxor(U a, U b)         \
	{                                           \
		return (a != 0) ^ (b != 0);         \
	}

/* C's division truncates toward zero; the divisor is a rank count, so it fits. */
#define ELEMENT_SIGNED(T, S, U, W)                            \
	ELEMENT_INTEGER(T, S, U, W)                           \
	ELEMENT_INLINE U T##_div(U a, uint64_t divisor)       \
	{                                                     \
		return (U)((int64_t)(S)a / (int64_t)divisor); \
	}
#define ELEMENT_UNSIGNED(T, U, W)                       \
	ELEMENT_INTEGER(T, U, U, W)                     \
	ELEMENT_INLINE U T##_div(U a, uint64_t divisor) \
	{                                               \
		return (U)(a / divisor);                \
	}

/* ---- Floats: F is the accumulator ---- */

/*
 * IEEE 754-2019 minimum and maximum. An unordered pair gives a quiet NaN (its
 * sum is one). Equal operands differ at most in the sign of zero; the sign bit of the
 * result is the disjunction (minimum) or conjunction (maximum) of theirs.
 */
#define ELEMENT_FLOAT(T, F, U)                                                            \
	typedef F T##_v;                                                                  \
	ELEMENT_INLINE F T##_bits_op(F a, F b, bool both)                                 \
	{                                                                                 \
		U x, y;                                                                   \
		memcpy(&x, &a, sizeof(x));                                                \
		memcpy(&y, &b, sizeof(y));                                                \
		x = both ? x & y : x | y;                                                 \
		memcpy(&a, &x, sizeof(a));                                                \
		return a;                                                                 \
	}                                                                                 \
	ELEMENT_INLINE F T##_sum(F a, F b)                                                \
	{                                                                                 \
		return a + b;                                                             \
	}                                                                                 \
	ELEMENT_INLINE F T##_prod(F a, F b)                                               \
	{                                                                                 \
		return a * b;                                                             \
	}                                                                                 \
	ELEMENT_INLINE F T##_min(F a, F b)                                                \
	{                                                                                 \
		return a < b ? a : b < a ? b : a == b ? T##_bits_op(a, b, false) : a + b; \
	}                                                                                 \
	ELEMENT_INLINE F T##_max(F a, F b)                                                \
	{                                                                                 \
		return a > b ? a : b > a ? b : a == b ? T##_bits_op(a, b, true) : a + b;  \
	}                                                                                 \
	ELEMENT_INLINE F T##_truth(F a)                                                   \
	{                                                                                 \
		return a != 0;                                                            \
	}                                                                                 \
	ELEMENT_INLINE F T##_land(F a, F b)                                               \
	{                                                                                 \
		return (a != 0) & (b != 0);                                               \
	}                                                                                 \
	ELEMENT_INLINE F T##_lor(F a, F b)                                                \
	{                                                                                 \
		return (a != 0) | (b != 0);                                               \
	}                                                                                 \
	ELEMENT_INLINE F T##_lxor(F a, F b)                                               \
	{                                                                                 \
		return (a != 0) ^ (b != 0);                                               \
	}                                                                                 \
	ELEMENT_INLINE F T##_div(F a, uint64_t divisor)                                   \
	{                                                                                 \
		return a / (F)divisor;                                                    \
	}

/* A scaled contribution is an element again: it is rounded like one, so that it is the same here and where it has
 * travelled. */
#define ELEMENT_SCALE(T)                                           \
	ELEMENT_INLINE float T##_scale(float a, double scale)      \
	{                                                          \
		return T##_to_f32(T##_from_f32((float)scale * a)); \
	}                                                          \
	ELEMENT_INLINE float T##_weigh(float a, float share)       \
	{                                                          \
		return share * a;                                  \
	}

/* Logic on vectors V of floats: T_nonzero says which elements are true, AND, OR and XOR join
 * such, T_ones makes numbers of them. */
#define ELEMENT_LOGIC(T, V, AND, OR, XOR)                             \
	ELEMENT_INLINE V T##_truth(V a)                               \
	{                                                             \
		return T##_ones(T##_nonzero(a));                      \
	}                                                             \
	ELEMENT_INLINE V T##_land(V a, V b)                           \
	{                                                             \
		return T##_ones(AND(T##_nonzero(a), T##_nonzero(b))); \
	}                                                             \
	ELEMENT_INLINE V T##_lor(V a, V b)                            \
	{                                                             \
		return T##_ones(OR(T##_nonzero(a), T##_nonzero(b)));  \
	}                                                             \
	ELEMENT_INLINE V T##_lxor(V a, V b)                           \
	{                                                             \
		return T##_ones(XOR(T##_nonzero(a), T##_nonzero(b))); \
	}

#define ELEMENT_WIDE(T, F)                            \
	ELEMENT_INLINE F T##_scale(F a, double scale) \
	{                                             \
		return (F)scale * a;                  \
	}                                             \
	enum { T##_bytes = sizeof(F) };               \
	ELEMENT_INLINE F T##_load(const char *p)      \
	{                                             \
		F v;                                  \
		memcpy(&v, p, sizeof(v));             \
		return v;                             \
	}                                             \
	ELEMENT_INLINE void T##_store(char *p, F v)   \
	{                                             \
		memcpy(p, &v, sizeof(v));             \
	}

#define ELEMENT_HALF(T)                                 \
	ELEMENT_SCALE(T)                                \
	enum { T##_bytes = 2 };                         \
	ELEMENT_INLINE float T##_load(const char *p)    \
	{                                               \
		uint16_t h;                             \
		memcpy(&h, p, sizeof(h));               \
		return T##_to_f32(h);                   \
	}                                               \
	ELEMENT_INLINE void T##_store(char *p, float v) \
	{                                               \
		uint16_t h = T##_from_f32(v);           \
		memcpy(p, &h, sizeof(h));               \
	}

#define ELEMENT_F8(T)                                   \
	ELEMENT_SCALE(T)                                \
	enum { T##_bytes = 1 };                         \
	ELEMENT_INLINE float T##_load(const char *p)    \
	{                                               \
		return T##_to_f32((uint8_t)*p);         \
	}                                               \
	ELEMENT_INLINE void T##_store(char *p, float v) \
	{                                               \
		*p = (char)T##_from_f32(v);             \
	}

#endif
