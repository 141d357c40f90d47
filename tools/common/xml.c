/*
 * A reader of a part of XML: see xml.h. CDATA is an error, not a guess; an entity
 * stays as it is written. Its invariant: at <= end, and *end is 0.
 */
#include "tools/common/xml.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The whole file, with a zero behind it; NULL with the reason in why. */
static char *load(const char *path, size_t *len_bytes, char *why, size_t why_bytes)
{
	FILE *f = fopen(path, "re");
	size_t cap = 64 << 10, n = 0;
	char *text = f ? malloc(cap + 1) : NULL;

	while (text) {
		const size_t got = fread(text + n, 1, cap - n, f);
		char *more;

		n += got;
		if (n < cap)
			break;
		more = n > COLL_XML_BYTES_MAX ? NULL : realloc(text, (cap *= 2) + 1);
		if (!more) {
			snprintf(why, why_bytes, "%s: larger than %d MiB", path, COLL_XML_BYTES_MAX >> 20);
			goto bad;
		}
		text = more;
	}
	if (!text || ferror(f)) {
		snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
		goto bad;
	}
	fclose(f);
	text[n] = 0;
	*len_bytes = n;
	return text;
bad:
	free(text);
	if (f)
		fclose(f);
	return NULL;
}

struct coll_graph *coll_xml_graph(const char *path, coll_xml_graph_fn *read, char *why, size_t why_bytes)
{
	size_t len_bytes;
	char *text = load(path, &len_bytes, why, why_bytes);
	struct coll_graph *g = text ? read(path, text, len_bytes, why, why_bytes) : NULL;

	free(text);
	return g;
}

void coll_xml_begin(struct coll_xml *x, const char *name, char *text, size_t len_bytes, char *why, size_t why_bytes)
{
	*x = (struct coll_xml){.name = name,
	                       .at = text,
	                       .end = text + len_bytes,
	                       .line = 1,
	                       .line_at = 1,
	                       .why = why,
	                       .why_bytes = why_bytes};
}

static bool fail_at(struct coll_xml *x, int line, const char *format, va_list ap)
{
	int n;

	if (x->failed)
		return false;
	x->failed = true;
	n = snprintf(x->why, x->why_bytes, "%s:%d: ", x->name, line);
	if (n > 0 && (size_t)n < x->why_bytes)
		vsnprintf(x->why + n, x->why_bytes - (size_t)n, format, ap);
	return false;
}

bool coll_xml_fail(struct coll_xml *x, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fail_at(x, x->line, format, ap);
	va_end(ap);
	return false;
}

/* Where the reader is, not where the event began. */
static enum coll_xml_event wrong(struct coll_xml *x, const char *format, ...) __attribute__((format(printf, 2, 3)));

static enum coll_xml_event wrong(struct coll_xml *x, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fail_at(x, x->line_at, format, ap);
	va_end(ap);
	return COLL_XML_ERROR;
}

/* One character on. */
static void step(struct coll_xml *x)
{
	x->line_at += *x->at == '\n';
	x->at++;
}

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_blanks(struct coll_xml *x)
{
	while (blank(*x->at))
		step(x);
}

static bool name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.' || c == ':';
}

/* The length of a name at `at`, which moves behind it. */
static size_t take_name(struct coll_xml *x)
{
	const char *from = x->at;

	while (name_char(*x->at))
		x->at++;
	return (size_t)(x->at - from);
}

/* Past the next `mark`; false: there is none. */
static bool skip_past(struct coll_xml *x, const char *mark)
{
	const size_t n = strlen(mark);

	while (x->at < x->end && strncmp(x->at, mark, n) != 0)
		step(x);
	if (x->at == x->end)
		return false;
	x->at += n;
	return true;
}

/* What is no element: comments, instructions, a document type without declarations. False: an error. */
static bool skip_aside(struct coll_xml *x)
{
	const int line = x->line_at;
	const bool comment = strncmp(x->at, "<!--", 4) == 0, type = strncmp(x->at, "<!DOCTYPE", 9) == 0;

	if (!comment && !type && x->at[1] == '!') {
		wrong(x, "this kind of markup is not read here");
		return false;
	}
	x->at += comment ? 4 : 2;
	if (skip_past(x, comment ? "-->" : type ? ">" : "?>"))
		return true;
	wrong(x, "the file ends inside a %s that begins in line %d", comment ? "comment" : "declaration", line);
	return false;
}

/* A value in quotes, as it stands. */
static bool take_value(struct coll_xml *x, const char **value)
{
	const char quote = *x->at;

	if (quote != '"' && quote != '\'') {
		wrong(x, "a value without quotes in <%s>", x->tag);
		return false;
	}
	*value = ++x->at;
	for (; *x->at != quote; step(x))
		if (*x->at == 0 || *x->at == '<') {
			wrong(x, *x->at ? "'<' in a value of <%s>" : "the file ends inside a value of <%s>", x->tag);
			return false;
		}
	*x->at++ = 0;
	return true;
}

static bool take_attribute(struct coll_xml *x)
{
	char *name = x->at;
	const size_t n = take_name(x);

	if (n == 0) {
		wrong(x, x->at == x->end ? "the file ends inside <%s>" : "unexpected character in <%s>", x->tag);
		return false;
	}
	skip_blanks(x);
	if (*x->at != '=') {
		wrong(x, "an attribute of <%s> without a value", x->tag);
		return false;
	}
	x->at++;
	skip_blanks(x);
	if (x->count == COLL_XML_ATTRIBUTES_MAX) {
		wrong(x, "<%s> has more than %d attributes", x->tag, COLL_XML_ATTRIBUTES_MAX);
		return false;
	}
	x->names[x->count] = name;
	if (!take_value(x, &x->values[x->count]))
		return false;
	name[n] = 0;
	for (int i = 0; i < x->count; i++)
		if (strcmp(x->names[i], name) == 0) {
			wrong(x, "attribute %s twice in <%s>", name, x->tag);
			return false;
		}
	x->count++;
	return true;
}

static enum coll_xml_event open_element(struct coll_xml *x)
{
	char *name = ++x->at;
	const size_t n = take_name(x);
	char behind;

	if (n == 0)
		return wrong(x, x->at == x->end ? "the file ends inside a tag" : "'<' without a name");
	if (n > 60)
		return wrong(x, "a name of %zu characters", n);
	if (x->depth == 0 && x->rooted)
		return wrong(x, "a second element beside the outermost one");
	if (x->depth == COLL_XML_DEPTH_MAX)
		return wrong(x, "elements are nested more than %d deep", COLL_XML_DEPTH_MAX);
	behind = *x->at;
	if (behind != '>' && behind != '/' && !blank(behind))
		return wrong(x, behind ? "unexpected character in a tag" : "the file ends inside a tag");
	/* The name needs its end now, for errors; what stood there is known. */
	if (behind == '\n')
		x->line_at++;
	*x->at = 0;
	x->tag = name;
	x->count = 0;
	if (blank(behind)) {
		x->at++;
		for (skip_blanks(x); *x->at != '>' && *x->at != '/'; skip_blanks(x))
			if (!take_attribute(x))
				return COLL_XML_ERROR;
		behind = *x->at;
	}
	x->at++;
	if (behind == '/') {
		if (*x->at != '>')
			return wrong(x, "'/' inside <%s>", x->tag);
		x->at++;
		x->closing = true;
	}
	x->rooted = true;
	x->open[x->depth] = x->tag;
	x->open_line[x->depth++] = x->line;
	return COLL_XML_OPEN;
}

static enum coll_xml_event close_element(struct coll_xml *x)
{
	char *name = x->at += 2;
	const size_t n = take_name(x);

	skip_blanks(x);
	if (*x->at != '>')
		return wrong(x, x->at == x->end ? "the file ends inside a tag" : "unexpected character in a tag");
	x->at++;
	if (x->depth == 0)
		return wrong(x, "</%.*s> ends what did not begin", (int)(n < 60 ? n : 60), name);
	if (strlen(x->open[x->depth - 1]) != n || strncmp(x->open[x->depth - 1], name, n) != 0)
		return wrong(x, "</%.*s> where <%s> of line %d should end", (int)(n < 60 ? n : 60), name,
		             x->open[x->depth - 1], x->open_line[x->depth - 1]);
	x->tag = x->open[--x->depth];
	return COLL_XML_CLOSE;
}

/* Up to the next tag; what stands between tags does not matter. COLL_XML_END: there is none. COLL_XML_OPEN: it may
 * begin here. */
static enum coll_xml_event skip_text(struct coll_xml *x)
{
	bool some = false;

	for (; x->at < x->end && *x->at != '<'; step(x)) {
		if (*x->at == 0)
			return wrong(x, "a zero byte");
		some |= !blank(*x->at);
	}
	if (x->at == x->end && x->depth > 0)
		return wrong(x, "the file ends inside <%s>, which begins in line %d", x->open[x->depth - 1],
		             x->open_line[x->depth - 1]);
	if (some && x->depth == 0)
		return wrong(x, x->rooted ? "text behind the outermost element" : "this is no XML");
	if (x->at < x->end)
		return COLL_XML_OPEN;
	return x->rooted ? COLL_XML_END : wrong(x, "there is no element");
}

enum coll_xml_event coll_xml_next(struct coll_xml *x)
{
	if (x->failed)
		return COLL_XML_ERROR;
	if (x->closing) {
		x->closing = false;
		x->tag = x->open[--x->depth];
		return COLL_XML_CLOSE;
	}
	for (;;) {
		const enum coll_xml_event e = skip_text(x);

		x->line = x->line_at;
		if (e != COLL_XML_OPEN)
			return e;
		if (x->at[1] == '/')
			return close_element(x);
		if (x->at[1] != '!' && x->at[1] != '?')
			return open_element(x);
		if (!skip_aside(x))
			return COLL_XML_ERROR;
	}
}

const char *coll_xml_attribute(const struct coll_xml *x, const char *name)
{
	for (int i = 0; i < x->count; i++)
		if (strcmp(x->names[i], name) == 0)
			return x->values[i];
	return NULL;
}

bool coll_xml_number(struct coll_xml *x, const char *name, long least, long most, long *value)
{
	const char *text = coll_xml_attribute(x, name);
	char *end;
	long n;

	if (!text)
		return true;
	errno = 0;
	n = strtol(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
	if (end == text || *end || blank(*text) || errno || n < least || n > most)
		return coll_xml_fail(x, "%s=\"%.40s\" in <%s>: expected a number from %ld to %ld", name, text, x->tag,
		                     least, most);
	*value = n;
	return true;
}
