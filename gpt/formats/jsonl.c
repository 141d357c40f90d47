/*
 * The scanner takes nothing that jansson would refuse, and gives the same text (tested on damaged lines).
 */
#include "gpt/formats/jsonl.h"
#include "gpt/formats/json.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define KEYS 16 /* of a plain line, at most: each is compared with all before */

struct scan {
	const char *p, *end;
	struct key {
		const char *at;
		size_t len;
	} keys[KEYS];
	int count;
};

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
		s->p++;
}

static bool take(struct scan *s, char c)
{
	skip_space(s);
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

/* Bytes of the character of UTF-8 at p; 0: it is none (RFC 3629). */
static size_t character(const uint8_t *p, const uint8_t *end)
{
	const uint8_t c = *p;
	const size_t n = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;

	if (n == 0 || (size_t)(end - p) < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	/* Longer than it need be, a surrogate, or beyond the last plane. */
	if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) || (c == 0xf0 && p[1] < 0x90) ||
	    (c == 0xf4 && p[1] > 0x8f))
		return 0;
	return n;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* \uXXXX of the first plane; what is half of a pair is not plain. Bytes written; 0: not plain. */
static size_t put_code(struct scan *s, uint8_t *out)
{
	int code = 0;

	if (s->end - s->p < 4)
		return 0;
	for (int i = 0; i < 4; i++) {
		const int h = hex(*s->p++);

		if (h < 0)
			return 0;
		code = 16 * code + h;
	}
	if (code == 0 || (code >= 0xd800 && code < 0xe000))
		return 0;
	if (code < 0x80) {
		out[0] = (uint8_t)code;
		return 1;
	}
	if (code < 0x800) {
		out[0] = (uint8_t)(0xc0 | code >> 6);
		out[1] = (uint8_t)(0x80 | (code & 63));
		return 2;
	}
	out[0] = (uint8_t)(0xe0 | code >> 12);
	out[1] = (uint8_t)(0x80 | (code >> 6 & 63));
	out[2] = (uint8_t)(0x80 | (code & 63));
	return 3;
}

static size_t put_escape(struct scan *s, uint8_t *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (s->p == s->end)
		return 0;
	if (*s->p == 'u') {
		s->p++;
		return put_code(s, out);
	}
	found = *s->p ? strchr(from, *s->p) : NULL;
	if (!found)
		return 0;
	s->p++;
	*out = (uint8_t)to[found - from];
	return 1;
}

/* Behind the first quote, up to the last one. */
static long take_string(struct scan *s, uint8_t *out)
{
	size_t used = 0;

	while (s->p < s->end && *s->p != '"') {
		const uint8_t c = (uint8_t)*s->p;
		size_t n = 1;

		if (c < 0x20)
			return -1;
		if (c == '\\') {
			s->p++;
			n = put_escape(s, out + used);
			if (n == 0)
				return -1;
			used += n;
			continue;
		}
		if (c >= 0x80)
			n = character((const uint8_t *)s->p, (const uint8_t *)s->end);
		if (n == 0)
			return -1;
		memcpy(out + used, s->p, n);
		used += n;
		s->p += n;
	}
	return take(s, '"') ? (long)used : -1;
}

static bool take_key(struct scan *s, struct key *key)
{
	if (!take(s, '"') || s->count == KEYS)
		return false;
	key->at = s->p;
	while (s->p < s->end && *s->p >= 0x20 && *s->p < 0x7f && *s->p != '"' && *s->p != '\\')
		s->p++;
	key->len = (size_t)(s->p - key->at);
	if (s->p == s->end || *s->p != '"')
		return false;
	s->p++;
	for (int i = 0; i < s->count; i++)
		if (s->keys[i].len == key->len && memcmp(s->keys[i].at, key->at, key->len) == 0)
			return false;
	s->keys[s->count++] = *key;
	return take(s, ':');
}

static size_t digits(struct scan *s)
{
	const char *from = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return (size_t)(s->p - from);
}

/* Numbers that everybody reads alike: short, without an exponent. */
static bool take_number(struct scan *s)
{
	const char *first;
	size_t n;

	s->p += *s->p == '-';
	first = s->p;
	n = digits(s);
	if (n == 0 || n > 15 || (n > 1 && *first == '0'))
		return false;
	if (s->p < s->end && *s->p == '.') {
		s->p++;
		n = digits(s);
		return n > 0 && n <= 15;
	}
	return true;
}

static bool take_plain(struct scan *s)
{
	static const char *const words[] = {"true", "false", "null"};

	for (size_t i = 0; i < 3; i++) {
		const size_t n = strlen(words[i]);

		if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
			s->p += n;
			return true;
		}
	}
	return take_number(s);
}

long gpt_jsonl_scan(const char *line, size_t len_bytes, const char *field, uint8_t *text)
{
	struct scan s = {line, line + len_bytes, {{0}}, 0};
	const size_t wanted = strlen(field);
	long found = -1;

	if (!take(&s, '{'))
		return -1;
	do {
		/* Strings before the field are written where it will be. */
		struct key key;
		long n;

		if (!take_key(&s, &key))
			return -1;
		skip_space(&s);
		if (s.p == s.end)
			return -1;
		if (*s.p != '"') {
			if (!take_plain(&s))
				return -1;
			continue;
		}
		s.p++;
		n = take_string(&s, text + (found < 0 ? 0 : found));
		if (n < 0)
			return -1;
		if (key.len == wanted && memcmp(key.at, field, wanted) == 0)
			found = n;
	} while (take(&s, ','));
	if (!take(&s, '}'))
		return -1;
	skip_space(&s);
	return s.p == s.end ? found : -1;
}

/* By jansson. */
static long judge(const char *line, size_t len_bytes, const char *field, uint8_t *text, size_t *at, char *why,
                  size_t why_bytes)
{
	json_error_t e;
	json_t *root = json_loadb(line, len_bytes, GPT_JSON_FLAGS, &e), *value = json_object_get(root, field);
	long n = -1;

	*at = root || e.position < 0 ? 0 : (size_t)e.position;
	if (json_is_string(value)) {
		n = (long)json_string_length(value);
		memcpy(text, json_string_value(value), (size_t)n);
	} else if (!root) {
		snprintf(why, why_bytes, "%s", e.text);
	} else if (!json_is_object(root)) {
		snprintf(why, why_bytes, "not an object");
	} else {
		snprintf(why, why_bytes, value ? "field \"%s\" is not a string" : "no field \"%s\"", field);
	}
	json_decref(root);
	return n;
}

long gpt_jsonl_field(const char *line, size_t len_bytes, const char *field, uint8_t *text, size_t *at, char *why,
                     size_t why_bytes)
{
	const long n = gpt_jsonl_scan(line, len_bytes, field, text);

	return n >= 0 ? n : judge(line, len_bytes, field, text, at, why, why_bytes);
}
