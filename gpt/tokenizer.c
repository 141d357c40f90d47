#include "gpt/tokenizer.h"
#include <assert.h>
#include <string.h>

void gpt_tokenizer_init(struct gpt_tokenizer *t, enum gpt_vocab vocab, const uint8_t *text, size_t len_bytes)
{
	bool used[256];

	memset(used, vocab == GPT_VOCAB_BYTE, sizeof(used));
	for (size_t i = 0; i < len_bytes; i++)
		used[text[i]] = true;
	t->vocab = vocab;
	t->size = 0;
	for (int b = 0; b < 256; b++) {
		t->token_of[b] = used[b] ? (int16_t)t->size : -1;
		if (used[b])
			t->byte_of[t->size++] = (uint8_t)b;
	}
}

size_t gpt_tokenizer_encode(const struct gpt_tokenizer *t, const uint8_t *text, size_t len_bytes, int32_t *tokens)
{
	size_t n = 0;

	for (size_t i = 0; i < len_bytes; i++)
		if (t->token_of[text[i]] >= 0)
			tokens[n++] = t->token_of[text[i]];
	return n;
}
