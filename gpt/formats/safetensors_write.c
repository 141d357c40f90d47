/*
 * The header of a safetensors file that is written. Its length is known before the first byte.
 */
#include "gpt/formats/safetensors.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	unsigned size;
} written[] = {[GPT_U8] = {"U8", 1}, [GPT_F16] = {"F16", 2}, [GPT_BF16] = {"BF16", 2}, [GPT_F32] = {"F32", 4}};

/* Longest entry: the name, and six numbers. */
#define ENTRY_BYTES 256

static uint64_t item_bytes(const struct gpt_st_item *item)
{
	uint64_t n = written[item->dtype].size;

	for (int i = 0; i < item->dims; i++)
		n *= item->shape[i];
	return n;
}

/* The header after its length, without padding; free() it. NULL: no memory. */
static char *compose(const struct gpt_st_item *items, size_t count, size_t *len_bytes, uint64_t *data_bytes)
{
	char *text = malloc((count + 2) * ENTRY_BYTES);
	size_t at;
	uint64_t from = 0;

	if (!text)
		return NULL;
	at = (size_t)sprintf(text, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (size_t i = 0; i < count; i++) {
		const struct gpt_st_item *item = &items[i];
		const uint64_t to = from + item_bytes(item);

		at += (size_t)sprintf(text + at, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", item->name,
		                      written[item->dtype].name);
		for (int d = 0; d < item->dims; d++)
			at += (size_t)sprintf(text + at, "%s%" PRIu64, d ? "," : "", item->shape[d]);
		at += (size_t)sprintf(text + at, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", from, to);
		from = to;
	}
	text[at++] = '}';
	*len_bytes = at;
	*data_bytes = from;
	return text;
}

static size_t padded(size_t len_bytes)
{
	return (8 + len_bytes + 63) / 64 * 64 - 8;
}

uint64_t gpt_st_bytes(const struct gpt_st_item *items, size_t count)
{
	size_t len_bytes = 0;
	uint64_t data_bytes = 0;

	free(compose(items, count, &len_bytes, &data_bytes));
	return 8 + padded(len_bytes) + data_bytes;
}

int gpt_st_put_header(struct gpt_sink *sink, const struct gpt_st_item *items, size_t count)
{
	static const char spaces[64] = "                                                                ";
	size_t len_bytes;
	uint64_t data_bytes, all;
	char *text = compose(items, count, &len_bytes, &data_bytes);
	int rc;

	if (!text) {
		errno = ENOMEM;
		return -1;
	}
	all = padded(len_bytes);
	rc = gpt_put(sink, &all, sizeof(all)) || gpt_put(sink, text, len_bytes) ||
	     gpt_put(sink, spaces, all - len_bytes);
	free(text);
	return rc ? -1 : 0;
}
