/*
 * The tokenizers of vocabularies of bytes, as files of the library tokenizers: byte-level BPE without merges.
 *
 * A byte has a character there: itself, if it is printable in Latin-1, else the next one from U+0100 on. Vocabularies
 * with merges are refused: nothing here encodes with them.
 */
#include "gpt/formats/crc32c.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (64 << 20)

static bool printable(int byte)
{
	return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* The code point of each byte. */
static void make_characters(int *of)
{
	int next = 256;

	for (int b = 0; b < 256; b++)
		of[b] = printable(b) ? b : next++;
}

/* UTF-8 of a code point below U+0800. */
static void encode(int c, char *text)
{
	if (c < 128) {
		text[0] = (char)c;
		text[1] = 0;
		return;
	}
	text[0] = (char)(0xc0 | c >> 6);
	text[1] = (char)(0x80 | (c & 63));
	text[2] = 0;
}

static json_t *vocabulary(const struct gpt_tokenizer *t)
{
	json_t *vocab = json_object();
	int of[256];
	char text[3];

	make_characters(of);
	for (int i = 0; vocab && i < t->size; i++) {
		encode(of[t->byte_of[i]], text);
		if (json_object_set_new(vocab, text, json_integer(i))) {
			json_decref(vocab);
			return NULL;
		}
	}
	return vocab;
}

char *gpt_hf_tokenizer_text(const struct gpt_tokenizer *t)
{
	json_t *vocab = vocabulary(t);

	if (!vocab)
		return NULL;
	return gpt_json_text(json_pack(
	        "{s:s, s:n, s:n, s:[], s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b},"
	        " s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}}",
	        "version", "1.0", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "type",
	        "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", 0, "post_processor", "decoder",
	        "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1, "model", "type", "BPE",
	        "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
	        "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges"));
}

uint32_t gpt_hf_tokenizer_crc32c(const struct gpt_tokenizer *t)
{
	char *text = gpt_hf_tokenizer_text(t);
	const uint32_t crc = text ? gpt_crc32c(0, text, strlen(text)) : 0;

	free(text);
	return crc;
}

/* The byte that stands behind a token; -1: it is not one byte. */
static int byte_of(const char *token, const int *of)
{
	char text[3];

	for (int b = 0; b < 256; b++) {
		encode(of[b], text);
		if (strcmp(text, token) == 0)
			return b;
	}
	return -1;
}

static int read_vocabulary(const char *path, json_t *vocab, struct gpt_tokenizer *t, char *why, size_t why_bytes)
{
	const size_t size = json_object_size(vocab);
	bool used[256] = {false};
	const char *token;
	json_t *value;
	int of[256];

	make_characters(of);
	memset(t, 0, sizeof(*t));
	memset(t->token_of, 0xff, sizeof(t->token_of));
	if (size < 1 || size > 256)
		return gpt_explain(why, why_bytes, path, "a vocabulary of %zu tokens: only those of bytes are read",
		                   size);
	json_object_foreach(vocab, token, value)
	{
		const int byte = byte_of(token, of);
		const json_int_t id = json_integer_value(value);

		if (byte < 0)
			return gpt_explain(why, why_bytes, path, "token '%.40s' is not one byte", token);
		if (!json_is_integer(value) || id < 0 || id >= (json_int_t)size || used[id])
			return gpt_explain(why, why_bytes, path, "the number of token '%.40s' is not one of 0 to %zu",
			                   token, size - 1);
		used[id] = true;
		t->byte_of[id] = (uint8_t)byte;
		t->token_of[byte] = (int16_t)id;
	}
	t->size = (int)size;
	t->vocab = size == 256 ? GPT_VOCAB_BYTE : GPT_VOCAB_CHAR;
	return 0;
}

static bool has_type(const json_t *object, const char *type)
{
	const char *is = json_string_value(json_object_get(object, "type"));

	return is && strcmp(is, type) == 0;
}

static bool absent(const json_t *value)
{
	return !value || json_is_null(value) || json_is_false(value);
}

/* What makes a token of a byte is read; all else is named. */
static const char *unread(const json_t *root)
{
	const json_t *model = json_object_get(root, "model"), *before = json_object_get(root, "pre_tokenizer");

	if (!has_type(model, "BPE"))
		return "the model must be BPE";
	if (json_array_size(json_object_get(model, "merges")))
		return "a vocabulary with merges is not read";
	if (json_array_size(json_object_get(root, "added_tokens")))
		return "added tokens are not read";
	if (!absent(json_object_get(root, "normalizer")))
		return "a normalizer is not read";
	if (!has_type(before, "ByteLevel") || !absent(json_object_get(before, "add_prefix_space")))
		return "the pre-tokenizer must be ByteLevel without a prefix";
	return NULL;
}

int gpt_hf_read_tokenizer(const char *directory, struct gpt_tokenizer *t, char *why, size_t why_bytes)
{
	char path[4096];
	const char *problem;
	json_t *root;
	int rc;

	if ((size_t)snprintf(path, sizeof(path), "%s/tokenizer.json", directory) >= sizeof(path))
		return gpt_explain(why, why_bytes, directory, "the name is too long");
	root = gpt_json_read(path, FILE_MAX, why, why_bytes);
	if (!root)
		return errno == ENOENT ? 1 : -1;
	problem = unread(root);
	rc = problem ? gpt_explain(why, why_bytes, path, "%s", problem)
	             : read_vocabulary(path, json_object_get(json_object_get(root, "model"), "vocab"), t, why,
	                               why_bytes);
	json_decref(root);
	return rc;
}
