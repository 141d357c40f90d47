/*
 * The CRC of long inputs by carry-less multiplication of vectors: four of 64 bytes are carried along, each multiplied
 * to where it has the same remainder further on (Gopal and others, "Fast CRC computation for generic polynomials using
 * PCLMULQDQ", 2009). Over 256 KiB each has a quarter of its own: four streams keep more lines under way than one,
 * whose prefetching ends with each page. What is left, 16 bytes and the end, is taken by the instruction. AVX-512 with
 * VPCLMULQDQ; compiled with the flags for it.
 */
#include "base/crc32c_internal.h"

#include <immintrin.h>

enum { AHEAD_BYTES = 2048 };

static inline __m512i carried(__m512i a, __m512i by, __m512i onto)
{
	return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, by, 0x00), _mm512_clmulepi64_epi128(a, by, 0x11),
	                                 onto, 0x96);
}

static inline __m128i carried_by_16(__m128i a, __m128i by, __m128i onto)
{
	return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(a, by, 0x00), _mm_clmulepi64_si128(a, by, 0x11)), onto);
}

static __m128i pair(int i)
{
	return _mm_set_epi64x((long long)coll_crc32c_fold[i][1], (long long)coll_crc32c_fold[i][0]);
}

/* Four chains of n vectors, so far apart, a step from each vector to the next; inlined with constants. Lines ahead are
 * asked for, and what is not there is no fault. Returns ~ of what the interface calls the CRC. */
static inline uint32_t chains(uint32_t crc, const unsigned char *p, size_t n, size_t apart, size_t step,
                              __m512i by_step, __m512i by_apart)
{
	const __m128i by_16 = pair(2);
	__m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + apart), c = _mm512_loadu_si512(p + 2 * apart),
	        d = _mm512_loadu_si512(p + 3 * apart);
	__m128i x;

	a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	for (p += step; --n > 0; p += step) {
		for (int k = 0; k < 4; k++)
			_mm_prefetch((const char *)p + k * apart + AHEAD_BYTES, _MM_HINT_T0);
		a = carried(a, by_step, _mm512_loadu_si512(p));
		b = carried(b, by_step, _mm512_loadu_si512(p + apart));
		c = carried(c, by_step, _mm512_loadu_si512(p + 2 * apart));
		d = carried(d, by_step, _mm512_loadu_si512(p + 3 * apart));
	}
	d = carried(carried(carried(a, by_apart, b), by_apart, c), by_apart, d);
	x = _mm512_castsi512_si128(d);
	x = carried_by_16(x, by_16, _mm512_extracti32x4_epi32(d, 1));
	x = carried_by_16(x, by_16, _mm512_extracti32x4_epi32(d, 2));
	x = carried_by_16(x, by_16, _mm512_extracti32x4_epi32(d, 3));
	return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)),
	                               (uint64_t)_mm_extract_epi64(x, 1));
}

uint32_t coll_crc32c_vectors(uint32_t crc, const void *bytes, size_t len_bytes)
{
	const unsigned char *p = bytes;
	const __m512i by_64 = _mm512_broadcast_i32x4(pair(1));
	size_t n;

	for (; len_bytes >= 4 * COLL_CRC32C_QUARTER; len_bytes -= 4 * COLL_CRC32C_QUARTER) {
		crc = ~chains(~crc, p, COLL_CRC32C_QUARTER / 64, COLL_CRC32C_QUARTER, 64, by_64,
		              _mm512_broadcast_i32x4(pair(3)));
		p += 4 * COLL_CRC32C_QUARTER;
	}
	n = len_bytes / 256;
	if (n >= 2) {
		crc = ~chains(~crc, p, n, 64, 256, _mm512_broadcast_i32x4(pair(0)), by_64);
		p += n * 256;
		len_bytes -= n * 256;
	}
	return coll_crc32c_instruction(crc, p, len_bytes);
}
