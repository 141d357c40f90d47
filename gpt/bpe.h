/*
 * Byte-level BPE (Sennrich et al., arXiv 1508.07909; Radford et al. 2019): a text is cut in pieces, a piece in bytes,
 * and neighbours are merged, the pair of the least rank first, as long as there is a merge for any.
 */
#ifndef GPT_BPE_H
#define GPT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpt_bpe;

/* size tokens, still without bytes; split false: a text is one piece. NULL: no memory. */
struct gpt_bpe *gpt_bpe_open(int size, bool split);
void gpt_bpe_close(struct gpt_bpe **b);

/* The bytes of a token; special: it is found in texts by gpt_bpe_encode(.., true, ..) only. -1: no memory, the token
 * has bytes already, or another one has the same. */
int gpt_bpe_set(struct gpt_bpe *b, int token, const uint8_t *bytes, size_t len_bytes, bool special);
/* Merges in the order of their ranks, tokens first. -1: no memory, or no token has the bytes of both. */
int gpt_bpe_add_merge(struct gpt_bpe *b, int left, int right);

int gpt_bpe_size(const struct gpt_bpe *b);
bool gpt_bpe_splits(const struct gpt_bpe *b);
/* The token of these bytes; -1: there is none. */
int gpt_bpe_find(const struct gpt_bpe *b, const uint8_t *bytes, size_t len_bytes);
/* Of a token, NULL if it has none. */
const uint8_t *gpt_bpe_bytes(const struct gpt_bpe *b, int token, size_t *len_bytes);
bool gpt_bpe_is_special(const struct gpt_bpe *b, int token);
size_t gpt_bpe_merge_count(const struct gpt_bpe *b);
void gpt_bpe_merge(const struct gpt_bpe *b, size_t rank, int *left, int *right);

/* tokens: room for len_bytes. Returns how many were written; bytes that no token has are left out. -1: no memory.
 * special: special tokens that stand in the text become one, the longest first. One thread at a time: what was
 * encoded is kept. */
long gpt_bpe_encode(struct gpt_bpe *b, const uint8_t *text, size_t len_bytes, bool special, int32_t *tokens);

/*
 * Learn size tokens from a text: all 256 bytes, then the most frequent pair of neighbours within pieces, again and
 * again, of equals the one with the smaller left token, then right one; end, if not NULL, is the last token, a special
 * one. Fewer tokens where the text has no more pairs. size is at least 257. NULL: no memory.
 */
struct gpt_bpe *gpt_bpe_train(const uint8_t *text, size_t len_bytes, int size, const char *end);

#endif
