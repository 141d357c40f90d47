/*
 * Small hashes and a seeded generator, all public domain constructions:
 * FNV-1a (Fowler, Noll, Vo), the splitmix64 finaliser (Vigna).
 */
#ifndef COLL_BASE_HASH_H
#define COLL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t coll_mix64(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static inline uint64_t coll_hash_combine(uint64_t h, uint64_t v)
{
	return coll_mix64(h ^ coll_mix64(v));
}

static inline uint64_t coll_hash_bytes(uint64_t seed, const void *data, size_t len_bytes)
{
	const unsigned char *p = data;
	uint64_t h = 0xcbf29ce484222325u ^ coll_mix64(seed);

	for (size_t i = 0; i < len_bytes; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return coll_mix64(h);
}

/* Seeded pseudo-random numbers (splitmix64 sequence). */
struct coll_rng {
	uint64_t state;
};

static inline uint64_t coll_rng_next(struct coll_rng *r)
{
	r->state += 0x9e3779b97f4a7c15u;
	return coll_mix64(r->state);
}

/* 0 .. n-1, n >= 1; bias is negligible for the small n used here. */
static inline uint32_t coll_rng_below(struct coll_rng *r, uint32_t n)
{
	return (uint32_t)(((coll_rng_next(r) >> 32) * n) >> 32);
}

#endif
