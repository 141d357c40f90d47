/*
 * Copies for the data path. Same bytes, exact alias accepted, no overlap
 * otherwise. The non-temporal one leaves the destination out of the caches: for
 * large blocks that this core will not read again soon.
 */
#include <string.h>

#include "base/cpu.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

void coll_reduce_copy(void *dst, const void *src, size_t len_bytes)
{
	if (dst != src && len_bytes > 0)
		memcpy(dst, src, len_bytes);
}

#if defined(__x86_64__)

enum { LINE_BYTES = 64, NT_MIN_BYTES = 512 };

/* A store of a whole line needs no buffer in which it waits for the rest of it. */
__attribute__((target("avx512f"))) static void whole_lines(char *d, const char *s, size_t lines)
{
	for (size_t i = 0; i < lines; i++, d += LINE_BYTES, s += LINE_BYTES)
		_mm512_stream_si512((void *)d, _mm512_loadu_si512(s));
}

static void lines_by_quarters(char *d, const char *s, size_t lines)
{
	for (size_t i = 0; i < lines; i++, d += LINE_BYTES, s += LINE_BYTES) {
		const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)s);
		const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(s + 16));
		const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(s + 32));
		const __m128i e = _mm_loadu_si128((const __m128i *)(const void *)(s + 48));

		_mm_stream_si128((__m128i *)(void *)d, a);
		_mm_stream_si128((__m128i *)(void *)(d + 16), b);
		_mm_stream_si128((__m128i *)(void *)(d + 32), c);
		_mm_stream_si128((__m128i *)(void *)(d + 48), e);
	}
}

/*
 * Whole lines by streaming stores, the ragged ends by ordinary ones: a partial
 * write-combining line costs a read of memory.
 */
void coll_reduce_stream(void *dst, const void *src, size_t len_bytes)
{
	const size_t head = -(uintptr_t)dst % LINE_BYTES;
	const char *s = src;
	char *d = dst;
	size_t lines;

	if (len_bytes < NT_MIN_BYTES || dst == src) {
		coll_reduce_copy(dst, src, len_bytes);
		return;
	}
	memcpy(d, s, head);
	d += head;
	s += head;
	lines = (len_bytes - head) / LINE_BYTES;
	if (coll_cpu_has(COLL_CPU_AVX512F))
		whole_lines(d, s, lines);
	else
		lines_by_quarters(d, s, lines);
	d += lines * LINE_BYTES;
	s += lines * LINE_BYTES;
	memcpy(d, s, (len_bytes - head) % LINE_BYTES);
}

void coll_reduce_fence(void)
{
	_mm_sfence();
}

#else

void coll_reduce_stream(void *dst, const void *src, size_t len_bytes)
{
	coll_reduce_copy(dst, src, len_bytes);
}

void coll_reduce_fence(void)
{
}

#endif

void coll_reduce_copy_nt(void *dst, const void *src, size_t len_bytes)
{
	coll_reduce_stream(dst, src, len_bytes);
	coll_reduce_fence();
}
