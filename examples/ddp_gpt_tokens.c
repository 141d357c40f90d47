/*
 * Vocabularies and token files, without ranks:
 *
 *	ddp_gpt tokenizer train --size N --to tokenizer.json TEXT..
 *	ddp_gpt tokenize --tokenizer PATH --to FILE.bin [--raw] [--special] TEXT..
 *	ddp_gpt decode --tokenizer PATH [--to TEXT] [--token-bytes N] FILE.bin..
 *
 * Token files are those of gpt/formats/token_file.h. Each text is a document: the end token comes after it, if there is
 * one.
 */
#include "ddp_gpt_tokens.h"
#include "ddp_gpt_text.h"
#include "gpt/dataset.h"
#include "gpt/formats/file.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/token_file.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_MOST (1 << 20)

struct request {
	const char *to, *tokenizer;
	long size, token_bytes;
	bool raw, special;
	char **texts;
	int text_count;
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "ddp_gpt: %s: %s\n", what, why);
	return 1;
}

static int set_size(struct request *r, const char *value)
{
	char *end;

	r->size = strtol(value, &end, 10);
	return *end || r->size < 258 || r->size > SIZE_MOST ? complain("--size", "must be from 258 to 1048576") : 0;
}

static int set_token_bytes(struct request *r, const char *value)
{
	r->token_bytes = strcmp(value, "4") ? 2 : 4;
	return strcmp(value, "4") && strcmp(value, "2") ? complain("--token-bytes", "must be 2 or 4") : 0;
}

/* One flag; its value, if it has one, is at[1]. How many arguments it took; 0: it was said what is wrong. */
static int set_flag(struct request *r, char **at)
{
	if (strcmp(at[0], "--raw") == 0)
		return r->raw = true;
	if (strcmp(at[0], "--special") == 0)
		return r->special = true;
	if (!at[1])
		return complain(at[0], "needs a value"), 0;
	if (strcmp(at[0], "--to") == 0)
		r->to = at[1];
	else if (strcmp(at[0], "--tokenizer") == 0)
		r->tokenizer = at[1];
	else if (strcmp(at[0], "--size") == 0)
		return set_size(r, at[1]) ? 0 : 2;
	else if (strcmp(at[0], "--token-bytes") == 0)
		return set_token_bytes(r, at[1]) ? 0 : 2;
	else
		return complain(at[0], "unknown argument"), 0;
	return 2;
}

static int parse(int argc, char **argv, int first, struct request *r)
{
	int i = first;

	while (i < argc && strncmp(argv[i], "--", 2) == 0) {
		const int took = set_flag(r, argv + i);

		if (took == 0)
			return -1;
		i += took;
	}
	r->texts = argv + i;
	r->text_count = argc - i;
	return i < argc ? 0 : complain(argv[1], "needs files");
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

static int open_tokenizer(const struct request *r, struct gpt_tokenizer *t)
{
	char why[4096 + 256];

	switch (gpt_hf_read_tokenizer(r->tokenizer, t, why, sizeof(why))) {
	case 0: t->special = r->special; return 0;
	case 1: return complain(r->tokenizer, "has no tokenizer");
	default: fprintf(stderr, "ddp_gpt: %s\n", why); return -1;
	}
}

static int tokenize(const struct request *r)
{
	struct gpt_tokenizer t = {0};
	int32_t *tokens;
	size_t count;
	int rc = 1;

	if (open_tokenizer(r, &t))
		return 1;
	tokens = encode_all(r, &t, &count);
	if (tokens && gpt_token_file_write(r->to, tokens, count, t.size, r->raw) == 0)
		rc = printf("ddp_gpt: %zu tokens of %d bytes in %s\n", count, t.size > 65536 ? 4 : 2, r->to) < 0;
	else if (tokens)
		complain(r->to,
		         errno == EFBIG ? "more than 2^31 - 1 tokens: use --raw, or several files" : strerror(errno));
	free(tokens);
	gpt_tokenizer_free(&t);
	return rc;
}

/* ---- Back to text -------------------------------------------------------------------------- */

static int put_text(const struct gpt_tokenizer *t, const struct gpt_token_file *f, const char *path, FILE *to)
{
	for (uint64_t i = 0; i < f->count; i++) {
		const int64_t token = gpt_token_at(f->tokens, f->token_bytes, i);
		const uint8_t *bytes = NULL;
		size_t len_bytes = 0;

		if (token < t->size)
			bytes = gpt_tokenizer_bytes(t, (int)token, &len_bytes);
		if (!bytes) {
			fprintf(stderr, "ddp_gpt: %s: offset %llu: the vocabulary has no token %lld\n", path,
			        (unsigned long long)(f->at_bytes + i * (uint64_t)f->token_bytes), (long long)token);
			return -1;
		}
		if (fwrite(bytes, 1, len_bytes, to) != len_bytes)
			return complain("cannot write the text", strerror(errno));
	}
	return 0;
}

static int decode(const struct request *r)
{
	FILE *to = r->to ? fopen(r->to, "we") : stdout;
	struct gpt_tokenizer t = {0};
	struct gpt_token_file f;
	char why[4096 + 256];
	int rc = 0;

	if (!to)
		return complain(r->to, strerror(errno));
	if (open_tokenizer(r, &t))
		rc = 1;
	for (int i = 0; i < r->text_count && !rc; i++) {
		if (gpt_token_file_open(&f, r->texts[i], (int)r->token_bytes, why, sizeof(why))) {
			fprintf(stderr, "ddp_gpt: %s\n", why);
			rc = 1;
			continue;
		}
		rc = put_text(&t, &f, r->texts[i], to) ? 1 : 0;
		gpt_token_file_close(&f);
	}
	if (to != stdout && fclose(to) && !rc)
		rc = complain(r->to, strerror(errno));
	gpt_tokenizer_free(&t);
	return rc;
}

/* ---- Commands -------------------------------------------------------------------------------- */

static const struct command {
	const char *name, *then; /* then: the word that must follow it */
	bool to, tokenizer;      /* what it cannot do without */
	int (*run)(const struct request *r);
} commands[] = {{"tokenizer", "train", true, false, train},
                {"tokenize", NULL, true, true, tokenize},
                {"decode", NULL, false, true, decode}};

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

bool tokens_wanted(int argc, char **argv)
{
	return argc > 1 && find_command(argv[1]);
}

/* Status 2 for a command line that makes no sense. */
int tokens_main(int argc, char **argv)
{
	const struct command *c = find_command(argv[1]);
	struct request r = {.size = 512, .token_bytes = 2};

	if (c->then && (argc < 3 || strcmp(argv[2], c->then) != 0))
		return complain(argv[1], "must be followed by train"), 2;
	if (parse(argc, argv, c->then ? 3 : 2, &r))
		return 2;
	if (c->tokenizer && !r.tokenizer)
		return complain(argv[1], "needs --tokenizer PATH"), 2;
	if (c->to && !r.to)
		return complain(argv[1], "needs --to FILE"), 2;
	return c->run(&r);
}
