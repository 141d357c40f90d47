/*
 * Reading dumps: see dump.h. Each line is one flat object, whose values are numbers,
 * strings, true, false, null or arrays of numbers; that is all that is understood.
 */
#include "dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One member of the object on a line. */
struct member {
	char key[24];
	char text[704]; /* of a string, unescaped; else as it stands, cut to fit */
	const char *raw;
	bool string;
};

/* ---- JSON ---- */

static const char *skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
		p++;
	return p;
}

/* From behind the quote to behind the closing one; NULL: it is not closed. */
static const char *read_string(const char *p, const char *end, char *out, size_t cap)
{
	size_t n = 0;

	for (; p < end && *p != '"'; p++) {
		char c = *p;

		if (c == '\\' && p + 1 < end) {
			c = *++p;
			c = c == 'n' || c == 't' || c == 'r' ? ' ' : c;
			if (c == 'u' && end - p > 4) {
				const char digits[5] = {p[1], p[2], p[3], p[4], 0};
				const unsigned long code = strtoul(digits, NULL, 16);

				c = code >= 0x20 && code < 0x7f ? (char)code : code < 0x20 ? ' ' : '?';
				p += 4;
			}
		}
		/* What is shown on a terminal must not drive it. */
		if (n + 1 < cap)
			out[n++] = (unsigned char)c < ' ' || c == 0x7f ? ' ' : c;
	}
	if (cap > 0)
		out[n] = 0;
	return p < end ? p + 1 : NULL;
}

/* The next member from p; NULL: no further one, *ok tells whether the object ended well. */
static const char *next_member(const char *p, const char *end, struct member *m, bool *ok)
{
	size_t n = 0;
	int depth = 0;

	*ok = false;
	p = skip_space(p, end);
	if (p < end && (*p == ',' || *p == '{'))
		p = skip_space(p + 1, end);
	if (p < end && *p == '}') {
		*ok = true;
		return NULL;
	}
	if (p >= end || *p != '"')
		return NULL;
	p = read_string(p + 1, end, m->key, sizeof(m->key));
	if (!p)
		return NULL;
	p = skip_space(p, end);
	if (p >= end || *p != ':')
		return NULL;
	p = skip_space(p + 1, end);
	m->raw = p;
	m->string = p < end && *p == '"';
	if (m->string)
		return read_string(p + 1, end, m->text, sizeof(m->text));
	for (; p < end && (depth > 0 || (*p != ',' && *p != '}')); p++) {
		depth += (*p == '[' || *p == '{') - (*p == ']' || *p == '}');
		if (n + 1 < sizeof(m->text))
			m->text[n++] = *p;
	}
	m->text[n] = 0;
	return p < end ? p : NULL;
}

/* ---- Members of lines ---- */

enum kind { U64, HEX, INT, UNSIGNED, BOOL, TEXT };

struct field {
	const char *key;
	enum kind kind;
	size_t offset, size;
};

#define FIELD(type, kind, key, name)                                                     \
	{                                                                                \
		key, kind, offsetof(struct type, name), sizeof(((struct type *)0)->name) \
	}

static const struct field context_fields[] = {FIELD(dump, TEXT, "reason", reason),
                                              FIELD(dump, TEXT, "host", host),
                                              FIELD(dump, TEXT, "error", error),
                                              FIELD(dump, TEXT, "library", library),
                                              FIELD(dump, INT, "format", format),
                                              FIELD(dump, INT, "process", process),
                                              FIELD(dump, INT, "processes", processes),
                                              FIELD(dump, INT, "pid", pid),
                                              FIELD(dump, HEX, "job", job),
                                              FIELD(dump, U64, "now_ns", now_ns),
                                              FIELD(dump, U64, "born_ns", born_ns),
                                              {0}};
static const struct field comm_fields[] = {FIELD(dump_comm, HEX, "comm", comm),
                                           FIELD(dump_comm, INT, "rank", rank),
                                           FIELD(dump_comm, INT, "size", size),
                                           FIELD(dump_comm, U64, "operations", operations),
                                           FIELD(dump_comm, U64, "unrecorded", unrecorded),
                                           FIELD(dump_comm, U64, "sequence", sequence),
                                           FIELD(dump_comm, BOOL, "in_call", in_call),
                                           FIELD(dump_comm, BOOL, "aborted", aborted),
                                           FIELD(dump_comm, TEXT, "name", name),
                                           {0}};
static const struct field slow_fields[] = {FIELD(dump_slow, INT, "window_ms", window_ms),
                                           FIELD(dump_slow, INT, "waited_ms", waited_ms),
                                           FIELD(dump_slow, INT, "in_call_ms", in_call_ms),
                                           FIELD(dump_slow, INT, "waits_for", waits_for),
                                           FIELD(dump_slow, INT, "waits_for_ms", waits_for_ms),
                                           FIELD(dump_slow, INT, "behind_ms", behind_ms),
                                           FIELD(dump_slow, INT, "usual_kb", usual_kb),
                                           FIELD(dump_slow, INT, "median_kb", median_kb),
                                           {0}};
static const struct field op_fields[] = {FIELD(dump_op, HEX, "comm", comm),
                                         FIELD(dump_op, U64, "index", index),
                                         FIELD(dump_op, U64, "sequence", sequence),
                                         FIELD(dump_op, U64, "count", count),
                                         FIELD(dump_op, TEXT, "kind", kind),
                                         FIELD(dump_op, TEXT, "dtype", dtype),
                                         FIELD(dump_op, TEXT, "op", op),
                                         FIELD(dump_op, TEXT, "signature", signature),
                                         FIELD(dump_op, TEXT, "result", result),
                                         FIELD(dump_op, TEXT, "way", way),
                                         FIELD(dump_op, INT, "root", root),
                                         FIELD(dump_op, INT, "peer", root),
                                         FIELD(dump_op, INT, "tag", tag),
                                         FIELD(dump_op, INT, "stream", stream),
                                         FIELD(dump_op, INT, "status", status),
                                         FIELD(dump_op, U64, "queued_ns", queued_ns),
                                         FIELD(dump_op, U64, "begin_ns", begin_ns),
                                         FIELD(dump_op, U64, "end_ns", end_ns),
                                         FIELD(dump_op, INT, "waits_for", waits_for),
                                         FIELD(dump_op, INT, "step", step),
                                         FIELD(dump_op, INT, "lane", lane),
                                         {0}};
static const struct field peer_fields[] = {FIELD(dump_peer, INT, "process", process),
                                           FIELD(dump_peer, INT, "pid", pid),
                                           FIELD(dump_peer, TEXT, "host", host),
                                           FIELD(dump_peer, BOOL, "left", left),
                                           FIELD(dump_peer, TEXT, "after", after),
                                           FIELD(dump_peer, UNSIGNED, "unanswered", unanswered),
                                           FIELD(dump_peer, U64, "heard_ns", heard_ns),
                                           FIELD(dump_peer, HEX, "comm", comm),
                                           FIELD(dump_peer, U64, "sequence", sequence),
                                           FIELD(dump_peer, BOOL, "in_call", in_call),
                                           FIELD(dump_peer, INT, "waits_for", waits_for),
                                           FIELD(dump_peer, TEXT, "doing", doing),
                                           {0}};
static const struct field note_fields[] = {FIELD(dump_note, TEXT, "about", about),
                                           FIELD(dump_note, INT, "process", process),
                                           FIELD(dump_note, INT, "origin", origin),
                                           FIELD(dump_note, INT, "status", status),
                                           FIELD(dump_note, INT, "after_status", after_status),
                                           FIELD(dump_note, HEX, "comm", comm),
                                           FIELD(dump_note, TEXT, "text", text),
                                           {0}};

static void assign(const struct field *f, const struct member *m, void *object)
{
	void *at = (char *)object + f->offset;

	switch (f->kind) {
	case U64: *(uint64_t *)at = strtoull(m->text, NULL, 10); break;
	case HEX: *(uint64_t *)at = strtoull(m->text, NULL, 16); break;
	case INT: *(int *)at = (int)strtol(m->text, NULL, 10); break;
	case UNSIGNED: *(unsigned *)at = (unsigned)strtoul(m->text, NULL, 10); break;
	case BOOL: *(bool *)at = strcmp(m->text, "true") == 0; break;
	case TEXT: snprintf(at, f->size, "%s", m->text); break;
	}
}

/* False: the object breaks off. */
static bool fill(const char *line, const char *end, const struct field *fields, void *object)
{
	struct member m;
	bool ok;

	while ((line = next_member(line, end, &m, &ok)))
		for (const struct field *f = fields; f->key; f++)
			if (strcmp(f->key, m.key) == 0)
				assign(f, &m, object);
	return ok;
}

static bool member_text(const char *line, const char *end, const char *key, struct member *m)
{
	bool ok;

	while ((line = next_member(line, end, m, &ok)))
		if (strcmp(m->key, key) == 0)
			return true;
	return false;
}

/* ---- Lines ---- */

static void *append(void **array, size_t *n, size_t size)
{
	/* Room doubles at powers of two. */
	if ((*n & (*n - 1)) == 0) {
		void *p = realloc(*array, (*n ? *n * 2 : 1) * size);

		if (!p)
			return NULL;
		*array = p;
	}
	memset((char *)*array + *n * size, 0, size);
	return (char *)*array + (*n)++ * size;
}

static bool read_members(const char *line, const char *end, struct dump_comm *c)
{
	struct member m;
	size_t n = 0, most;

	if (!member_text(line, end, "members", &m) || *m.raw != '[' || c->size <= 0)
		return true;
	/* Not more than the line can hold, whatever it says. */
	most = (size_t)(end - m.raw) / 2 + 1;
	most = most < (size_t)c->size ? most : (size_t)c->size;
	c->members = calloc(most, sizeof(int));
	if (!c->members)
		return false;
	for (const char *p = m.raw; p < end && *p != ']' && n < most;) {
		char *after;
		const long v = strtol(p + 1, &after, 10);

		if (after == p + 1)
			break;
		c->members[n++] = (int)v;
		p = skip_space(after, end);
	}
	c->nmembers = (int)n;
	return true;
}

/* "[6,2400,7,2300]" */
static void read_slow_links(const char *line, const char *end, struct dump_slow *s)
{
	struct member m;
	const char *p = m.text;

	if (!member_text(line, end, "slow_links", &m) || *p != '[')
		return;
	for (s->links = 0; s->links < DUMP_SLOW_LINKS; s->links++) {
		char *after;

		s->to[s->links] = (int)strtol(p + 1, &after, 10);
		if (*after != ',')
			return;
		s->kb[s->links] = (int)strtol(after + 1, &after, 10);
		p = after;
	}
}

static enum dump_state state_of(const char *line, const char *end)
{
	struct member m;

	if (!member_text(line, end, "state", &m))
		return DUMP_ENDED;
	return strcmp(m.text, "queued") == 0 ? DUMP_QUEUED : strcmp(m.text, "running") == 0 ? DUMP_RUNNING : DUMP_ENDED;
}

/* A line of the dump d. False: no memory. A line that breaks off is dropped. */
static bool read_line(const char *line, const char *end, const char *type, struct dump *d)
{
	if (strcmp(type, "comm") == 0) {
		struct dump_comm *c = append((void **)&d->comms, &d->ncomms, sizeof(*c));

		if (!c)
			return false;
		if (!fill(line, end, comm_fields, c))
			d->ncomms--;
		else if (!read_members(line, end, c))
			return false;
	} else if (strcmp(type, "op") == 0) {
		struct dump_op *o = append((void **)&d->ops, &d->nops, sizeof(*o));

		if (!o)
			return false;
		o->waits_for = o->stream = -1;
		if (!fill(line, end, op_fields, o))
			d->nops--;
		else
			o->state = state_of(line, end);
	} else if (strcmp(type, "peer") == 0) {
		struct dump_peer *p = append((void **)&d->peers, &d->npeers, sizeof(*p));

		if (!p)
			return false;
		p->waits_for = -1;
		if (!fill(line, end, peer_fields, p))
			d->npeers--;
	} else if (strcmp(type, "note") == 0) {
		struct dump_note *n = append((void **)&d->notes, &d->nnotes, sizeof(*n));

		if (!n)
			return false;
		if (!fill(line, end, note_fields, n))
			d->nnotes--;
	} else if (strcmp(type, "slow") == 0) {
		if (fill(line, end, slow_fields, &d->slow))
			read_slow_links(line, end, &d->slow);
	} else if (strcmp(type, "end") == 0) {
		d->whole = true;
	}
	return true;
}

/* Where a dump begins in the middle of a line: the one before broke off (a full disk).
 * Quotes inside a string are escaped, so this is not in one. */
static const char *second_dump(const char *line, const char *stop)
{
	static const char begin[] = "{\"type\":\"context\"";

	return stop - line > 1 ? memmem(line + 1, (size_t)(stop - line) - 1, begin, sizeof(begin) - 1) : NULL;
}

bool dump_parse(const char *text, size_t len_bytes, struct dump_list *list, char *why, size_t why_bytes)
{
	const char *const end = text + len_bytes;
	const size_t before = list->n;
	struct dump *d = NULL;

	for (const char *line = text; line < end;) {
		const char *newline = memchr(line, '\n', (size_t)(end - line)), *stop = newline ? newline : end;
		const char *second = second_dump(line, stop);
		struct member type;

		if (second)
			line = second;
		if (*skip_space(line, stop) == '{' && member_text(line, stop, "type", &type)) {
			const bool begins = strcmp(type.text, "context") == 0;

			if (begins)
				d = append((void **)&list->dumps, &list->n, sizeof(*d));
			if ((begins && !d) || (d && !begins && !read_line(line, stop, type.text, d))) {
				snprintf(why, why_bytes, "out of memory");
				return false;
			}
			if (begins && !fill(line, stop, context_fields, d)) {
				list->n--;
				d = NULL;
			}
			if (begins && d)
				d->heard = strcmp(d->reason, "heard") == 0;
		}
		line = newline ? newline + 1 : end;
	}
	if (list->n == before)
		snprintf(why, why_bytes, "no line begins a dump (\"type\":\"context\")");
	return list->n > before;
}

bool dump_read_file(const char *path, struct dump_list *list, char *why, size_t why_bytes)
{
	FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	size_t used = 0, cap = 1 << 16, got;
	char *text = f ? malloc(cap) : NULL;
	bool ok = text != NULL;

	if (!f) {
		snprintf(why, why_bytes, "%s", strerror(errno));
		return false;
	}
	while (ok && (got = fread(text + used, 1, cap - used, f)) > 0) {
		used += got;
		if (used == cap) {
			char *p = realloc(text, cap *= 2);

			ok = p != NULL;
			text = p ? p : text;
		}
	}
	if (!ok)
		snprintf(why, why_bytes, "out of memory");
	else if (ferror(f)) {
		snprintf(why, why_bytes, "%s", strerror(errno));
		ok = false;
	} else
		ok = dump_parse(text, used, list, why, why_bytes);
	if (f != stdin)
		fclose(f);
	free(text);
	return ok;
}

bool dump_list_append(struct dump_list *list, struct dump_list *more)
{
	while (more->n > 0) {
		struct dump *d = append((void **)&list->dumps, &list->n, sizeof(*d));

		if (!d)
			return false;
		*d = more->dumps[--more->n];
	}
	return true;
}

void dump_list_free(struct dump_list *list)
{
	for (size_t i = 0; i < list->n; i++) {
		struct dump *d = &list->dumps[i];

		for (size_t c = 0; c < d->ncomms; c++)
			free(d->comms[c].members);
		free(d->comms);
		free(d->ops);
		free(d->peers);
		free(d->notes);
	}
	free(list->dumps);
	*list = (struct dump_list){0};
}

/* ---- Looking things up ---- */

const struct dump_comm *dump_find_comm(const struct dump *d, uint64_t comm)
{
	for (size_t i = 0; i < d->ncomms; i++)
		if (d->comms[i].comm == comm)
			return &d->comms[i];
	return NULL;
}

int dump_process(const struct dump *d, uint64_t comm, int rank)
{
	const struct dump_comm *c = dump_find_comm(d, comm);

	if (rank < 0 || (c && rank >= c->size))
		return -1;
	if (c && c->members)
		return rank < c->nmembers ? c->members[rank] : -1;
	return c ? rank : -1;
}

bool dump_has_tag(const struct dump_op *o)
{
	return strcmp(o->kind, "send_tag") == 0 || strcmp(o->kind, "recv_tag") == 0 || strcmp(o->kind, "irecv") == 0;
}

bool dump_is_message(const struct dump_op *o)
{
	return dump_has_tag(o) || strcmp(o->kind, "send") == 0 || strcmp(o->kind, "recv") == 0;
}

/* They are not numbered. */
static void describe_tagged(const struct dump_op *o, char *buf, size_t len_bytes)
{
	char peer[24] = "any source", tag[24] = "any tag";

	if (o->root >= 0)
		snprintf(peer, sizeof(peer), "peer=%d", o->root);
	if (o->tag >= 0)
		snprintf(tag, sizeof(tag), "tag=%d", o->tag);
	snprintf(buf, len_bytes, "%s(count=%llu, %s, %s, %s)", o->kind, (unsigned long long)o->count, o->dtype, peer,
	         tag);
}

void dump_describe(const struct dump_op *o, char *buf, size_t len_bytes)
{
	const bool rooted = strcmp(o->kind, "broadcast") == 0 || strcmp(o->kind, "reduce") == 0 ||
	                    strncmp(o->kind, "gather", 6) == 0 || strncmp(o->kind, "scatter", 7) == 0;
	const bool pair = dump_is_message(o);
	char root[32] = "";

	if (dump_has_tag(o)) {
		describe_tagged(o, buf, len_bytes);
		return;
	}
	if (rooted || pair)
		snprintf(root, sizeof(root), ", %s=%d", pair ? "peer" : "root", o->root);
	if (strcmp(o->kind, "barrier") == 0)
		snprintf(buf, len_bytes, "barrier number %llu", (unsigned long long)o->sequence);
	else
		snprintf(buf, len_bytes, "%s(count=%llu, %s%s%s%s) number %llu", o->kind, (unsigned long long)o->count,
		         o->dtype, o->op[0] ? ", " : "", o->op, root, (unsigned long long)o->sequence);
}
