#include "ddp_gpt_readers.h"
#include "ddp_gpt_text.h"
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

static int read_plain(struct texts *t, const char *path, const struct reader_options *o, char *why, size_t why_bytes)
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

/* The first that takes it counts. */
static const struct reader readers[] = {{"tokens", is_tokens, NULL}, {"text", is_any, read_plain}};

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
