/*
 * See floor_sum.h. Each way reads a vector of every source before it stores the sum, so that a sum in place is as good.
 */
#include "floor_sum.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* Sixteen floats at any address. Each vector is loaded before it is stored: in place is as good. */
typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
enum { LANES = 16 };

/* What n sources sum up to, stored to all outs. */
CLONES static void sum_to(float *const *outs, int n_outs, const float *const *ins, int n_ins, size_t count)
{
	size_t i = 0;

	for (; i + LANES <= count; i += LANES) {
		floats sum = *(const floats *)(ins[0] + i);

		for (int r = 1; r < n_ins; r++)
			sum += *(const floats *)(ins[r] + i);
		for (int o = 0; o < n_outs; o++)
			*(floats *)(outs[o] + i) = sum;
	}
	for (; i < count; i++) {
		float sum = ins[0][i];

		for (int r = 1; r < n_ins; r++)
			sum += ins[r][i];
		for (int o = 0; o < n_outs; o++)
			outs[o][i] = sum;
	}
}

/* The same of two to one or to both. */
CLONES static void sum_two(float *x, float *y, const float *a, const float *b, size_t count)
{
	size_t i = 0;

	for (; i + LANES <= count; i += LANES) {
		const floats sum = *(const floats *)(a + i) + *(const floats *)(b + i);

		*(floats *)(x + i) = sum;
		if (y != x)
			*(floats *)(y + i) = sum;
	}
	for (; i < count; i++)
		x[i] = y[i] = a[i] + b[i];
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void sum_stream512(float *const *outs, int n_outs, const float *const *ins,
                                                             int n_ins, size_t count)
{
	for (size_t i = 0; i < count; i += 16) {
		__m512 sum = _mm512_loadu_ps(ins[0] + i);

		for (int r = 1; r < n_ins; r++)
			sum = _mm512_add_ps(sum, _mm512_loadu_ps(ins[r] + i));
		for (int o = 0; o < n_outs; o++)
			_mm512_stream_ps(outs[o] + i, sum);
	}
	_mm_sfence();
}

static void sum_stream128(float *const *outs, int n_outs, const float *const *ins, int n_ins, size_t count)
{
	for (size_t i = 0; i < count; i += 4) {
		__m128 sum = _mm_loadu_ps(ins[0] + i);

		for (int r = 1; r < n_ins; r++)
			sum = _mm_add_ps(sum, _mm_loadu_ps(ins[r] + i));
		for (int o = 0; o < n_outs; o++)
			_mm_stream_ps(outs[o] + i, sum);
	}
	_mm_sfence();
}

static void sum_stream(float *const *outs, int n_outs, const float *const *ins, int n_ins, size_t count)
{
	if (__builtin_cpu_supports("avx512f"))
		sum_stream512(outs, n_outs, ins, n_ins, count);
	else
		sum_stream128(outs, n_outs, ins, n_ins, count);
}
#else
#define sum_stream sum_to
#endif

/* In place the sum ends where its first source lies, element by element. */
void floor_combine(bool stream, float *const *outs, int n_outs, const float *const *ins, int n_ins, size_t count)
{
	if (stream && count % 16 == 0 && (uintptr_t)outs[0] % 64 == 0)
		sum_stream(outs, n_outs, ins, n_ins, count);
	else if (n_ins == 2 && n_outs <= 2)
		sum_two(outs[0], outs[n_outs - 1], ins[0], ins[1], count);
	else if (n_ins == 1 && n_outs == 1)
		memcpy(outs[0], ins[0], count * sizeof(float));
	else
		sum_to(outs, n_outs, ins, n_ins, count);
}
