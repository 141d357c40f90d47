/*
 * The AVX2 level (with F16C): 32-byte vectors.
 *
 * Bit-equal to the scalar level. There are no masked loads of 1- and 2-byte
 * elements here: their tails go through a buffer on the stack. Division of 32-bit unsigned
 * and of 64-bit integers goes lane by lane.
 */
#include <immintrin.h>

#include "reduce/element.h"

ELEMENT_INLINE __m256i load(const char *p)
{
	return _mm256_loadu_si256((const void *)p);
}

ELEMENT_INLINE void store(char *p, __m256i v)
{
	_mm256_storeu_si256((void *)p, v);
}

/* p at a multiple of 32. */
ELEMENT_INLINE void stream(char *p, __m256i v)
{
	_mm256_stream_si256((void *)p, v);
}

ELEMENT_INLINE __m256i load_some(const char *p, size_t bytes)
{
	char buf[32] = {0};

	memcpy(buf, p, bytes);
	return load(buf);
}

ELEMENT_INLINE void store_some(char *p, __m256i v, size_t bytes)
{
	char buf[32];

	store(buf, v);
	memcpy(p, buf, bytes);
}

/* Elements of 4 and 8 bytes have masked forms. n counts elements. */
ELEMENT_INLINE __m256i first32(size_t n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

ELEMENT_INLINE __m256i first64(size_t n)
{
	return _mm256_cmpgt_epi64(_mm256_set1_epi64x((long long)n), _mm256_setr_epi64x(0, 1, 2, 3));
}

#define load_some8(p, n)  load_some(p, n)
#define load_some16(p, n) load_some(p, (n)*2)
#define load_some32(p, n) _mm256_maskload_epi32((const int *)(const void *)(p), first32(n))
#define load_some64(p, n) _mm256_maskload_epi64((const long long *)(const void *)(p), first64(n))

/* ---- Integers ---- */

#define INTEGER_MEMORY(T, E, A)                                          \
	typedef __m256i T##_v;                                           \
	enum { T##_bytes = E / 8, T##_lanes = 256 / E };                 \
	ELEMENT_INLINE __m256i T##_load(const char *p)                   \
	{                                                                \
		return load(p);                                          \
	}                                                                \
	ELEMENT_INLINE void T##_store(char *p, __m256i v)                \
	{                                                                \
		store(p, v);                                             \
	}                                                                \
	ELEMENT_INLINE void T##_stream(char *p, __m256i v)               \
	{                                                                \
		stream(p, v);                                            \
	}                                                                \
	ELEMENT_INLINE __m256i T##_load_some(const char *p, size_t n)    \
	{                                                                \
		return load_some##E(p, n);                               \
	}                                                                \
	ELEMENT_INLINE void T##_store_some(char *p, __m256i v, size_t n) \
	{                                                                \
		store_some(p, v, n *T##_bytes);                          \
	}

#define INTEGER_ARITHMETIC(T, E, A)                           \
	ELEMENT_INLINE __m256i T##_sum(__m256i a, __m256i b)  \
	{                                                     \
		return _mm256_add_epi##E(a, b);               \
	}                                                     \
	ELEMENT_INLINE __m256i T##_prod(__m256i a, __m256i b) \
	{                                                     \
		return prod##E(a, b);                         \
	}                                                     \
	ELEMENT_INLINE __m256i T##_min(__m256i a, __m256i b)  \
	{                                                     \
		return min_##A##E(a, b);                      \
	}                                                     \
	ELEMENT_INLINE __m256i T##_max(__m256i a, __m256i b)  \
	{                                                     \
		return max_##A##E(a, b);                      \
	}

#define INTEGER_LOGIC(T, E, A)                                                                         \
	ELEMENT_INLINE __m256i T##_band(__m256i a, __m256i b)                                          \
	{                                                                                              \
		return _mm256_and_si256(a, b);                                                         \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_bor(__m256i a, __m256i b)                                           \
	{                                                                                              \
		return _mm256_or_si256(a, b);                                                          \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_bxor(__m256i a, __m256i b)                                          \
	{                                                                                              \
		return _mm256_xor_si256(a, b);                                                         \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_zero(__m256i a)                                                     \
	{                                                                                              \
		return _mm256_cmpeq_epi##E(a, _mm256_setzero_si256());                                 \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_not(__m256i m)                                                      \
	{                                                                                              \
		return _mm256_andnot_si256(m, _mm256_set1_epi##E##X(1));                               \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_truth(__m256i a)                                                    \
	{                                                                                              \
		return T##_not(T##_zero(a));                                                           \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_land(__m256i a, __m256i b)                                          \
	{                                                                                              \
		return T##_not(T##_bor(T##_zero(a), T##_zero(b)));                                     \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_lor(__m256i a, __m256i b)                                           \
	{                                                                                              \
		return T##_truth(T##_bor(a, b));                                                       \
	}                                                                                              \
	ELEMENT_INLINE __m256i T##_lxor(__m256i a, __m256i b)                                          \
	{                                                                                              \
		return _mm256_and_si256(T##_bxor(T##_zero(a), T##_zero(b)), _mm256_set1_epi##E##X(1)); \
	}

#define VECTOR_INTEGER(T, E, A)     \
	INTEGER_MEMORY(T, E, A)     \
	INTEGER_ARITHMETIC(T, E, A) \
	INTEGER_LOGIC(T, E, A)
#define _mm256_set1_epi8X  _mm256_set1_epi8
#define _mm256_set1_epi16X _mm256_set1_epi16
#define _mm256_set1_epi32X _mm256_set1_epi32
#define _mm256_set1_epi64X _mm256_set1_epi64x

#define min_epi8  _mm256_min_epi8
#define max_epi8  _mm256_max_epi8
#define min_epu8  _mm256_min_epu8
#define max_epu8  _mm256_max_epu8
#define min_epi16 _mm256_min_epi16
#define max_epi16 _mm256_max_epi16
#define min_epu16 _mm256_min_epu16
#define max_epu16 _mm256_max_epu16
#define min_epi32 _mm256_min_epi32
#define max_epi32 _mm256_max_epi32
#define min_epu32 _mm256_min_epu32
#define max_epu32 _mm256_max_epu32

/* 64 bits: only a signed comparison exists; flipping the top bit orders unsigned. */
ELEMENT_INLINE __m256i greater_epi64(__m256i a, __m256i b)
{
	return _mm256_cmpgt_epi64(a, b);
}

ELEMENT_INLINE __m256i greater_epu64(__m256i a, __m256i b)
{
	const __m256i top = _mm256_set1_epi64x(INT64_MIN);

	return _mm256_cmpgt_epi64(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top));
}

#define min_epi64(a, b) _mm256_blendv_epi8(a, b, greater_epi64(a, b))
#define max_epi64(a, b) _mm256_blendv_epi8(b, a, greater_epi64(a, b))
#define min_epu64(a, b) _mm256_blendv_epi8(a, b, greater_epu64(a, b))
#define max_epu64(a, b) _mm256_blendv_epi8(b, a, greater_epu64(a, b))

/* Bytes: even ones in 16-bit lanes, odd ones in the upper halves. */
ELEMENT_INLINE __m256i prod8(__m256i a, __m256i b)
{
	const __m256i low = _mm256_set1_epi16(0x00ff);
	const __m256i even = _mm256_and_si256(_mm256_mullo_epi16(a, b), low);
	const __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_andnot_si256(low, b));

	return _mm256_or_si256(even, odd);
}
#define prod16(a, b) _mm256_mullo_epi16(a, b)
#define prod32(a, b) _mm256_mullo_epi32(a, b)

/* Low halves give 64 bits; the two cross products reach the upper half only. */
ELEMENT_INLINE __m256i prod64(__m256i a, __m256i b)
{
	const __m256i cross = _mm256_mullo_epi32(a, _mm256_shuffle_epi32(b, 0xb1));
	const __m256i sum = _mm256_add_epi32(cross, _mm256_srli_epi64(cross, 32));

	return _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64(sum, 32));
}

VECTOR_INTEGER(i8, 8, epi)
VECTOR_INTEGER(u8, 8, epu)
VECTOR_INTEGER(i16, 16, epi)
VECTOR_INTEGER(u16, 16, epu)
VECTOR_INTEGER(i32, 32, epi)
VECTOR_INTEGER(u32, 32, epu)
VECTOR_INTEGER(i64, 64, epi)
VECTOR_INTEGER(u64, 64, epu)

/*
 * Truncating division through floating point is exact when the dividend has
 * fewer bits than the significand: a quotient that is not an integer is at least
 * 1/divisor away from the next one, more than the rounding error. 8 and 16 bits go
 * through f32, signed 32 bits through f64. Packing saturates, but never has to.
 */
ELEMENT_INLINE __m256i quotient32(__m256i a, uint64_t divisor)
{
	return _mm256_cvttps_epi32(_mm256_div_ps(_mm256_cvtepi32_ps(a), _mm256_set1_ps((float)divisor)));
}

#define LOW(a)  _mm256_castsi256_si128(a)
#define HIGH(a) _mm256_extracti128_si256(a, 1)
/* Packing works in 128-bit halves; this puts the quarters back in order. */
#define ORDERED(a) _mm256_permute4x64_epi64(a, 0xd8)

ELEMENT_INLINE __m256i i16_div(__m256i a, uint64_t d)
{
	const __m256i q0 = quotient32(_mm256_cvtepi16_epi32(LOW(a)), d);
	const __m256i q1 = quotient32(_mm256_cvtepi16_epi32(HIGH(a)), d);

	return ORDERED(_mm256_packs_epi32(q0, q1));
}

ELEMENT_INLINE __m256i u16_div(__m256i a, uint64_t d)
{
	const __m256i q0 = quotient32(_mm256_cvtepu16_epi32(LOW(a)), d);
	const __m256i q1 = quotient32(_mm256_cvtepu16_epi32(HIGH(a)), d);

	return ORDERED(_mm256_packus_epi32(q0, q1));
}

ELEMENT_INLINE __m256i i8_div(__m256i a, uint64_t d)
{
	const __m256i q0 = i16_div(_mm256_cvtepi8_epi16(LOW(a)), d);
	const __m256i q1 = i16_div(_mm256_cvtepi8_epi16(HIGH(a)), d);

	return ORDERED(_mm256_packs_epi16(q0, q1));
}

ELEMENT_INLINE __m256i u8_div(__m256i a, uint64_t d)
{
	const __m256i q0 = u16_div(_mm256_cvtepu8_epi16(LOW(a)), d);
	const __m256i q1 = u16_div(_mm256_cvtepu8_epi16(HIGH(a)), d);

	return ORDERED(_mm256_packus_epi16(q0, q1));
}

ELEMENT_INLINE __m256i i32_div(__m256i a, uint64_t divisor)
{
	const __m256d d = _mm256_set1_pd((double)divisor);
	const __m128i q0 = _mm256_cvttpd_epi32(_mm256_div_pd(_mm256_cvtepi32_pd(LOW(a)), d));
	const __m128i q1 = _mm256_cvttpd_epi32(_mm256_div_pd(_mm256_cvtepi32_pd(HIGH(a)), d));

	return _mm256_inserti128_si256(_mm256_castsi128_si256(q0), q1, 1);
}

/* The machine has no vector form of these: the compiler takes the lanes apart. */
ELEMENT_INLINE __m256i u32_div(__m256i a, uint64_t d)
{
	typedef uint32_t lanes __attribute__((vector_size(sizeof(__m256i))));

	return (__m256i)((lanes)a / (uint32_t)d);
}

ELEMENT_INLINE __m256i i64_div(__m256i a, uint64_t d)
{
	typedef int64_t lanes __attribute__((vector_size(sizeof(__m256i))));

	return (__m256i)((lanes)a / (int64_t)d);
}

ELEMENT_INLINE __m256i u64_div(__m256i a, uint64_t d)
{
	typedef uint64_t lanes __attribute__((vector_size(sizeof(__m256i))));

	return (__m256i)((lanes)a / (uint64_t)d);
}

/* ---- Floats: operations on f32 and f64 accumulators ---- */

/*
 * min(a, b) and min(b, a) differ only where the operands are equal (zeros of
 * either sign: join the sign bits) or unordered (replaced by the sum, a NaN).
 */
#define FLOAT_ARITHMETIC(T, V, P, F)                                                                   \
	typedef V T##_v;                                                                               \
	ELEMENT_INLINE V T##_sum(V a, V b)                                                             \
	{                                                                                              \
		return _mm256_add_##P(a, b);                                                           \
	}                                                                                              \
	ELEMENT_INLINE V T##_prod(V a, V b)                                                            \
	{                                                                                              \
		return _mm256_mul_##P(a, b);                                                           \
	}                                                                                              \
	ELEMENT_INLINE V T##_or_nan(V v, V a, V b)                                                     \
	{                                                                                              \
		return _mm256_blendv_##P(v, _mm256_add_##P(a, b), _mm256_cmp_##P(a, b, _CMP_UNORD_Q)); \
	}                                                                                              \
	ELEMENT_INLINE V T##_min(V a, V b)                                                             \
	{                                                                                              \
		return T##_or_nan(_mm256_or_##P(_mm256_min_##P(a, b), _mm256_min_##P(b, a)), a, b);    \
	}                                                                                              \
	ELEMENT_INLINE V T##_max(V a, V b)                                                             \
	{                                                                                              \
		return T##_or_nan(_mm256_and_##P(_mm256_max_##P(a, b), _mm256_max_##P(b, a)), a, b);   \
	}                                                                                              \
	ELEMENT_INLINE V T##_div(V a, uint64_t divisor)                                                \
	{                                                                                              \
		return _mm256_div_##P(a, _mm256_set1_##P((F)divisor));                                 \
	}

#define FLOAT_LOGIC(T, V, P, F)                                              \
	ELEMENT_INLINE V T##_nonzero(V a)                                    \
	{                                                                    \
		return _mm256_cmp_##P(a, _mm256_setzero_##P(), _CMP_NEQ_UQ); \
	}                                                                    \
	ELEMENT_INLINE V T##_ones(V m)                                       \
	{                                                                    \
		return _mm256_and_##P(m, _mm256_set1_##P(1));                \
	}                                                                    \
	ELEMENT_LOGIC(T, V, _mm256_and_##P, _mm256_or_##P, _mm256_xor_##P)

#define VECTOR_FLOAT(T, V, P, F)     \
	FLOAT_ARITHMETIC(T, V, P, F) \
	FLOAT_LOGIC(T, V, P, F)

VECTOR_FLOAT(f16, __m256, ps, float)
VECTOR_FLOAT(f8e4m3, __m256, ps, float)
VECTOR_FLOAT(f8e5m2, __m256, ps, float)
VECTOR_FLOAT(f32, __m256, ps, float)
VECTOR_FLOAT(f64, __m256d, pd, double)

/* ---- Floats: memory ---- */

#define VECTOR_WIDE(T, V, P, F, E)                                      \
	ELEMENT_INLINE V T##_scale(V a, double scale)                   \
	{                                                               \
		return _mm256_mul_##P(_mm256_set1_##P((F)scale), a);    \
	}                                                               \
	enum { T##_bytes = sizeof(F), T##_lanes = 32 / sizeof(F) };     \
	ELEMENT_INLINE V T##_load(const char *p)                        \
	{                                                               \
		return _mm256_castsi256_##P(load(p));                   \
	}                                                               \
	ELEMENT_INLINE void T##_store(char *p, V v)                     \
	{                                                               \
		store(p, _mm256_cast##P##_si256(v));                    \
	}                                                               \
	ELEMENT_INLINE void T##_stream(char *p, V v)                    \
	{                                                               \
		stream(p, _mm256_cast##P##_si256(v));                   \
	}                                                               \
	ELEMENT_INLINE V T##_load_some(const char *p, size_t n)         \
	{                                                               \
		return _mm256_castsi256_##P(load_some##E(p, n));        \
	}                                                               \
	ELEMENT_INLINE void T##_store_some(char *p, V v, size_t n)      \
	{                                                               \
		store_some(p, _mm256_cast##P##_si256(v), n *T##_bytes); \
	}
VECTOR_WIDE(f32, __m256, ps, float, 32)
VECTOR_WIDE(f64, __m256d, pd, double, 64)

ELEMENT_INLINE __m256 widen_f16(__m128i h)
{
	return _mm256_cvtph_ps(h);
}

ELEMENT_INLINE __m128i narrow_f16(__m256 v)
{
	return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

#define VECTOR_HALF(T)                                                       \
	ELEMENT_INLINE __m256 T##_scale(__m256 a, double scale)              \
	{                                                                    \
		return widen_##T(narrow_##T(f32_scale(a, scale)));           \
	}                                                                    \
	enum { T##_bytes = 2, T##_lanes = 8 };                               \
	ELEMENT_INLINE __m256 T##_weigh(__m256 a, float share)               \
	{                                                                    \
		return f32_scale(a, (double)share);                          \
	}                                                                    \
	ELEMENT_INLINE __m256 T##_load(const char *p)                        \
	{                                                                    \
		return widen_##T(_mm_loadu_si128((const void *)p));          \
	}                                                                    \
	ELEMENT_INLINE void T##_store(char *p, __m256 v)                     \
	{                                                                    \
		_mm_storeu_si128((void *)p, narrow_##T(v));                  \
	}                                                                    \
	ELEMENT_INLINE void T##_stream(char *p, __m256 v)                    \
	{                                                                    \
		_mm_stream_si128((void *)p, narrow_##T(v));                  \
	}                                                                    \
	ELEMENT_INLINE __m256 T##_load_some(const char *p, size_t n)         \
	{                                                                    \
		return widen_##T(LOW(load_some(p, n * 2)));                  \
	}                                                                    \
	ELEMENT_INLINE void T##_store_some(char *p, __m256 v, size_t n)      \
	{                                                                    \
		store_some(p, _mm256_castsi128_si256(narrow_##T(v)), n * 2); \
	}
VECTOR_HALF(f16)

/* ---- bf16 ---- */

#include "reduce/bf16_pair.h"

/* Add just under half a unit plus the odd bit: the upper half is the result. NaNs
 * stay NaNs. */
ELEMENT_INLINE __m256i bf16_round(__m256 v)
{
	const __m256i u = _mm256_castps_si256(v);
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
	const __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
	const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x00400000));

	return _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

ELEMENT_INLINE bf16_v bf16_widen(__m256i h)
{
	const __m256i upper = _mm256_set1_epi32((int)0xffff0000);

	return (bf16_v){_mm256_castsi256_ps(_mm256_slli_epi32(h, 16)), _mm256_castsi256_ps(_mm256_and_si256(h, upper))};
}

ELEMENT_INLINE __m256i bf16_narrow(bf16_v v)
{
	return _mm256_blend_epi16(_mm256_srli_epi32(bf16_round(v.even), 16), bf16_round(v.odd), 0xaa);
}

ELEMENT_INLINE bf16_v bf16_scale(bf16_v a, double scale)
{
	return bf16_widen(bf16_narrow((bf16_v){f32_scale(a.even, scale), f32_scale(a.odd, scale)}));
}

enum { bf16_bytes = 2, bf16_lanes = 16 };
ELEMENT_INLINE bf16_v bf16_load(const char *p)
{
	return bf16_widen(load(p));
}

ELEMENT_INLINE void bf16_store(char *p, bf16_v v)
{
	store(p, bf16_narrow(v));
}

ELEMENT_INLINE void bf16_stream(char *p, bf16_v v)
{
	stream(p, bf16_narrow(v));
}

ELEMENT_INLINE bf16_v bf16_load_some(const char *p, size_t n)
{
	return bf16_widen(load_some(p, n * 2));
}

ELEMENT_INLINE void bf16_store_some(char *p, bf16_v v, size_t n)
{
	store_some(p, bf16_narrow(v), n * 2);
}

/* ---- 8-bit floats ---- */

/* Eight of them in the low bytes. As in element.h: in through f16, out by rounding the f32. */
ELEMENT_INLINE __m256 widen_f8e4m3(__m128i b)
{
	const __m128i fields = _mm_set1_epi16(0x3f80), signed_fields = _mm_set1_epi16((short)0xbf80);
	const __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(b), 7), signed_fields);
	const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(half, fields), fields);
	const __m128i nan = _mm_and_si128(is_nan, _mm_set1_epi16(0x7c00));

	return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(256));
}

ELEMENT_INLINE __m256 widen_f8e5m2(__m128i b)
{
	return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), b));
}

/* r is negative or too large for a moment where the number is subnormal. */
ELEMENT_INLINE __m128i narrow_f8(__m256 v, int fraction_bits, uint32_t rebias, uint32_t normal, uint32_t spacing,
                                 int largest)
{
	const int shift = 23 - fraction_bits;
	const __m256i bits = _mm256_castps_si256(v), u = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
	const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, shift), _mm256_set1_epi32(1));
	const __m256i added = _mm256_add_epi32(odd, _mm256_set1_epi32((1 << (shift - 1)) - 1 - (int)rebias));
	const __m256i unit = _mm256_set1_epi32((int)spacing);
	const __m256 moved = _mm256_add_ps(_mm256_castsi256_ps(u), _mm256_castsi256_ps(unit));
	const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)normal), u);
	const __m256i nan = _mm256_cmpgt_epi32(u, _mm256_set1_epi32(0x7f800000));
	__m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, added), shift);

	r = _mm256_blendv_epi8(r, _mm256_sub_epi32(_mm256_castps_si256(moved), unit), small);
	r = _mm256_min_epi32(r, _mm256_set1_epi32(largest));
	r = _mm256_or_si256(r, _mm256_and_si256(nan, _mm256_set1_epi32(0x7f)));
	r = _mm256_or_si256(r, _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
	return _mm_packus_epi16(_mm_packs_epi32(LOW(r), HIGH(r)), _mm_setzero_si128());
}

#define VECTOR_F8(T)                                                                                            \
	enum { T##_bytes = 1, T##_lanes = 8 };                                                                  \
	ELEMENT_INLINE __m128i narrow_##T(__m256 v)                                                             \
	{                                                                                                       \
		return narrow_f8(v, T##_fraction_bits, F8_REBIAS(T), F8_NORMAL(T), F8_SPACING(T), T##_largest); \
	}                                                                                                       \
	ELEMENT_INLINE __m256 T##_scale(__m256 a, double scale)                                                 \
	{                                                                                                       \
		return widen_##T(narrow_##T(f32_scale(a, scale)));                                              \
	}                                                                                                       \
	ELEMENT_INLINE __m256 T##_weigh(__m256 a, float share)                                                  \
	{                                                                                                       \
		return f32_scale(a, (double)share);                                                             \
	}                                                                                                       \
	ELEMENT_INLINE __m256 T##_load(const char *p)                                                           \
	{                                                                                                       \
		return widen_##T(_mm_loadl_epi64((const void *)p));                                             \
	}                                                                                                       \
	ELEMENT_INLINE void T##_store(char *p, __m256 v)                                                        \
	{                                                                                                       \
		_mm_storel_epi64((void *)p, narrow_##T(v));                                                     \
	}                                                                                                       \
	ELEMENT_INLINE void T##_stream(char *p, __m256 v)                                                       \
	{                                                                                                       \
		_mm_stream_si64((void *)p, _mm_cvtsi128_si64(narrow_##T(v)));                                   \
	}                                                                                                       \
	ELEMENT_INLINE __m256 T##_load_some(const char *p, size_t n)                                            \
	{                                                                                                       \
		return widen_##T(LOW(load_some(p, n)));                                                         \
	}                                                                                                       \
	ELEMENT_INLINE void T##_store_some(char *p, __m256 v, size_t n)                                         \
	{                                                                                                       \
		store_some(p, _mm256_castsi128_si256(narrow_##T(v)), n);                                        \
	}
VECTOR_F8(f8e4m3)
VECTOR_F8(f8e5m2)

#define UNROLL  4
#define SPREADS 1
#define KERNEL_INDEPENDENT
#define COLL_REDUCE_TABLE        coll_reduce_avx2
#define COLL_REDUCE_SPREAD_TABLE coll_reduce_avx2_spread
#include "level.h"
