/*
 * The AVX-512 level (F, BW, DQ, VL and F16C): 64-byte vectors, masked tails.
 *
 * Bit-equal to the scalar level. bf16 is converted with integer instructions, not
 * with those of AVX512_BF16, which flush denormals. Division of 64-bit integers
 * has no vector form and goes lane by lane.
 */
#include <immintrin.h>

#include "reduce/element.h"

/* Bits 0 .. n-1. */
#define FIRST(n) _bzhi_u64(~0ull, (unsigned)(n))

/* ---- Integers ---- */

/* E: element width in bits; A: epi or epu, for ordering. */
#define INTEGER_MEMORY(T, S, E, A)                                         \
	typedef __m512i T##_v;                                             \
	enum { T##_bytes = E / 8, T##_lanes = 512 / E };                   \
	ELEMENT_INLINE T##_v T##_load(const char *p)                       \
	{                                                                  \
		return _mm512_loadu_si512(p);                              \
	}                                                                  \
	ELEMENT_INLINE void T##_store(char *p, T##_v v)                    \
	{                                                                  \
		_mm512_storeu_si512(p, v);                                 \
	}                                                                  \
	ELEMENT_INLINE void T##_stream(char *p, T##_v v)                   \
	{                                                                  \
		_mm512_stream_si512((void *)p, v);                         \
	}                                                                  \
	ELEMENT_INLINE T##_v T##_load_some(const char *p, size_t n)        \
	{                                                                  \
		return _mm512_maskz_loadu_epi##E((__mmask##T)FIRST(n), p); \
	}                                                                  \
	ELEMENT_INLINE void T##_store_some(char *p, T##_v v, size_t n)     \
	{                                                                  \
		_mm512_mask_storeu_epi##E(p, (__mmask##T)FIRST(n), v);     \
	}

#define INTEGER_ARITHMETIC(T, S, E, A)                  \
	ELEMENT_INLINE T##_v T##_sum(T##_v a, T##_v b)  \
	{                                               \
		return _mm512_add_epi##E(a, b);         \
	}                                               \
	ELEMENT_INLINE T##_v T##_prod(T##_v a, T##_v b) \
	{                                               \
		return prod##E(a, b);                   \
	}                                               \
	ELEMENT_INLINE T##_v T##_min(T##_v a, T##_v b)  \
	{                                               \
		return _mm512_min_##A##E(a, b);         \
	}                                               \
	ELEMENT_INLINE T##_v T##_max(T##_v a, T##_v b)  \
	{                                               \
		return _mm512_max_##A##E(a, b);         \
	}

#define INTEGER_LOGIC(T, S, E, A)                                         \
	ELEMENT_INLINE T##_v T##_band(T##_v a, T##_v b)                   \
	{                                                                 \
		return _mm512_and_si512(a, b);                            \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_bor(T##_v a, T##_v b)                    \
	{                                                                 \
		return _mm512_or_si512(a, b);                             \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_bxor(T##_v a, T##_v b)                   \
	{                                                                 \
		return _mm512_xor_si512(a, b);                            \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_ones(__mmask##T m)                       \
	{                                                                 \
		return _mm512_maskz_mov_epi##E(m, _mm512_set1_epi##E(1)); \
	}                                                                 \
	ELEMENT_INLINE __mmask##T T##_nonzero(T##_v a)                    \
	{                                                                 \
		return _mm512_test_epi##E##_mask(a, a);                   \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_truth(T##_v a)                           \
	{                                                                 \
		return T##_ones(T##_nonzero(a));                          \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_land(T##_v a, T##_v b)                   \
	{                                                                 \
		return T##_ones(T##_nonzero(a) & T##_nonzero(b));         \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_lor(T##_v a, T##_v b)                    \
	{                                                                 \
		return T##_truth(_mm512_or_si512(a, b));                  \
	}                                                                 \
	ELEMENT_INLINE T##_v T##_lxor(T##_v a, T##_v b)                   \
	{                                                                 \
		return T##_ones(T##_nonzero(a) ^ T##_nonzero(b));         \
	}

#define VECTOR_INTEGER(T, S, E, A)     \
	INTEGER_MEMORY(T, S, E, A)     \
	INTEGER_ARITHMETIC(T, S, E, A) \
	INTEGER_LOGIC(T, S, E, A)

typedef __mmask64 __mmaski8, __mmasku8;
typedef __mmask32 __mmaski16, __mmasku16;
typedef __mmask16 __mmaski32, __mmasku32;
typedef __mmask8 __mmaski64, __mmasku64;

/* Bytes: even ones in 16-bit lanes, odd ones in the upper halves. */
ELEMENT_INLINE __m512i prod8(__m512i a, __m512i b)
{
	const __m512i low = _mm512_set1_epi16(0x00ff);
	const __m512i even = _mm512_and_si512(_mm512_mullo_epi16(a, b), low);
	const __m512i odd = _mm512_mullo_epi16(_mm512_srli_epi16(a, 8), _mm512_andnot_si512(low, b));

	return _mm512_or_si512(even, odd);
}
#define prod16(a, b) _mm512_mullo_epi16(a, b)
#define prod32(a, b) _mm512_mullo_epi32(a, b)
#define prod64(a, b) _mm512_mullo_epi64(a, b)

VECTOR_INTEGER(i8, int8_t, 8, epi)
VECTOR_INTEGER(u8, uint8_t, 8, epu)
VECTOR_INTEGER(i16, int16_t, 16, epi)
VECTOR_INTEGER(u16, uint16_t, 16, epu)
VECTOR_INTEGER(i32, int32_t, 32, epi)
VECTOR_INTEGER(u32, uint32_t, 32, epu)
VECTOR_INTEGER(i64, int64_t, 64, epi)
VECTOR_INTEGER(u64, uint64_t, 64, epu)

/*
 * Truncating division through floating point is exact when the dividend has
 * fewer bits than the significand: a quotient that is not an integer is at least
 * 1/divisor away from the next one, more than the rounding error. 8 and 16 bits go
 * through f32, 32 bits through f64.
 */
ELEMENT_INLINE __m512i quotient32(__m512i a, uint64_t divisor)
{
	return _mm512_cvttps_epi32(_mm512_div_ps(_mm512_cvtepi32_ps(a), _mm512_set1_ps((float)divisor)));
}

#define HALF(a, k) _mm512_extracti64x4_epi64(a, k)
#define JOIN(a, b) _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1)

ELEMENT_INLINE __m512i i16_div(__m512i a, uint64_t d)
{
	const __m256i q0 = _mm512_cvtepi32_epi16(quotient32(_mm512_cvtepi16_epi32(HALF(a, 0)), d));
	const __m256i q1 = _mm512_cvtepi32_epi16(quotient32(_mm512_cvtepi16_epi32(HALF(a, 1)), d));

	return JOIN(q0, q1);
}

ELEMENT_INLINE __m512i u16_div(__m512i a, uint64_t d)
{
	const __m256i q0 = _mm512_cvtepi32_epi16(quotient32(_mm512_cvtepu16_epi32(HALF(a, 0)), d));
	const __m256i q1 = _mm512_cvtepi32_epi16(quotient32(_mm512_cvtepu16_epi32(HALF(a, 1)), d));

	return JOIN(q0, q1);
}

#define QUARTER(a, k) _mm512_extracti32x4_epi32(a, k)

ELEMENT_INLINE __m512i of_quarters(__m128i q0, __m128i q1, __m128i q2, __m128i q3)
{
	__m512i v = _mm512_castsi128_si512(q0);

	v = _mm512_inserti32x4(v, q1, 1);
	v = _mm512_inserti32x4(v, q2, 2);
	return _mm512_inserti32x4(v, q3, 3);
}

ELEMENT_INLINE __m128i i8_quarter(__m128i a, uint64_t d)
{
	return _mm512_cvtepi32_epi8(quotient32(_mm512_cvtepi8_epi32(a), d));
}

ELEMENT_INLINE __m512i i8_div(__m512i a, uint64_t d)
{
	return of_quarters(i8_quarter(QUARTER(a, 0), d), i8_quarter(QUARTER(a, 1), d), i8_quarter(QUARTER(a, 2), d),
	                   i8_quarter(QUARTER(a, 3), d));
}

ELEMENT_INLINE __m128i u8_quarter(__m128i a, uint64_t d)
{
	return _mm512_cvtepi32_epi8(quotient32(_mm512_cvtepu8_epi32(a), d));
}

ELEMENT_INLINE __m512i u8_div(__m512i a, uint64_t d)
{
	return of_quarters(u8_quarter(QUARTER(a, 0), d), u8_quarter(QUARTER(a, 1), d), u8_quarter(QUARTER(a, 2), d),
	                   u8_quarter(QUARTER(a, 3), d));
}

ELEMENT_INLINE __m512i i32_div(__m512i a, uint64_t d)
{
	const __m512d divisor = _mm512_set1_pd((double)d);
	const __m512d q0 = _mm512_div_pd(_mm512_cvtepi32_pd(HALF(a, 0)), divisor);
	const __m512d q1 = _mm512_div_pd(_mm512_cvtepi32_pd(HALF(a, 1)), divisor);

	return JOIN(_mm512_cvttpd_epi32(q0), _mm512_cvttpd_epi32(q1));
}

ELEMENT_INLINE __m512i u32_div(__m512i a, uint64_t d)
{
	const __m512d divisor = _mm512_set1_pd((double)d);
	const __m512d q0 = _mm512_div_pd(_mm512_cvtepu32_pd(HALF(a, 0)), divisor);
	const __m512d q1 = _mm512_div_pd(_mm512_cvtepu32_pd(HALF(a, 1)), divisor);

	return JOIN(_mm512_cvttpd_epu32(q0), _mm512_cvttpd_epu32(q1));
}

/* The machine has no vector form of these: the compiler takes the lanes apart. */
ELEMENT_INLINE __m512i i64_div(__m512i a, uint64_t d)
{
	typedef int64_t lanes __attribute__((vector_size(sizeof(__m512i))));

	return (__m512i)((lanes)a / (int64_t)d);
}

ELEMENT_INLINE __m512i u64_div(__m512i a, uint64_t d)
{
	typedef uint64_t lanes __attribute__((vector_size(sizeof(__m512i))));

	return (__m512i)((lanes)a / (uint64_t)d);
}

/* ---- Floats: operations on f32 and f64 accumulators ---- */

/*
 * vrange orders zeros by sign but prefers the number to a NaN, so unordered lanes
 * are replaced by the sum. Control: bits 1:0 minimum or maximum, bit 2 the sign of
 * the chosen operand.
 */
#define FLOAT_ARITHMETIC(T, V, P, M, F)                                                                             \
	typedef V T##_v;                                                                                            \
	ELEMENT_INLINE V T##_sum(V a, V b)                                                                          \
	{                                                                                                           \
		return _mm512_add_##P(a, b);                                                                        \
	}                                                                                                           \
	ELEMENT_INLINE V T##_prod(V a, V b)                                                                         \
	{                                                                                                           \
		return _mm512_mul_##P(a, b);                                                                        \
	}                                                                                                           \
	ELEMENT_INLINE V T##_min(V a, V b)                                                                          \
	{                                                                                                           \
		return _mm512_mask_add_##P(_mm512_range_##P(a, b, 4), _mm512_cmp_##P##_mask(a, b, _CMP_UNORD_Q), a, \
		                           b);                                                                      \
	}                                                                                                           \
	ELEMENT_INLINE V T##_max(V a, V b)                                                                          \
	{                                                                                                           \
		return _mm512_mask_add_##P(_mm512_range_##P(a, b, 5), _mm512_cmp_##P##_mask(a, b, _CMP_UNORD_Q), a, \
		                           b);                                                                      \
	}                                                                                                           \
	ELEMENT_INLINE V T##_div(V a, uint64_t divisor)                                                             \
	{                                                                                                           \
		return _mm512_div_##P(a, _mm512_set1_##P((F)divisor));                                              \
	}

#define MASK_AND(a, b) ((a) & (b))
#define MASK_OR(a, b)  ((a) | (b))
#define MASK_XOR(a, b) ((a) ^ (b))
#define FLOAT_LOGIC(T, V, P, M, F)                                                  \
	ELEMENT_INLINE M T##_nonzero(V a)                                           \
	{                                                                           \
		return _mm512_cmp_##P##_mask(a, _mm512_setzero_##P(), _CMP_NEQ_UQ); \
	}                                                                           \
	ELEMENT_INLINE V T##_ones(M m)                                              \
	{                                                                           \
		return _mm512_maskz_mov_##P(m, _mm512_set1_##P(1));                 \
	}                                                                           \
	ELEMENT_LOGIC(T, V, MASK_AND, MASK_OR, MASK_XOR)

#define VECTOR_FLOAT(T, V, P, M, F)     \
	FLOAT_ARITHMETIC(T, V, P, M, F) \
	FLOAT_LOGIC(T, V, P, M, F)

VECTOR_FLOAT(f16, __m512, ps, __mmask16, float)
VECTOR_FLOAT(f8e4m3, __m512, ps, __mmask16, float)
VECTOR_FLOAT(f8e5m2, __m512, ps, __mmask16, float)
VECTOR_FLOAT(f32, __m512, ps, __mmask16, float)
VECTOR_FLOAT(f64, __m512d, pd, __mmask8, double)

/* ---- Floats: memory ---- */

#define VECTOR_WIDE(T, V, P, M, F)                                   \
	ELEMENT_INLINE V T##_scale(V a, double scale)                \
	{                                                            \
		return _mm512_mul_##P(_mm512_set1_##P((F)scale), a); \
	}                                                            \
	enum { T##_bytes = sizeof(F), T##_lanes = 64 / sizeof(F) };  \
	ELEMENT_INLINE V T##_load(const char *p)                     \
	{                                                            \
		return _mm512_loadu_##P(p);                          \
	}                                                            \
	ELEMENT_INLINE void T##_store(char *p, V v)                  \
	{                                                            \
		_mm512_storeu_##P(p, v);                             \
	}                                                            \
	ELEMENT_INLINE void T##_stream(char *p, V v)                 \
	{                                                            \
		_mm512_stream_##P((F *)(void *)p, v);                \
	}                                                            \
	ELEMENT_INLINE V T##_load_some(const char *p, size_t n)      \
	{                                                            \
		return _mm512_maskz_loadu_##P((M)FIRST(n), p);       \
	}                                                            \
	ELEMENT_INLINE void T##_store_some(char *p, V v, size_t n)   \
	{                                                            \
		_mm512_mask_storeu_##P(p, (M)FIRST(n), v);           \
	}

VECTOR_WIDE(f32, __m512, ps, __mmask16, float)
VECTOR_WIDE(f64, __m512d, pd, __mmask8, double)

ELEMENT_INLINE __m512 widen_f16(__m256i h)
{
	return _mm512_cvtph_ps(h);
}

ELEMENT_INLINE __m256i narrow_f16(__m512 v)
{
	return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#define VECTOR_HALF(T)                                                              \
	ELEMENT_INLINE __m512 T##_scale(__m512 a, double scale)                     \
	{                                                                           \
		return widen_##T(narrow_##T(f32_scale(a, scale)));                  \
	}                                                                           \
	enum { T##_bytes = 2, T##_lanes = 16 };                                     \
	ELEMENT_INLINE __m512 T##_weigh(__m512 a, float share)                      \
	{                                                                           \
		return f32_scale(a, (double)share);                                 \
	}                                                                           \
	ELEMENT_INLINE __m512 T##_load(const char *p)                               \
	{                                                                           \
		return widen_##T(_mm256_loadu_si256((const void *)p));              \
	}                                                                           \
	ELEMENT_INLINE void T##_store(char *p, __m512 v)                            \
	{                                                                           \
		_mm256_storeu_si256((void *)p, narrow_##T(v));                      \
	}                                                                           \
	ELEMENT_INLINE void T##_stream(char *p, __m512 v)                           \
	{                                                                           \
		_mm256_stream_si256((void *)p, narrow_##T(v));                      \
	}                                                                           \
	ELEMENT_INLINE __m512 T##_load_some(const char *p, size_t n)                \
	{                                                                           \
		return widen_##T(_mm256_maskz_loadu_epi16((__mmask16)FIRST(n), p)); \
	}                                                                           \
	ELEMENT_INLINE void T##_store_some(char *p, __m512 v, size_t n)             \
	{                                                                           \
		_mm256_mask_storeu_epi16(p, (__mmask16)FIRST(n), narrow_##T(v));    \
	}
VECTOR_HALF(f16)

/* ---- bf16 ---- */

#include "reduce/bf16_pair.h"

/* Add just under half a unit plus the odd bit: the upper half is the result. NaNs
 * stay NaNs. */
ELEMENT_INLINE __m512i bf16_round(__m512 v)
{
	const __m512i u = _mm512_castps_si512(v);
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
	const __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
	const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

	return _mm512_mask_or_epi32(r, nan, u, _mm512_set1_epi32(0x00400000));
}

ELEMENT_INLINE bf16_v bf16_widen(__m512i h)
{
	const __m512i upper = _mm512_set1_epi32((int)0xffff0000);

	return (bf16_v){_mm512_castsi512_ps(_mm512_slli_epi32(h, 16)), _mm512_castsi512_ps(_mm512_and_si512(h, upper))};
}

ELEMENT_INLINE __m512i bf16_narrow(bf16_v v)
{
	return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(bf16_round(v.even), 16), bf16_round(v.odd));
}

ELEMENT_INLINE bf16_v bf16_scale(bf16_v a, double scale)
{
	return bf16_widen(bf16_narrow((bf16_v){f32_scale(a.even, scale), f32_scale(a.odd, scale)}));
}

enum { bf16_bytes = 2, bf16_lanes = 32 };
ELEMENT_INLINE bf16_v bf16_load(const char *p)
{
	return bf16_widen(_mm512_loadu_si512(p));
}

ELEMENT_INLINE void bf16_store(char *p, bf16_v v)
{
	_mm512_storeu_si512(p, bf16_narrow(v));
}

ELEMENT_INLINE void bf16_stream(char *p, bf16_v v)
{
	_mm512_stream_si512((void *)p, bf16_narrow(v));
}

ELEMENT_INLINE bf16_v bf16_load_some(const char *p, size_t n)
{
	return bf16_widen(_mm512_maskz_loadu_epi16((__mmask32)FIRST(n), p));
}

ELEMENT_INLINE void bf16_store_some(char *p, bf16_v v, size_t n)
{
	_mm512_mask_storeu_epi16(p, (__mmask32)FIRST(n), bf16_narrow(v));
}

/* ---- 8-bit floats ---- */

/* As in element.h: in through f16, out by rounding the f32. */
ELEMENT_INLINE __m512 widen_f8e4m3(__m128i b)
{
	const __m256i h = _mm256_slli_epi16(_mm256_cvtepi8_epi16(b), 7);
	const __m256i half = _mm256_and_si256(h, _mm256_set1_epi16((short)0xbf80));
	const __mmask16 is_nan = _mm_cmpeq_epi8_mask(_mm_or_si128(b, _mm_set1_epi8((char)0x80)), _mm_set1_epi8(-1));
	const __m256i nan = _mm256_maskz_set1_epi16(is_nan, 0x7c00);

	return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, nan)), _mm512_set1_ps(256));
}

ELEMENT_INLINE __m512 widen_f8e5m2(__m128i b)
{
	return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(b), 8));
}

ELEMENT_INLINE __m128i narrow_f8(__m512 v, int fraction_bits, uint32_t rebias, uint32_t normal, uint32_t spacing,
                                 int largest)
{
	const unsigned shift = 23 - (unsigned)fraction_bits;
	const __m512i bits = _mm512_castps_si512(v), u = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
	const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, shift), _mm512_set1_epi32(1));
	const __m512i added = _mm512_add_epi32(odd, _mm512_set1_epi32((1 << (shift - 1)) - 1 - (int)rebias));
	const __m512i unit = _mm512_set1_epi32((int)spacing);
	const __m512 moved = _mm512_add_ps(_mm512_castsi512_ps(u), _mm512_castsi512_ps(unit));
	const __mmask16 small = _mm512_cmplt_epu32_mask(u, _mm512_set1_epi32((int)normal));
	const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
	__m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, added), shift);

	r = _mm512_mask_sub_epi32(r, small, _mm512_castps_si512(moved), unit);
	r = _mm512_min_epu32(r, _mm512_set1_epi32(largest));
	r = _mm512_mask_mov_epi32(r, nan, _mm512_set1_epi32(0x7f));
	r = _mm512_or_si512(r, _mm512_and_si512(_mm512_srli_epi32(bits, 24), _mm512_set1_epi32(0x80)));
	return _mm512_cvtepi32_epi8(r);
}

#define VECTOR_F8(T)                                                                                            \
	enum { T##_bytes = 1, T##_lanes = 16 };                                                                 \
	ELEMENT_INLINE __m128i narrow_##T(__m512 v)                                                             \
	{                                                                                                       \
		return narrow_f8(v, T##_fraction_bits, F8_REBIAS(T), F8_NORMAL(T), F8_SPACING(T), T##_largest); \
	}                                                                                                       \
	ELEMENT_INLINE __m512 T##_scale(__m512 a, double scale)                                                 \
	{                                                                                                       \
		return widen_##T(narrow_##T(f32_scale(a, scale)));                                              \
	}                                                                                                       \
	ELEMENT_INLINE __m512 T##_weigh(__m512 a, float share)                                                  \
	{                                                                                                       \
		return f32_scale(a, (double)share);                                                             \
	}                                                                                                       \
	ELEMENT_INLINE __m512 T##_load(const char *p)                                                           \
	{                                                                                                       \
		return widen_##T(_mm_loadu_si128((const void *)p));                                             \
	}                                                                                                       \
	ELEMENT_INLINE void T##_store(char *p, __m512 v)                                                        \
	{                                                                                                       \
		_mm_storeu_si128((void *)p, narrow_##T(v));                                                     \
	}                                                                                                       \
	ELEMENT_INLINE void T##_stream(char *p, __m512 v)                                                       \
	{                                                                                                       \
		_mm_stream_si128((void *)p, narrow_##T(v));                                                     \
	}                                                                                                       \
	ELEMENT_INLINE __m512 T##_load_some(const char *p, size_t n)                                            \
	{                                                                                                       \
		return widen_##T(_mm_maskz_loadu_epi8((__mmask16)FIRST(n), p));                                 \
	}                                                                                                       \
	ELEMENT_INLINE void T##_store_some(char *p, __m512 v, size_t n)                                         \
	{                                                                                                       \
		_mm_mask_storeu_epi8(p, (__mmask16)FIRST(n), narrow_##T(v));                                    \
	}
VECTOR_F8(f8e4m3)
VECTOR_F8(f8e5m2)

#define UNROLL  4
#define SPREADS 1
#define KERNEL_INDEPENDENT
#define COLL_REDUCE_TABLE        coll_reduce_avx512
#define COLL_REDUCE_SPREAD_TABLE coll_reduce_avx512_spread
#include "level.h"
