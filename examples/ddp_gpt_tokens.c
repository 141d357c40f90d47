/*
 * Vocabularies and token files, without ranks:
 *
 *	ddp_gpt tokenizer train --size N --to tokenizer.json TEXT..
 *	ddp_gpt tokenize --tokenizer PATH --to FILE.bin [--raw] [--special] TEXT..
 *	ddp_gpt decode --tokenizer PATH [--to TEXT] [--token-bytes N] FILE.bin..
 *
 * Token files are those of gpt/formats/token_file.h. TEXT is what --data takes, with --field and --skip-bad. The end
 *token comes behind each document, if there is one.
 */
#include "ddp_gpt_tokens.h"
#include "ddp_gpt_readers.h"
#include "ddp_gpt_sources.h"
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
	const char *to, *tokenizer, *field;
	long size, token_bytes, skip_bad;
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
	r->token_bytes = strcmp(value, "4") == 0 ? 4 : 2;
	return r->token_bytes == 2 && strcmp(value, "2") != 0 ? complain("--token-bytes", "must be 2 or 4") : 0;
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
	else if (strcmp(at[0], "--field") == 0)
		r->field = at[1];
	else if (strcmp(at[0], "--skip-bad") == 0)
		r->skip_bad = atol(at[1]);
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

static int read_file(struct texts *all, const char *path, struct reader_options *o)
{
	const struct reader *r = reader_find(path);
	char why[4096 + 256];

	if (!r->read)
		return complain(path, "is a file of tokens already");
	if (r->read(all, path, o, why, sizeof(why)) == 0)
		return 0;
	fprintf(stderr, "ddp_gpt: %s\n", why);
	return -1;
}

/* All documents, one after the other. */
static int read_all(const struct request *r, struct texts *all)
{
	struct reader_options o = {r->field, r->skip_bad, false};
	char why[4096 + 256];
	int rc = 0;

	for (int i = 0; i < r->text_count && !rc; i++) {
		struct source_files files;

		if (source_expand(r->texts[i], &files, why, sizeof(why))) {
			fprintf(stderr, "ddp_gpt: %s\n", why);
			return -1;
		}
		for (int k = 0; k < files.count && !rc; k++)
			rc = read_file(all, files.paths[k], &o);
		source_free(&files);
	}
	return rc;
}

static int train(const struct request *r)
{
	struct gpt_tokenizer t = {0};
	struct gpt_bpe *bpe = NULL;
	struct texts all = {0};
	char *text = NULL;
	int rc = 1;

	if (read_all(r, &all))
		goto out;
	bpe = gpt_bpe_train(all.bytes, all.len_bytes, (int)r->size, "<|endoftext|>");
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
		            all.len_bytes) < 0;
out:
	free(text);
	free(all.bytes);
	free(all.ends);
	gpt_tokenizer_free(&t);
	return rc;
}

/* ---- Token files ------------------------------------------------------------------------ */

/* The tokens of all documents, the end token behind each; free() them. NULL: it was said why. */
static int32_t *encode_all(const struct request *r, const struct gpt_tokenizer *t, size_t *count)
{
	struct texts all = {0};
	int32_t *tokens = NULL;
	size_t at = 0;

	*count = 0;
	if (read_all(r, &all))
		goto out;
	tokens = malloc((all.len_bytes + all.count + 1) * sizeof(*tokens));
	for (size_t i = 0; i < all.count && tokens; at = all.ends[i++]) {
		const long n = gpt_tokenizer_encode(t, all.bytes + at, all.ends[i] - at, tokens + *count);

		if (n < 0) {
			free(tokens);
			tokens = NULL;
			break;
		}
		*count += (size_t)n;
		if (t->end >= 0)
			tokens[(*count)++] = t->end;
	}
	if (!tokens)
		complain(r->to, "not enough memory");
out:
	free(all.bytes);
	free(all.ends);
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
	struct request r = {.size = 512, .token_bytes = 2, .field = "text"};

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
