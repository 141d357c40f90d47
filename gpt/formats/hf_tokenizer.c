/*
 * Tokenizers as files of the library tokenizers: byte-level BPE; vocabularies of bytes are such ones without merges.
 *
 * A byte has a character there: itself, if it is printable in Latin-1, else the next one from U+0100 on. What would
 * encode in another way than gpt/bpe.c is refused by name.
 */
#include "gpt/formats/crc32c.h"
#include "gpt/formats/file.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* The characters of bytes; free() them. */
static char *characters(const uint8_t *bytes, size_t len_bytes, const int *of)
{
	char *text = malloc(2 * len_bytes + 1), *at = text;

	for (size_t i = 0; text && i < len_bytes; i++) {
		encode(of[bytes[i]], at);
		at += strlen(at);
	}
	if (text)
		*at = 0;
	return text;
}

/* A special token is written as it is; NULL: no memory, or the token has no bytes. */
static char *name_of(const struct gpt_tokenizer *t, int token, const int *of)
{
	size_t n;
	const uint8_t *bytes = gpt_tokenizer_bytes(t, token, &n);

	if (bytes && t->bpe && gpt_bpe_is_special(t->bpe, token))
		return strndup((const char *)bytes, n);
	return bytes ? characters(bytes, n, of) : NULL;
}

static json_t *vocabulary(const struct gpt_tokenizer *t, const int *of)
{
	json_t *vocab = json_object();

	for (int i = 0; vocab && i < t->size; i++) {
		char *text = name_of(t, i, of);
		size_t n;

		/* A number without a token is left out. */
		if (text ? json_object_set_new(vocab, text, json_integer(i)) : gpt_tokenizer_bytes(t, i, &n) != NULL) {
			json_decref(vocab);
			vocab = NULL;
		}
		free(text);
	}
	return vocab;
}

static json_t *merges_of(const struct gpt_tokenizer *t, const int *of)
{
	const size_t count = t->bpe ? gpt_bpe_merge_count(t->bpe) : 0;
	json_t *merges = json_array();

	for (size_t i = 0; merges && i < count; i++) {
		int left, right;
		char *l, *r;

		gpt_bpe_merge(t->bpe, i, &left, &right);
		l = name_of(t, left, of);
		r = name_of(t, right, of);
		if (!l || !r || json_array_append_new(merges, json_sprintf("%s %s", l, r))) {
			json_decref(merges);
			merges = NULL;
		}
		free(l);
		free(r);
	}
	return merges;
}

static json_t *added_tokens(const struct gpt_tokenizer *t)
{
	json_t *added = json_array();

	for (int i = 0; added && t->bpe && i < t->size; i++) {
		size_t n;
		const char *bytes = (const char *)gpt_tokenizer_bytes(t, i, &n);

		if (bytes && gpt_bpe_is_special(t->bpe, i))
			json_array_append_new(added, json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", i,
			                                       "content", bytes, n, "single_word", 0, "lstrip", 0,
			                                       "rstrip", 0, "normalized", 0, "special", 1));
	}
	return added;
}

char *gpt_hf_tokenizer_text(const struct gpt_tokenizer *t)
{
	const int split = t->bpe && gpt_bpe_splits(t->bpe);
	json_t *vocab, *merges;
	int of[256];

	make_characters(of);
	vocab = vocabulary(t, of);
	merges = merges_of(t, of);
	if (!vocab || !merges) {
		json_decref(vocab);
		json_decref(merges);
		return NULL;
	}
	return gpt_json_text(json_pack(
	        "{s:s, s:n, s:n, s:o, s:n, s:{s:s, s:b, s:b, s:b}, s:n, s:{s:s, s:b, s:b, s:b},"
	        " s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
	        "version", "1.0", "truncation", "padding", "added_tokens", added_tokens(t), "normalizer",
	        "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex", split,
	        "post_processor", "decoder", "type", "ByteLevel", "add_prefix_space", 1, "trim_offsets", 1, "use_regex",
	        1, "model", "type", "BPE", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
	        "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges));
}

uint32_t gpt_hf_tokenizer_crc32c(const struct gpt_tokenizer *t)
{
	char *text = gpt_hf_tokenizer_text(t);
	const uint32_t crc = text ? gpt_crc32c(0, text, strlen(text)) : 0;

	free(text);
	return crc;
}

/* ---- Reading --------------------------------------------------------------------- */

struct reading {
	const char *path;
	char *why;
	size_t why_bytes;
	int of_character[512]; /* the byte of a code point; -1: none */
	struct gpt_bpe *bpe;
};

#define refuse(r, ...) gpt_explain((r)->why, (r)->why_bytes, (r)->path, __VA_ARGS__)

static void make_bytes(int *of_character)
{
	int of[256];

	make_characters(of);
	memset(of_character, 0xff, 512 * sizeof(*of_character));
	for (int b = 0; b < 256; b++)
		of_character[of[b]] = b;
}

/* The bytes of n characters, written over them; -1: one stands for no byte. */
static long to_bytes(const struct reading *r, uint8_t *text, size_t n)
{
	long count = 0;

	for (size_t i = 0; i < n; i++) {
		int c = text[i];

		if (c >= 0x80 && i + 1 < n && (c & 0xe0) == 0xc0)
			c = (c & 31) << 6 | (text[++i] & 63);
		else if (c >= 0x80)
			return -1;
		if (c >= 512 || r->of_character[c] < 0)
			return -1;
		text[count++] = (uint8_t)r->of_character[c];
	}
	return count;
}

/* The token that these characters name; -1: none. */
static int token_of(const struct reading *r, const char *name, size_t n)
{
	uint8_t *bytes = (uint8_t *)strndup(name, n);
	const long count = bytes ? to_bytes(r, bytes, n) : -1;
	const int token = count > 0 ? gpt_bpe_find(r->bpe, bytes, (size_t)count) : -1;

	free(bytes);
	return token;
}

static bool is_number(const json_t *value, json_int_t below)
{
	return json_is_integer(value) && json_integer_value(value) >= 0 && json_integer_value(value) < below;
}

static int read_added(struct reading *r, const json_t *added)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(added, i, entry)
	{
		const json_t *content = json_object_get(entry, "content"), *id = json_object_get(entry, "id");

		if (!json_is_string(content) || !is_number(id, gpt_bpe_size(r->bpe)) ||
		    gpt_bpe_set(r->bpe, (int)json_integer_value(id), (const uint8_t *)json_string_value(content),
		                json_string_length(content), true))
			return refuse(r, "added token %zu has no content, or a number that is not its own", i);
	}
	return 0;
}

static int read_tokens(struct reading *r, json_t *vocab)
{
	const char *name;
	json_t *value;

	json_object_foreach(vocab, name, value)
	{
		uint8_t *bytes;
		size_t have;
		long n;
		int rc;

		if (!is_number(value, gpt_bpe_size(r->bpe)))
			return refuse(r, "the number of token '%.40s' is not one of 0 to %d", name,
			              gpt_bpe_size(r->bpe) - 1);
		if (gpt_bpe_bytes(r->bpe, (int)json_integer_value(value), &have) &&
		    gpt_bpe_is_special(r->bpe, (int)json_integer_value(value)))
			continue;
		bytes = (uint8_t *)strdup(name);
		n = bytes ? to_bytes(r, bytes, strlen(name)) : -1;
		rc = n < 0 ? -1 : gpt_bpe_set(r->bpe, (int)json_integer_value(value), bytes, (size_t)n, false);
		free(bytes);
		if (rc)
			return refuse(r, "token '%.40s' is not made of characters that stand for bytes, or comes twice",
			              name);
	}
	return 0;
}

/* "left right", or ["left", "right"]. */
static int read_merge(struct reading *r, const json_t *merge)
{
	const char *left = json_string_value(json_array_get(merge, 0)),
	           *right = json_string_value(json_array_get(merge, 1));
	size_t n = left ? strlen(left) : 0;

	if (json_is_string(merge)) {
		left = json_string_value(merge);
		n = strcspn(left, " ");
		right = left[n] ? left + n + 1 : NULL;
	}
	if (!left || !right)
		return -1;
	{
		const int l = token_of(r, left, n), k = token_of(r, right, strlen(right));

		return l < 0 || k < 0 ? -1 : gpt_bpe_add_merge(r->bpe, l, k);
	}
}

static int read_merges(struct reading *r, const json_t *merges)
{
	const json_t *merge;
	size_t i;

	json_array_foreach(merges, i, merge)
	{
		if (read_merge(r, merge))
			return refuse(r, "merge %zu is not of two tokens whose bytes together are a third", i);
	}
	return 0;
}

static bool has_type(const json_t *object, const char *type)
{
	const char *is = json_string_value(json_object_get(object, "type"));

	return is && strcmp(is, type) == 0;
}

static bool absent(const json_t *value)
{
	return !value || json_is_null(value) || json_is_false(value) ||
	       (json_is_string(value) && json_string_length(value) == 0);
}

/* What is read; all else is named. */
static const char *unread(const json_t *root)
{
	static const char *const off[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback",
	                                  "ignore_merges"};
	static const char *const named[] = {"dropout is not read", "continuing_subword_prefix is not read",
	                                    "end_of_word_suffix is not read", "byte_fallback is not read",
	                                    "ignore_merges is not read"};
	const json_t *model = json_object_get(root, "model"), *before = json_object_get(root, "pre_tokenizer");
	const json_t *after = json_object_get(root, "post_processor");

	if (!has_type(model, "BPE") && json_object_get(model, "type"))
		return "the model must be BPE";
	for (size_t i = 0; i < sizeof(off) / sizeof(*off); i++)
		if (!absent(json_object_get(model, off[i])))
			return named[i];
	if (!absent(json_object_get(root, "normalizer")))
		return "a normalizer is not read";
	if (!has_type(before, "ByteLevel") || !absent(json_object_get(before, "add_prefix_space")))
		return "the pre-tokenizer must be ByteLevel without a prefix";
	if (!absent(after) && !has_type(after, "ByteLevel"))
		return "a post-processor other than ByteLevel is not read";
	return NULL;
}

/* One more than the largest number. */
static int size_of(const json_t *vocab, const json_t *added)
{
	json_int_t most = -1;
	const char *name;
	json_t *value;
	size_t i;

	json_object_foreach((json_t *)vocab, name, value) most =
	        json_integer_value(value) > most ? json_integer_value(value) : most;
	json_array_foreach(added, i, value)
	{
		const json_int_t id = json_integer_value(json_object_get(value, "id"));

		most = id > most ? id : most;
	}
	return most < 0 || most >= 1 << 20 ? 0 : (int)most + 1;
}

/* A vocabulary of single bytes, as "char" and "byte" are written; false: it is none. */
static bool is_bytes(const struct gpt_bpe *b, struct gpt_tokenizer *t)
{
	const int size = gpt_bpe_size(b);

	if (gpt_bpe_merge_count(b) || gpt_bpe_splits(b) || size > 256)
		return false;
	memset(t, 0, sizeof(*t));
	memset(t->token_of, 0xff, sizeof(t->token_of));
	for (int i = 0; i < size; i++) {
		size_t n;
		const uint8_t *bytes = gpt_bpe_bytes(b, i, &n);

		if (!bytes || n != 1 || gpt_bpe_is_special(b, i))
			return false;
		t->byte_of[i] = *bytes;
		t->token_of[*bytes] = (int16_t)i;
	}
	t->size = size;
	t->end = -1;
	t->vocab = size == 256 ? GPT_VOCAB_BYTE : GPT_VOCAB_CHAR;
	return true;
}

static int read_root(struct reading *r, const json_t *root, struct gpt_tokenizer *t)
{
	const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
	json_t *vocab = json_object_get(model, "vocab");
	const json_t *regex = json_object_get(json_object_get(root, "pre_tokenizer"), "use_regex");
	const char *problem = unread(root);
	const int size = size_of(vocab, added);

	if (problem)
		return refuse(r, "%s", problem);
	if (!size)
		return refuse(r, "has no vocabulary, or a number above 2^20");
	make_bytes(r->of_character);
	r->bpe = gpt_bpe_open(size, !json_is_false(regex));
	if (!r->bpe)
		return refuse(r, "not enough memory");
	if (read_added(r, added) || read_tokens(r, vocab) || read_merges(r, json_object_get(model, "merges"))) {
		gpt_bpe_close(&r->bpe);
		return -1;
	}
	if (is_bytes(r->bpe, t))
		gpt_bpe_close(&r->bpe);
	else
		gpt_tokenizer_init_bpe(t, r->bpe);
	return 0;
}

int gpt_hf_parse_tokenizer(const char *path, const char *text, size_t len_bytes, struct gpt_tokenizer *t, char *why,
                           size_t why_bytes)
{
	struct reading r = {.path = path, .why = why, .why_bytes = why_bytes};
	json_error_t e;
	json_t *root = json_loadb(text, len_bytes, GPT_JSON_FLAGS, &e);
	int rc;

	if (!root)
		return refuse(&r, "line %d: %s", e.line, e.text);
	rc = read_root(&r, root, t);
	json_decref(root);
	return rc;
}

/* vocab.json and merges.txt, as the first files of GPT-2 are, as one object. */
static json_t *join_files(const char *directory, char *why, size_t why_bytes)
{
	char path[GPT_PATH_MAX], *text = NULL;
	json_t *vocab, *merges = json_array();
	size_t len_bytes;

	if (gpt_path(path, directory, "vocab.json") || !(vocab = gpt_json_read(path, FILE_MAX, why, why_bytes))) {
		json_decref(merges);
		return NULL;
	}
	if (gpt_path(path, directory, "merges.txt") || gpt_file_read(path, FILE_MAX, &text, &len_bytes)) {
		gpt_explain(why, why_bytes, path, "%s", strerror(errno));
		json_decref(vocab);
		json_decref(merges);
		errno = EINVAL;
		return NULL;
	}
	for (char *save = NULL, *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save))
		if (json_array_size(merges) || strncmp(line, "#version", 8) != 0)
			json_array_append_new(merges, json_string(line));
	free(text);
	return json_pack("{s:{s:s}, s:{s:s, s:o, s:o}}", "pre_tokenizer", "type", "ByteLevel", "model", "type", "BPE",
	                 "vocab", vocab, "merges", merges);
}

/* The end token of such files is one of the vocabulary. */
static void name_end(json_t *root)
{
	static const char end[] = "<|endoftext|>";
	const json_t *id = json_object_get(json_object_get(json_object_get(root, "model"), "vocab"), end);

	if (id)
		json_object_set_new(root, "added_tokens",
		                    json_pack("[{s:I, s:s}]", "id", json_integer_value(id), "content", end));
}

int gpt_hf_read_tokenizer(const char *directory, struct gpt_tokenizer *t, char *why, size_t why_bytes)
{
	char path[GPT_PATH_MAX];
	struct reading r = {.path = path, .why = why, .why_bytes = why_bytes};
	struct stat st;
	json_t *root;
	int rc;

	if (stat(directory, &st) == 0 && S_ISREG(st.st_mode))
		snprintf(path, sizeof(path), "%s", directory);
	else if (gpt_path(path, directory, "tokenizer.json"))
		return gpt_explain(why, why_bytes, directory, "the name is too long");
	root = gpt_json_read(path, FILE_MAX, why, why_bytes);
	if (!root && errno == ENOENT) {
		root = join_files(directory, why, why_bytes);
		if (root)
			name_end(root);
	}
	if (!root)
		return errno == ENOENT ? 1 : -1;
	rc = read_root(&r, root, t);
	json_decref(root);
	return rc;
}
