/*
 * What the files of byte-level BPE share.
 */
#ifndef GPT_BPE_INNER_H
#define GPT_BPE_INNER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where the piece that begins at p ends; p < end. */
const uint8_t *gpt_bpe_piece_end(const uint8_t *p, const uint8_t *end);

static inline uint64_t gpt_bpe_mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15u;
	return x ^ x >> 29;
}

static inline uint64_t gpt_bpe_hash(const uint8_t *p, size_t n)
{
	uint64_t h = n, w = 0;

	for (; n >= 8; p += 8, n -= 8) {
		memcpy(&w, p, 8);
		h = gpt_bpe_mix(h ^ w) * 0x9e3779b97f4a7c15u;
	}
	w = 0;
	memcpy(&w, p, n);
	h = gpt_bpe_mix(h ^ w) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

#endif
