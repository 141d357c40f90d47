/*
 * A vector of 16 numbers, and the few operations the kernels need.
 *
 * The width is the same at every instruction-set level: the compiler lowers it
 * to as many registers as the level has. With sums folded in one fixed order
 * and no contraction to fused multiply-add, all levels give the same bits. A
 * file that includes this is compiled once per level, with GPT_LEVEL naming it.
 */
#ifndef GPT_VEC_H
#define GPT_VEC_H

#include "gpt/real.h"
#include <stdint.h>
#include <string.h>

#define LANES 16

typedef gpt_real vec __attribute__((vector_size(LANES * sizeof(gpt_real))));
typedef gpt_real vec_mem __attribute__((vector_size(LANES * sizeof(gpt_real)), aligned(sizeof(gpt_real)), may_alias));

#define GPT_CAT2(a, b) a##b
#define GPT_CAT(a, b)  GPT_CAT2(a, b)
/* name_<level> */
#define LEVEL(name) GPT_CAT(name##_, GPT_LEVEL)
#define GPT_STR2(a) #a
#define GPT_STR(a)  GPT_STR2(a)

#define INLINE static inline __attribute__((always_inline, unused))

INLINE vec splat(gpt_real x)
{
	return (vec){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

/* Element i .. i+15 of n; past the end: fill. */
INLINE vec load_or(const gpt_real *p, int i, int n, gpt_real fill)
{
	vec v;

	if (__builtin_expect(i + LANES <= n, 1))
		return *(const vec_mem *)(p + i);
	v = splat(fill);
	for (int l = 0; l < n - i; l++)
		v[l] = p[i + l];
	return v;
}

INLINE vec load(const gpt_real *p, int i, int n)
{
	return load_or(p, i, n, 0);
}

INLINE void store(gpt_real *p, int i, int n, vec v)
{
	if (__builtin_expect(i + LANES <= n, 1)) {
		*(vec_mem *)(p + i) = v;
		return;
	}
	for (int l = 0; l < n - i; l++)
		p[i + l] = v[l];
}

#ifdef GPT_DOUBLE
typedef int64_t veci __attribute__((vector_size(LANES * sizeof(int64_t))));
#else
typedef int32_t veci __attribute__((vector_size(LANES * sizeof(int32_t))));
#endif

/* mask ? a : b, lane by lane; mask lanes are all ones or all zeros. */
INLINE vec pick(veci mask, vec a, vec b)
{
	return (vec)((mask & (veci)a) | (~mask & (veci)b));
}

/* All ones in lanes 0 .. n-1. */
INLINE veci lanes_below(int n)
{
	const veci lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

	return lane < n;
}

INLINE vec vec_max(vec a, vec b)
{
	return pick(a > b, a, b);
}

INLINE gpt_real fold_sum(vec v)
{
	gpt_real t[LANES];

	memcpy(t, &v, sizeof(t));
	for (int w = LANES / 2; w > 0; w /= 2)
		for (int l = 0; l < w; l++)
			t[l] += t[l + w];
	return t[0];
}

INLINE gpt_real fold_max(vec v)
{
	gpt_real t[LANES];

	memcpy(t, &v, sizeof(t));
	for (int w = LANES / 2; w > 0; w /= 2)
		for (int l = 0; l < w; l++)
			t[l] = t[l] > t[l + w] ? t[l] : t[l + w];
	return t[0];
}

#ifdef GPT_DOUBLE
/* The tests in double judge formulas: the library's exp will do. */
INLINE vec vec_exp(vec x)
{
	for (int l = 0; l < LANES; l++)
		x[l] = exp(x[l]);
	return x;
}
#else
/*
 * e^x = 2^n e^r with n = round(x / ln 2) and |r| <= ln 2 / 2: a Taylor sum to
 * r^7 is then off by less than 6e-9. Adding 1.5 * 2^23 rounds to an integer
 * and leaves it in the low bits. Zero below -87, clamped above 88.
 */
INLINE vec vec_exp(vec x)
{
	const vec low = splat(-87.0f), high = splat(88.0f), magic = splat(12582912.0f);
	const veci alive = x >= low;
	vec t, n, r, p;

	x = pick(alive, x, low);
	x = pick(x < high, x, high);
	t = x * 1.44269504f + magic;
	n = t - magic;
	/* ln 2 in two parts; the first has few enough bits that n times it is exact. */
	r = x - n * 0.693359375f;
	r = r - n * -2.12194440e-4f;
	p = splat(1.0f / 5040);
	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	p = p * (vec)((((veci)t - (veci)magic) + 127) << 23);
	return pick(alive, p, splat(0));
}
#endif

#endif
