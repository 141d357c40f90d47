/*
 * For the tests of this directory: random arrays and the largest difference.
 */
#ifndef GPT_TEST_UTIL_H
#define GPT_TEST_UTIL_H

#include "gpt/kernels.h"
#include "gpt/rng.h"
#include <stdlib.h>

#define TEST_SEED 20261121u

static inline gpt_real *random_array(uint64_t stream, size_t n, double scale)
{
	gpt_real *x = malloc((n ? n : 1) * sizeof(*x));

	for (size_t i = 0; i < n; i++)
		x[i] = (gpt_real)(scale * gpt_normal(TEST_SEED + stream, i));
	return x;
}

static inline int32_t *random_tokens(uint64_t stream, size_t n, int vocab)
{
	int32_t *x = malloc((n ? n : 1) * sizeof(*x));

	for (size_t i = 0; i < n; i++)
		x[i] = (int32_t)(gpt_random(TEST_SEED + stream, i) % (uint64_t)vocab);
	return x;
}

static inline double norm_of(const gpt_real *x, size_t n)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += (double)x[i] * x[i];
	return sqrt(s);
}

/* ||a - b|| / ||b||, or ||a|| where b is zero. */
static inline double distance(const gpt_real *a, const gpt_real *b, size_t n)
{
	double s = 0, norm = norm_of(b, n);

	for (size_t i = 0; i < n; i++)
		s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
	return sqrt(s) / (norm > 0 ? norm : 1);
}

#endif
