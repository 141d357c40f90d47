/*
 * Random numbers by counter: the value at (seed, index) needs no state, so any
 * rank can compute any of them. The mixer is splitmix64's finaliser (Vigna,
 * public domain); normal deviates by Box and Muller.
 */
#ifndef GPT_RNG_H
#define GPT_RNG_H

#include <math.h>
#include <stdint.h>

static inline uint64_t gpt_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t gpt_random(uint64_t seed, uint64_t index)
{
	return gpt_mix(gpt_mix(seed) ^ gpt_mix(~index));
}

/* In the open interval (0, 1). */
static inline double gpt_uniform(uint64_t seed, uint64_t index)
{
	return ((double)(gpt_random(seed, index) >> 11) + 0.5) * 0x1p-53;
}

static inline double gpt_normal(uint64_t seed, uint64_t index)
{
	const double r = sqrt(-2 * log(gpt_uniform(seed, 2 * index)));

	return r * cos(6.283185307179586 * gpt_uniform(seed, 2 * index + 1));
}

#endif
