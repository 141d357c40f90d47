/*
 * Files of tokens, mapped and never copied. llm.c's: 256 numbers of 32 bits (magic, version, how many tokens), then the
 * tokens in 16 bits, or in 32 with another magic. nanoGPT's: the tokens alone.
 */
#ifndef GPT_FORMATS_TOKEN_FILE_H
#define GPT_FORMATS_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPT_TOKEN_HEAD_BYTES 1024

struct gpt_token_file {
	const void *tokens;
	int token_bytes; /* 2 or 4 */
	uint64_t count;
	uint64_t at_bytes; /* where in the file the first one is */
	void *map;
	size_t map_bytes;
};

/* Has it the head of llm.c? */
bool gpt_token_file_begins(const void *data, size_t len_bytes);

/* raw_bytes: of a token in a file without a head. -1 with the reason in why: a count that does not fit the file, an
 * odd size, no tokens. */
int gpt_token_file_open(struct gpt_token_file *f, const char *path, int raw_bytes, char *why, size_t why_bytes);
void gpt_token_file_close(struct gpt_token_file *f);

/* A number that differs where files do: the CRC-32C of the length and of 64 pages, spread evenly. */
uint32_t gpt_token_file_crc32c(const struct gpt_token_file *f);

/* Tokens below vocab, in 16 bits where they fit; raw: without a head. -1 with errno; EFBIG: too many for a head. */
int gpt_token_file_write(const char *path, const int32_t *tokens, size_t count, int vocab, bool raw);

#endif
