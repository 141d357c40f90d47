/*
 * Vocabularies and token files, without ranks:
 *
 *	ddp_gpt tokenizer train --size N --to tokenizer.json TEXT..
 *	ddp_gpt tokenize --tokenizer PATH --to FILE.bin [--raw] TEXT..
 *
 * A token file is llm.c's: 256 numbers of 32 bits (magic, version, how many tokens), then the tokens in 16 bits, or in
 * 32 where the vocabulary is larger. --raw leaves the numbers before them out, as nanoGPT does. Each text is a
 * document: the end token comes after it, if there is one.
 */
#include "ddp_gpt_tokens.h"
#include "ddp_gpt_text.h"
#include "gpt/formats/file.h"
#include "gpt/formats/hf.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_16   20240520
#define VERSION_16 1
#define MAGIC_32   20240801
#define VERSION_32 7
#define HEAD       256
#define SIZE_MOST  (1 << 20)

struct request {
	const char *to, *tokenizer;
	long size;
	bool raw;
	char **texts;
	int text_count;
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "ddp_gpt: %s: %s\n", what, why);
	return 1;
}

/* Status 2 for a command line that makes no sense. */
static int parse(int argc, char **argv, int first, struct request *r)
{
	r->texts = argv + argc;
	for (int i = first; i < argc; i++) {
		const char *arg = argv[i];
		char *end;

		if (strncmp(arg, "--", 2) != 0) {
			r->texts = argv + i;
			r->text_count = argc - i;
			break;
		}
		if (strcmp(arg, "--raw") == 0) {
			r->raw = true;
			continue;
		}
		if (i + 1 == argc)
			return complain(arg, "needs a value"), 2;
		if (strcmp(arg, "--to") == 0)
			r->to = argv[++i];
		else if (strcmp(arg, "--tokenizer") == 0)
			r->tokenizer = argv[++i];
		else if (strcmp(arg, "--size") == 0) {
			r->size = strtol(argv[++i], &end, 10);
			if (*end || r->size < 258 || r->size > SIZE_MOST)
				return complain("--size", "must be from 258 to 1048576"), 2;
		} else
			return complain(arg, "unknown argument"), 2;
	}
	if (!r->to || !r->text_count)
		return complain(argv[1], "needs --to FILE and texts"), 2;
	return 0;
}

/* ---- Training ------------------------------------------------------------------------- */

/* All texts, one after the other. */
static int read_all(const struct request *r, uint8_t **all, size_t *len_bytes)
{
	char why[512];

	*all = NULL;
	*len_bytes = 0;
	for (int i = 0; i < r->text_count; i++) {
		uint8_t *text, *grown;
		size_t n;

		if (text_read(r->texts[i], &text, &n, why, sizeof(why))) {
			fprintf(stderr, "ddp_gpt: %s\n", why);
			return -1;
		}
		grown = realloc(*all, *len_bytes + n);
		if (!grown) {
			free(text);
			complain(r->texts[i], "not enough memory");
			return -1;
		}
		*all = grown;
		memcpy(grown + *len_bytes, text, n);
		*len_bytes += n;
		free(text);
	}
	return 0;
}

static int train(const struct request *r)
{
	struct gpt_tokenizer t = {0};
	struct gpt_bpe *bpe = NULL;
	uint8_t *all;
	size_t len_bytes;
	char *text = NULL;
	int rc = 1;

	if (read_all(r, &all, &len_bytes) == 0)
		bpe = gpt_bpe_train(all, len_bytes, (int)r->size, "<|endoftext|>");
	if (bpe) {
		gpt_tokenizer_init_bpe(&t, bpe);
		text = gpt_hf_tokenizer_text(&t);
	}
	if (!text)
		complain(r->to, "not enough memory");
	else if (gpt_file_replace(r->to, text, strlen(text)))
		complain(r->to, strerror(errno));
	else
		rc = printf("ddp_gpt: %d tokens, %zu merges, of %zu bytes\n", t.size, gpt_bpe_merge_count(bpe),
		            len_bytes) < 0;
	free(text);
	free(all);
	gpt_tokenizer_free(&t);
	return rc;
}

/* ---- Token files ------------------------------------------------------------------------ */

static int put_tokens(struct gpt_sink *sink, const int32_t *tokens, size_t count, bool wide)
{
	uint16_t narrow[4096];

	if (wide)
		return gpt_put(sink, tokens, count * sizeof(*tokens));
	for (size_t i = 0; i < count; i += 4096) {
		const size_t n = count - i < 4096 ? count - i : 4096;

		for (size_t k = 0; k < n; k++)
			narrow[k] = (uint16_t)tokens[i + k];
		if (gpt_put(sink, narrow, n * sizeof(*narrow)))
			return -1;
	}
	return 0;
}

/* The tokens of all texts; free() them. NULL: it was said why. */
static int32_t *encode_all(const struct request *r, const struct gpt_tokenizer *t, size_t *count)
{
	int32_t *tokens = NULL;
	char why[512];

	*count = 0;
	for (int i = 0; i < r->text_count; i++) {
		uint8_t *text = NULL;
		size_t len_bytes;
		int32_t *grown = NULL;
		long n = -1;

		snprintf(why, sizeof(why), "%s: not enough memory", r->texts[i]);
		if (text_read(r->texts[i], &text, &len_bytes, why, sizeof(why)) == 0)
			grown = realloc(tokens, (*count + len_bytes + 1) * sizeof(*tokens));
		if (grown) {
			tokens = grown;
			n = gpt_tokenizer_encode(t, text, len_bytes, tokens + *count);
		}
		free(text);
		if (n < 0) {
			fprintf(stderr, "ddp_gpt: %s\n", why);
			free(tokens);
			return NULL;
		}
		*count += (size_t)n;
		if (t->end >= 0)
			tokens[(*count)++] = t->end;
	}
	return tokens;
}

static int write_tokens(const struct request *r, const int32_t *tokens, size_t count, int vocab)
{
	const bool wide = vocab > 65536;
	int32_t head[HEAD] = {wide ? MAGIC_32 : MAGIC_16, wide ? VERSION_32 : VERSION_16, (int32_t)count};
	struct gpt_file f;

	if (!r->raw && count > INT32_MAX)
		return complain(r->to, "more than 2^31 - 1 tokens: use --raw, or several files");
	if (gpt_file_create(&f, r->to))
		return complain(r->to, strerror(errno));
	if (gpt_file_close(&f, (r->raw || !gpt_put(&f.sink, head, sizeof(head))) &&
	                               !put_tokens(&f.sink, tokens, count, wide)))
		return complain(r->to, strerror(errno));
	return printf("ddp_gpt: %zu tokens of %d bytes in %s\n", count, wide ? 4 : 2, r->to) < 0;
}

static int tokenize(const struct request *r)
{
	struct gpt_tokenizer t = {0};
	char why[4096 + 256];
	int32_t *tokens;
	size_t count;
	int rc = 1;

	if (!r->tokenizer)
		return complain("tokenize", "needs --tokenizer PATH"), 2;
	switch (gpt_hf_read_tokenizer(r->tokenizer, &t, why, sizeof(why))) {
	case 0: break;
	case 1: return complain(r->tokenizer, "has no tokenizer");
	default: fprintf(stderr, "ddp_gpt: %s\n", why); return 1;
	}
	tokens = encode_all(r, &t, &count);
	if (tokens)
		rc = write_tokens(r, tokens, count, t.size);
	free(tokens);
	gpt_tokenizer_free(&t);
	return rc;
}

bool tokens_wanted(int argc, char **argv)
{
	return argc > 1 && (strcmp(argv[1], "tokenizer") == 0 || strcmp(argv[1], "tokenize") == 0);
}

int tokens_main(int argc, char **argv)
{
	struct request r = {.size = 512};
	const bool training = strcmp(argv[1], "tokenizer") == 0;
	int rc;

	if (training && (argc < 3 || strcmp(argv[2], "train") != 0))
		return complain("tokenizer", "must be followed by train"), 2;
	rc = parse(argc, argv, training ? 3 : 2, &r);
	return rc ? rc : training ? train(&r) : tokenize(&r);
}
