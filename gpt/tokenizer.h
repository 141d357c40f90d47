/*
 * Text to tokens and back. "byte": token = byte value. "char": the distinct bytes
 * of a text in ascending order, so that the vocabulary is no larger than the text
 * needs. Both give any byte string back unchanged, UTF-8 included. "bpe": pieces
 * of several bytes, of a file (gpt/bpe.h).
 */
#ifndef GPT_TOKENIZER_H
#define GPT_TOKENIZER_H

#include "gpt/bpe.h"

enum gpt_vocab { GPT_VOCAB_CHAR, GPT_VOCAB_BYTE, GPT_VOCAB_BPE };

struct gpt_tokenizer {
	enum gpt_vocab vocab;
	int size;
	uint8_t byte_of[256];  /* the first size entries count */
	int16_t token_of[256]; /* -1: the byte is not in the vocabulary */
	/* Of GPT_VOCAB_BPE; copies of the struct share it, and one of them is given to gpt_tokenizer_free(). */
	struct gpt_bpe *bpe;
	int end;      /* the token between documents; -1: none */
	bool special; /* special tokens that stand in texts become one; false: they are text */
};

void gpt_tokenizer_init(struct gpt_tokenizer *t, enum gpt_vocab vocab, const uint8_t *text, size_t len_bytes);
void gpt_tokenizer_init_bpe(struct gpt_tokenizer *t, struct gpt_bpe *bpe);
void gpt_tokenizer_free(struct gpt_tokenizer *t);

/* tokens: room for len_bytes. Bytes outside the vocabulary are left out;
 * returns how many tokens were written. -1: no memory, BPE only. */
long gpt_tokenizer_encode(const struct gpt_tokenizer *t, const uint8_t *text, size_t len_bytes, int32_t *tokens);

/* The bytes of a token, which stay the tokenizer's. */
const uint8_t *gpt_tokenizer_bytes(const struct gpt_tokenizer *t, int token, size_t *len_bytes);
bool gpt_tokenizer_knows(const struct gpt_tokenizer *t, uint8_t byte);
/* What a text without a prompt begins after. */
int gpt_tokenizer_start(const struct gpt_tokenizer *t);

#endif
