#include "gpt/tokenizer.h"
#include <assert.h>
#include <string.h>

#define END "<|endoftext|>"

void gpt_tokenizer_init(struct gpt_tokenizer *t, enum gpt_vocab vocab, const uint8_t *text, size_t len_bytes)
{
	bool used[256];

	memset(used, vocab == GPT_VOCAB_BYTE, sizeof(used));
	for (size_t i = 0; i < len_bytes; i++)
		used[text[i]] = true;
	memset(t, 0, sizeof(*t));
	t->vocab = vocab;
	t->end = -1;
	for (int b = 0; b < 256; b++) {
		t->token_of[b] = used[b] ? (int16_t)t->size : -1;
		if (used[b])
			t->byte_of[t->size++] = (uint8_t)b;
	}
}

void gpt_tokenizer_init_bpe(struct gpt_tokenizer *t, struct gpt_bpe *bpe)
{
	memset(t, 0, sizeof(*t));
	t->vocab = GPT_VOCAB_BPE;
	t->bpe = bpe;
	t->size = gpt_bpe_size(bpe);
	t->end = gpt_bpe_find(bpe, (const uint8_t *)END, strlen(END));
}

void gpt_tokenizer_free(struct gpt_tokenizer *t)
{
	gpt_bpe_close(&t->bpe);
}

long gpt_tokenizer_encode(const struct gpt_tokenizer *t, const uint8_t *text, size_t len_bytes, int32_t *tokens)
{
	long n = 0;

	if (t->bpe)
		return gpt_bpe_encode(t->bpe, text, len_bytes, t->special, tokens);
	for (size_t i = 0; i < len_bytes; i++)
		if (t->token_of[text[i]] >= 0)
			tokens[n++] = t->token_of[text[i]];
	return n;
}

const uint8_t *gpt_tokenizer_bytes(const struct gpt_tokenizer *t, int token, size_t *len_bytes)
{
	*len_bytes = 1;
	return t->bpe ? gpt_bpe_bytes(t->bpe, token, len_bytes) : &t->byte_of[token];
}

bool gpt_tokenizer_knows(const struct gpt_tokenizer *t, uint8_t byte)
{
	return t->bpe ? gpt_bpe_find(t->bpe, &byte, 1) >= 0 : t->token_of[byte] >= 0;
}

int gpt_tokenizer_start(const struct gpt_tokenizer *t)
{
	const int line = t->bpe ? gpt_bpe_find(t->bpe, (const uint8_t *)"\n", 1) : t->token_of['\n'];

	return t->end >= 0 ? t->end : line >= 0 ? line : 0;
}
