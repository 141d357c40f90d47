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

static inline uint32_t gpt_mix32(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ (x >> 16);
}

/* 32 bits per number for dropout: few enough operations on 32-bit words that
 * compilers turn loops of it into vectors (the mixer is Ellis's "lowbias32",
 * public domain). The second half of the key comes between two mixings: masks of
 * two keys are not shifted copies of each other. */
static inline uint32_t gpt_drop_bits(uint64_t key, uint64_t index)
{
	const uint32_t high = (uint32_t)(index >> 32) * 0x9e3779b9u + (uint32_t)(key >> 32);

	return gpt_mix32(gpt_mix32((uint32_t)index ^ (uint32_t)key) + high);
}

/* Bits below this are dropped. */
static inline uint32_t gpt_drop_least(double rate)
{
	return (uint32_t)(rate * 4294967296.0);
}

#endif
