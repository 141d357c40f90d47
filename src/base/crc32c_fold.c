/*
 * The CRC of long inputs by carry-less multiplication of vectors: four of 64 bytes are carried along, each multiplied
 * to where it has the same remainder 256 bytes further on (Gopal and others, "Fast CRC computation for generic
 * polynomials using PCLMULQDQ", 2009). What is left, 16 bytes and the end, is taken by the instruction. AVX-512 with
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

/* The bytes that come soon: the processor's own prefetching ends with each page. What is not there is no fault. */
static inline void ahead(const unsigned char *p)
{
	for (int line = 0; line < 256; line += 64)
		_mm_prefetch((const char *)p + AHEAD_BYTES + line, _MM_HINT_T0);
}

/* Whole blocks of 256 bytes, two at least; ~ of what the interface calls the CRC. */
static uint32_t blocks(uint32_t crc, const unsigned char *p, size_t n)
{
	const __m512i by_256 = _mm512_broadcast_i32x4(pair(0)), by_64 = _mm512_broadcast_i32x4(pair(1));
	const __m128i by_16 = pair(2);
	__m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64), c = _mm512_loadu_si512(p + 128),
	        d = _mm512_loadu_si512(p + 192);
	__m128i x;

	a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	for (p += 256; --n > 0; p += 256) {
		ahead(p);
		a = carried(a, by_256, _mm512_loadu_si512(p));
		b = carried(b, by_256, _mm512_loadu_si512(p + 64));
		c = carried(c, by_256, _mm512_loadu_si512(p + 128));
		d = carried(d, by_256, _mm512_loadu_si512(p + 192));
	}
	d = carried(carried(carried(a, by_64, b), by_64, c), by_64, d);
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
	const size_t n = len_bytes / 256;

	if (n >= 2) {
		crc = ~blocks(~crc, p, n);
		p += n * 256;
	}
	return coll_crc32c_instruction(crc, p, len_bytes - (size_t)(p - (const unsigned char *)bytes));
}
