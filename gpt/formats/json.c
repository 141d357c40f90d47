/*
 * jansson, called in one way: lengths are ours, keys keep their order, a name twice is refused.
 */
#include "gpt/formats/json.h"
#include "gpt/formats/crc32c.h"
#include "gpt/formats/file.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gpt_explain(char *why, size_t why_bytes, const char *path, const char *format, ...)
{
	const int n = snprintf(why, why_bytes, "%s: ", path);
	va_list args;

	va_start(args, format);
	if (n >= 0 && (size_t)n < why_bytes)
		vsnprintf(why + n, why_bytes - (size_t)n, format, args);
	va_end(args);
	return -1;
}

/* ,"crc32c":"9ae0daaf"} */
#define SEAL       ",\"crc32c\":\"%08" PRIx32 "\"}\n"
#define SEAL_BYTES (11 + 8 + 3)

static bool sealed(const char *text, size_t len_bytes)
{
	char seal[SEAL_BYTES + 1];

	if (len_bytes < SEAL_BYTES)
		return false;
	snprintf(seal, sizeof(seal), SEAL, gpt_crc32c(0, text, len_bytes - SEAL_BYTES));
	return memcmp(seal, text + len_bytes - SEAL_BYTES, SEAL_BYTES) == 0;
}

static json_t *read_object(const char *path, size_t most_bytes, bool with_seal, char *why, size_t why_bytes)
{
	json_error_t e;
	json_t *root;
	size_t len_bytes;
	char *text;

	if (gpt_file_read(path, most_bytes, &text, &len_bytes)) {
		const int cause = errno;

		gpt_explain(why, why_bytes, path, "%s", strerror(cause));
		errno = cause;
		return NULL;
	}
	if (with_seal && !sealed(text, len_bytes)) {
		free(text);
		errno = EINVAL;
		gpt_explain(why, why_bytes, path, "damaged, or cut off: its checksum is not that of its text");
		return NULL;
	}
	root = json_loadb(text, len_bytes, GPT_JSON_FLAGS, &e);
	free(text);
	errno = EINVAL;
	if (!root) {
		gpt_explain(why, why_bytes, path, "byte %d, line %d: %s", e.position, e.line, e.text);
		return NULL;
	}
	if (!json_is_object(root)) {
		gpt_explain(why, why_bytes, path, "not a JSON object");
		json_decref(root);
		return NULL;
	}
	return root;
}

json_t *gpt_json_read(const char *path, size_t most_bytes, char *why, size_t why_bytes)
{
	return read_object(path, most_bytes, false, why, why_bytes);
}

json_t *gpt_json_read_sealed(const char *path, size_t most_bytes, char *why, size_t why_bytes)
{
	return read_object(path, most_bytes, true, why, why_bytes);
}

char *gpt_json_sealed_text(json_t *root)
{
	char *text = gpt_json_text(root), *grown;
	size_t len;

	if (!text)
		return NULL;
	len = strlen(text) - 1; /* without the brace that closes it */
	grown = realloc(text, len + SEAL_BYTES + 1);
	if (!grown) {
		free(text);
		return NULL;
	}
	snprintf(grown + len, SEAL_BYTES + 1, SEAL, gpt_crc32c(0, grown, len));
	return grown;
}

char *gpt_json_text(json_t *root)
{
	char *text = root ? json_dumps(root, JSON_REAL_PRECISION(15) | JSON_INDENT(1)) : NULL;

	json_decref(root);
	return text;
}

int gpt_json_write(const char *path, json_t *root)
{
	char *text = gpt_json_text(root);
	int rc;

	if (!text) {
		errno = ENOMEM;
		return -1;
	}
	rc = gpt_file_replace(path, text, strlen(text));
	free(text);
	return rc;
}

json_t *gpt_json_u64(uint64_t x)
{
	return json_sprintf("%" PRIu64, x);
}

bool gpt_json_get_u64(const json_t *object, const char *key, uint64_t *x)
{
	const char *text = json_string_value(json_object_get(object, key));
	char *end;

	if (!text || *text < '0' || *text > '9')
		return false;
	errno = 0;
	*x = strtoull(text, &end, 10);
	return !*end && !errno;
}
