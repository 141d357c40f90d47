/*
 * SipHash-2-4: a keyed hash of short messages, written from the paper (Aumasson
 * and Bernstein, "SipHash: a fast short-input PRF", 2012), with a result of 64 bits
 * or, as its authors' reference implementation has it, of 128. Handshakes use it to
 * prove that both ends know the job's key, and to derive keys from it.
 */
#ifndef COLL_BASE_SIPHASH_H
#define COLL_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct coll_siphash {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t coll_siphash_rotate(uint64_t x, int by)
{
	return (x << by) | (x >> (64 - by));
}

static inline void coll_siphash_round(struct coll_siphash *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = coll_siphash_rotate(s->v1, 13) ^ s->v0;
	s->v3 = coll_siphash_rotate(s->v3, 16) ^ s->v2;
	s->v0 = coll_siphash_rotate(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = coll_siphash_rotate(s->v1, 17) ^ s->v2;
	s->v3 = coll_siphash_rotate(s->v3, 21) ^ s->v0;
	s->v2 = coll_siphash_rotate(s->v2, 32);
}

static inline void coll_siphash_word(struct coll_siphash *s, uint64_t m)
{
	s->v3 ^= m;
	coll_siphash_round(s);
	coll_siphash_round(s);
	s->v0 ^= m;
}

/* Words are read little-endian on every machine, so that both ends agree. */
static inline uint64_t coll_siphash_load(const unsigned char *p, size_t len_bytes)
{
	uint64_t w = 0;

	for (size_t i = 0; i < len_bytes; i++)
		w |= (uint64_t)p[i] << (8 * i);
	return w;
}

static inline struct coll_siphash coll_siphash_begin(const uint64_t key[2])
{
	return (struct coll_siphash){
	        key[0] ^ 0x736f6d6570736575u,
	        key[1] ^ 0x646f72616e646f6du,
	        key[0] ^ 0x6c7967656e657261u,
	        key[1] ^ 0x7465646279746573u,
	};
}

/* Behind the last whole word: the bytes that are left, and the length of all. */
static inline void coll_siphash_rest(struct coll_siphash *s, const unsigned char *rest, size_t len_bytes)
{
	coll_siphash_word(s, ((uint64_t)(len_bytes & 255) << 56) | coll_siphash_load(rest, len_bytes & 7));
}

static inline uint64_t coll_siphash_end(struct coll_siphash *s)
{
	for (int i = 0; i < 4; i++)
		coll_siphash_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

static inline void coll_siphash_data(struct coll_siphash *s, const void *data, size_t len_bytes)
{
	const unsigned char *p = data;
	const size_t whole = len_bytes & ~(size_t)7;

	for (size_t i = 0; i < whole; i += 8)
		coll_siphash_word(s, coll_siphash_load(p + i, 8));
	coll_siphash_rest(s, p + whole, len_bytes);
}

static inline uint64_t coll_siphash24(const uint64_t key[2], const void *data, size_t len_bytes)
{
	struct coll_siphash s = coll_siphash_begin(key);

	coll_siphash_data(&s, data, len_bytes);
	s.v2 ^= 0xff;
	return coll_siphash_end(&s);
}

/* The result of 128 bits is another function, not an extension of the one of 64. */
static inline struct coll_siphash coll_siphash_wide_begin(const uint64_t key[2])
{
	struct coll_siphash s = coll_siphash_begin(key);

	s.v1 ^= 0xee;
	return s;
}

static inline void coll_siphash_wide_end(struct coll_siphash *s, uint64_t out[2])
{
	s->v2 ^= 0xee;
	out[0] = coll_siphash_end(s);
	s->v1 ^= 0xdd;
	out[1] = coll_siphash_end(s);
}

static inline void coll_siphash24_wide(const uint64_t key[2], const void *data, size_t len_bytes, uint64_t out[2])
{
	struct coll_siphash s = coll_siphash_wide_begin(key);

	coll_siphash_data(&s, data, len_bytes);
	coll_siphash_wide_end(&s, out);
}

#endif
