/*
 * The pieces that byte-level BPE merges in: GPT-2's pattern
 *
 *	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * without a library for patterns. Bytes that are no UTF-8 count as "other", one by one.
 */
#include "gpt/bpe_classes.h"
#include "gpt/bpe_inner.h"

enum { OTHER, LETTER, NUMBER, SPACE };

/* How many bytes the first byte of a code point announces; 0: it is none. */
static int announced(uint8_t byte)
{
	if (byte < 0x80)
		return 1;
	if (byte < 0xc2 || byte > 0xf4)
		return 0;
	return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* The class of the code point at p, and its length in bytes. */
static int look(const uint8_t *p, const uint8_t *end, int *len_bytes)
{
	const int n = announced(*p);
	uint32_t c = n > 1 ? *p & (0xffu >> (n + 1)) : *p;

	*len_bytes = 1;
	if (n == 0 || end - p < n)
		return OTHER;
	for (int i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return OTHER;
		c = c << 6 | (p[i] & 0x3f);
	}
	/* Too long for what it is, a surrogate, or none. */
	if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
		return OTHER;
	*len_bytes = n;
	return classes[64 * block_of[c >> 8] + (c >> 2 & 63)] >> 2 * (c & 3) & 3;
}

static int contraction(const uint8_t *p, const uint8_t *end)
{
	const long left = end - p;

	if (*p != '\'' || left < 2)
		return 0;
	if (p[1] == 's' || p[1] == 't' || p[1] == 'm' || p[1] == 'd')
		return 2;
	if (left < 3)
		return 0;
	return (p[1] == 'r' && p[2] == 'e') || (p[1] == 'v' && p[2] == 'e') || (p[1] == 'l' && p[2] == 'l') ? 3 : 0;
}

/* A run of spaces, less the last one if something follows. */
static const uint8_t *spaces(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *at = p, *last = p;
	int n;

	while (at < end && look(at, end, &n) == SPACE) {
		last = at;
		at += n;
	}
	return at == end || last == p ? at : last;
}

const uint8_t *gpt_bpe_piece_end(const uint8_t *p, const uint8_t *end)
{
	const int short_one = contraction(p, end);
	int n, kind;

	if (short_one)
		return p + short_one;
	kind = look(p, end, &n);
	if (kind == SPACE) {
		if (*p != ' ' || p + 1 == end || (kind = look(p + 1, end, &n)) == SPACE)
			return spaces(p, end);
		p++;
	}
	do
		p += n;
	while (p < end && look(p, end, &n) == kind);
	return p;
}
