/*
 * The chain of rows that a call walks, in words.
 */
#include "select/explain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/way_name.h"

struct text {
	char *buf;
	size_t len_bytes, at;
};

static __attribute__((format(printf, 2, 3))) void add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	if (t->at >= t->len_bytes)
		return;
	va_start(args, format);
	n = vsnprintf(t->buf + t->at, t->len_bytes - t->at, format, args);
	va_end(args);
	t->at += n > 0 ? (size_t)n : 0;
}

/* ---- The chain of a call ---- */

/* What must be mapped for zero copy: see coll_intra_requires(). */
static const char *mapped(enum coll_kind kind)
{
	switch (kind) {
	case COLL_KIND_ALL_REDUCE: return "all buffers are mapped by every rank";
	case COLL_KIND_BROADCAST: return "the root's buffer is mapped by every rank";
	case COLL_KIND_ALL_TO_ALL: return "all inputs are mapped by every rank and not in place";
	default: return "all inputs are mapped by every rank";
	}
}

static void add_row(struct text *t, const struct coll_ways_facts *f, const struct coll_ways_row *row, bool after)
{
	add(t, "%s", coll_way_name(row->way));
	if (row->buffers == COLL_BUFFERS_MAPPED)
		add(t, " if %s", mapped(f->kind));
	else if (row->buffers == COLL_BUFFERS_READABLE)
		add(t, " if every rank may read the others' memory%s (plain buffers)",
		    f->copy == COLL_INTRA_AUTO ? " and a trial finds it faster" : "");
	else if (after)
		add(t, " (plain buffers)");
}

void coll_explain_ways(const struct coll_ways_facts *f, const char *plan, char *buf, size_t len_bytes)
{
	struct text t = {.buf = buf, .len_bytes = len_bytes};
	const struct coll_ways_row *row = coll_ways_first(f), *last = NULL;

	for (; row->by != COLL_BY_PLAN; last = row, row = coll_ways_next(f, row)) {
		add_row(&t, f, row, last != NULL);
		if (row->instead == COLL_INSTEAD_NOTHING)
			return;
		add(&t, "; else ");
	}
	add(&t, "%s", plan);
	if (last)
		add(&t, " (%s)",
		    last->instead == COLL_INSTEAD_NEXT ? "plain buffers"
		    : last->by == COLL_BY_GROUP        ? "a frame of an earlier call may be left"
		                                       : "no memory can be shared");
}
