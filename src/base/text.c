/*
 * Growing texts: see text.h.
 */
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool room(struct coll_text *t, size_t more)
{
	size_t cap = t->cap_bytes ? t->cap_bytes : 4096;
	char *p;

	if (t->failed)
		return false;
	while (cap < t->len_bytes + more + 1)
		cap *= 2;
	if (cap == t->cap_bytes)
		return true;
	p = realloc(t->p, cap);
	if (!p) {
		t->failed = true;
		return false;
	}
	t->p = p;
	t->cap_bytes = cap;
	return true;
}

void coll_text_add(struct coll_text *t, const char *format, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, format);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, format, ap);
	va_end(ap);
	if (n >= 0 && room(t, (size_t)n)) {
		vsnprintf(t->p + t->len_bytes, (size_t)n + 1, format, again);
		t->len_bytes += (size_t)n;
	}
	va_end(again);
}

/* Length of the UTF-8 character at s (RFC 3629, without its finer exclusions), 0: none. */
static size_t utf8(const unsigned char *s)
{
	const size_t n = s[0] < 0x80                    ? 1
	                 : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
	                 : (s[0] & 0xf0) == 0xe0        ? 3
	                 : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
	                                                : 0;

	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

void coll_text_add_json(struct coll_text *t, const char *s)
{
	coll_text_add(t, "\"");
	while (*s) {
		const size_t n = utf8((const unsigned char *)s);

		if (*s == '"' || *s == '\\')
			coll_text_add(t, "\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			coll_text_add(t, "\\u%04x", (unsigned)*s);
		else
			coll_text_add(t, "%.*s", n ? (int)n : 1, n ? s : "?");
		s += n ? n : 1;
	}
	coll_text_add(t, "\"");
}

void coll_text_free(struct coll_text *t)
{
	free(t->p);
	*t = (struct coll_text){0};
}
