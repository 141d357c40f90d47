#include "gpt/sampler.h"
#include "gpt/rng.h"
#include <assert.h>

/* Half the bits needed to write n - 1, rounded up, at least 1. */
static int half_bits(uint64_t n)
{
	int bits = 1;

	while (bits < 64 && (n - 1) >> bits)
		bits++;
	return (bits + 1) / 2;
}

/* A Feistel network of four rounds permutes 2^(2 half) >= n values; values
 * outside are walked on until one falls inside (Black and Rogaway, 2002):
 * fewer than four steps on average. */
uint64_t gpt_permute(uint64_t key, uint64_t n, uint64_t x)
{
	const int half = half_bits(n);
	const uint64_t mask = ((uint64_t)1 << half) - 1;

	assert(x < n);
	do {
		uint64_t left = x >> half, right = x & mask;

		for (uint64_t round = 0; round < 4; round++) {
			uint64_t next = left ^ (gpt_random(key + round, right) & mask);

			left = right;
			right = next;
		}
		x = left << half | right;
	} while (x >= n);
	return x;
}

void gpt_sampler_init(struct gpt_sampler *s, uint64_t seed, size_t n, int context)
{
	assert(n > (size_t)context);
	s->seed = seed;
	s->window_count = n - (size_t)context;
}

size_t gpt_sampler_start(const struct gpt_sampler *s, uint64_t q)
{
	const uint64_t key = gpt_random(s->seed, q / s->window_count);

	return (size_t)gpt_permute(key, s->window_count, q % s->window_count);
}

size_t gpt_sampler_val_window(size_t i, size_t count, size_t all)
{
	return (size_t)((unsigned __int128)i * all / count);
}

size_t gpt_sampler_val_windows(size_t n, int context)
{
	return n ? (n - 1) / (size_t)context : 0;
}
