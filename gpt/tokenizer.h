/*
 * Text to tokens and back, byte by byte. "byte": token = byte value. "char":
 * the distinct bytes of a text in ascending order, so that the vocabulary is
 * no larger than the text needs. Both give any byte string back unchanged,
 * UTF-8 included.
 */
#ifndef GPT_TOKENIZER_H
#define GPT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpt_vocab { GPT_VOCAB_CHAR, GPT_VOCAB_BYTE };

struct gpt_tokenizer {
	enum gpt_vocab vocab;
	int size;
	uint8_t byte_of[256];  /* the first size entries count */
	int16_t token_of[256]; /* -1: the byte is not in the vocabulary */
};

void gpt_tokenizer_init(struct gpt_tokenizer *t, enum gpt_vocab vocab, const uint8_t *text, size_t len_bytes);

/* tokens: room for len_bytes. Bytes outside the vocabulary are left out;
 * returns how many tokens were written. */
size_t gpt_tokenizer_encode(const struct gpt_tokenizer *t, const uint8_t *text, size_t len_bytes, int32_t *tokens);

#endif
