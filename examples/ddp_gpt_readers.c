#include "ddp_gpt_readers.h"
#include "ddp_gpt_text.h"
#include "gpt/formats/jsonl.h"
#include "gpt/formats/token_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Documents ------------------------------------------------------------------------- */

static int grow(void **at, size_t *room, size_t wanted, size_t each)
{
	size_t to = *room ? *room : 256;
	void *grown;

	if (wanted <= *room)
		return 0;
	while (to < wanted)
		to *= 2;
	grown = realloc(*at, to * each);
	if (!grown)
		return -1;
	*at = grown;
	*room = to;
	return 0;
}

int texts_add(struct texts *t, const void *bytes, size_t len_bytes)
{
	void *all = t->bytes, *ends = t->ends;
	int rc = grow(&all, &t->room_bytes, t->len_bytes + len_bytes, 1) |
	         grow(&ends, &t->room, t->count + 1, sizeof(*t->ends));

	t->bytes = all;
	t->ends = ends;
	if (rc)
		return -1;
	memcpy(t->bytes + t->len_bytes, bytes, len_bytes);
	t->len_bytes += len_bytes;
	t->ends[t->count++] = t->len_bytes;
	return 0;
}

/* ---- Kinds --------------------------------------------------------------------------------- */

static bool ends_with(const char *path, const char *ending)
{
	const size_t n = strlen(path), m = strlen(ending);

	return n >= m && strcmp(path + n - m, ending) == 0;
}

static bool is_tokens(const char *path, const uint8_t *head, size_t len_bytes)
{
	return ends_with(path, ".bin") || gpt_token_file_begins(head, len_bytes);
}

static bool is_any(const char *path, const uint8_t *head, size_t len_bytes)
{
	return true;
}

static int read_plain(struct texts *t, const char *path, struct reader_options *o, char *why, size_t why_bytes)
{
	uint8_t *text;
	size_t len_bytes;
	int rc;

	if (text_read(path, &text, &len_bytes, why, why_bytes))
		return -1;
	rc = texts_add(t, text, len_bytes);
	if (rc)
		snprintf(why, why_bytes, "%s: not enough memory", path);
	free(text);
	return rc;
}

static bool is_jsonl(const char *path, const uint8_t *head, size_t len_bytes)
{
	return ends_with(path, ".jsonl") || ends_with(path, ".ndjson");
}

static bool is_blank(const char *p, size_t n)
{
	while (n && (*p == ' ' || *p == '\t' || *p == '\r'))
		p++, n--;
	return n == 0;
}

/* A line that is damaged: where, and whether it may be left out. */
static int meet_bad_line(struct reader_options *o, const char *path, size_t number, size_t offset, const char *what,
                         char *why, size_t why_bytes)
{
	snprintf(why, why_bytes, "%s: line %zu, offset %zu: %s", path, number, offset, what);
	if (o->skip_bad == 0)
		return -1;
	o->skip_bad--;
	if (!o->told)
		printf("ddp_gpt: left out: %s; others are not named\n", why);
	o->told = true;
	return 0;
}

/* Each line is a document. scratch has room for the longest. */
static int read_lines(struct texts *t, const char *path, const char *text, size_t len_bytes, uint8_t *scratch,
                      struct reader_options *o, char *why, size_t why_bytes)
{
	size_t number = 1, at;
	char what[256];

	for (size_t from = 0; from < len_bytes; number++) {
		const char *line = text + from, *end = memchr(line, '\n', len_bytes - from);
		const size_t n = end ? (size_t)(end - line) : len_bytes - from;
		const long got =
		        is_blank(line, n) ? -2 : gpt_jsonl_field(line, n, o->field, scratch, &at, what, sizeof(what));

		if (got == -1 && meet_bad_line(o, path, number, from + at, what, why, why_bytes))
			return -1;
		if (got > 0 && texts_add(t, scratch, (size_t)got)) {
			snprintf(why, why_bytes, "%s: not enough memory", path);
			return -1;
		}
		from += n + 1;
	}
	return 0;
}

static int read_jsonl(struct texts *t, const char *path, struct reader_options *o, char *why, size_t why_bytes)
{
	uint8_t *text, *scratch;
	size_t len_bytes;
	int rc = -1;

	if (text_read(path, &text, &len_bytes, why, why_bytes))
		return -1;
	snprintf(why, why_bytes, "%s: not enough memory", path);
	scratch = malloc(len_bytes);
	if (scratch)
		rc = read_lines(t, path, (const char *)text, len_bytes, scratch, o, why, why_bytes);
	free(scratch);
	free(text);
	return rc;
}

/* The first that takes it counts. */
static const struct reader readers[] = {
        {"tokens", is_tokens, NULL}, {"jsonl", is_jsonl, read_jsonl}, {"text", is_any, read_plain}};

const struct reader *reader_find(const char *path)
{
	const struct reader *r = readers;
	uint8_t head[64];
	size_t n = 0;
	/* Not of a pipe: what is read is gone. */
	FILE *f = text_is_file(path) ? fopen(path, "re") : NULL;

	if (f) {
		n = fread(head, 1, sizeof(head), f);
		fclose(f);
	}
	while (!r->takes(path ? path : "", head, n))
		r++;
	return r;
}
