/*
 * The table of ways in words: the chain of rows that a call walks, and the table itself for docs/guide/ways.md.
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

	for (; row->op.poll; last = row, row = coll_ways_next(f, row)) {
		add_row(&t, f, row, last != NULL);
		add(&t, "; else ");
	}
	add(&t, "%s", plan);
	if (last)
		add(&t, " (%s)", last->instead == COLL_INSTEAD_NEXT ? "plain buffers" : "no memory can be shared");
}

/* ---- The table ---- */

struct cell {
	char text[160];
};

static struct cell kinds_of(const struct coll_ways_row *row)
{
	struct cell c = {""};
	struct text t = {.buf = c.text, .len_bytes = sizeof(c.text)};

	if (!row->op.poll)
		return (struct cell){"all"};
	for (int kind = 0; kind < COLL_KIND_COUNT; kind++)
		if (row->kinds >> kind & 1)
			add(&t, "%s%s", t.at ? ", " : "", coll_plan_kind_name((enum coll_kind)kind));
	return c;
}

static struct cell ranks_of(const struct coll_ways_row *row)
{
	struct cell c = {"any"};

	if (row->op.poll && row->ranks_min == row->ranks_max)
		snprintf(c.text, sizeof(c.text), "%d", row->ranks_min);
	else if (row->op.poll)
		snprintf(c.text, sizeof(c.text), "%d-%d", row->ranks_min, row->ranks_max);
	return c;
}

/* Of the longest, which are less than a round number by a few tiles, the round number. */
static struct cell bytes_of(size_t bytes)
{
	static const char *const units[] = {"", " KiB", " MiB", " GiB"};
	const bool is_long = bytes >> 30;
	struct cell c;
	size_t u = 0;

	for (; u < 3 && (is_long || (bytes > 0 && bytes % 1024 == 0)); u++)
		bytes = (bytes + 512) / 1024;
	snprintf(c.text, sizeof(c.text), "%zu%s", bytes, units[u]);
	return c;
}

static struct cell sizes_of(const struct coll_ways_row *row)
{
	static const char *const of[] = {
	        [COLL_OF_BLOCK] = "", [COLL_OF_PAYLOAD] = "payload ", [COLL_OF_LINES] = "lines "};
	struct cell c = {""};
	struct text t = {.buf = c.text, .len_bytes = sizeof(c.text)};

	if (row->min > 1)
		add(&t, "from %s", bytes_of(row->min).text);
	if (row->max != SIZE_MAX)
		add(&t, "%s%sto %s", t.at ? " " : "", of[row->unit], bytes_of(row->max).text);
	if (row->within)
		add(&t, "%s*", t.at ? " " : "");
	else if (!t.at)
		add(&t, "any");
	return c;
}

static void print_names(FILE *to)
{
	fprintf(to, "| way | what it does |\n|---|---|\n");
	for (unsigned way = COLL_WAY_UNKNOWN + 1; way < COLL_WAY_PLAN; way++)
		fprintf(to, "| `%s` | %s |\n", coll_way_name((uint8_t)way), coll_way_text((uint8_t)way));
	fprintf(to, "| `ring`, `circulant` ... | a plan, by the name of its algorithm: `plan` below |\n\n");
}

void coll_explain_table(FILE *to)
{
	static const char *const cores[] = {
	        [COLL_CORES_ANY] = "any", [COLL_CORES_EACH] = "one each", [COLL_CORES_SHARED] = "shared"};
	static const char *const buffers[] = {[COLL_BUFFERS_ANY] = "any",
	                                      [COLL_BUFFERS_MAPPED] = "mapped by every rank",
	                                      [COLL_BUFFERS_PLAIN] = "plain",
	                                      [COLL_BUFFERS_READABLE] =
	                                              "plain, and every rank may read the others' memory",
	                                      [COLL_BUFFERS_DEVICES] = "any; all ranks map each other's device memory"};

	print_names(to);
	fprintf(to, "| way | collectives | ranks | cores | buffers | bytes | instead | measured |\n"
	            "|---|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < coll_ways_count; i++) {
		const struct coll_ways_row *row = &coll_ways[i];

		fprintf(to, "| `%s` | %s | %s | %s | %s | %s | %s | %s |\n",
		        row->op.poll ? coll_way_name(row->way) : "plan", kinds_of(row).text, ranks_of(row).text,
		        cores[row->cores], buffers[row->buffers], sizes_of(row).text,
		        !row->op.poll                       ? ""
		        : row->instead == COLL_INSTEAD_NEXT ? "next row that serves"
		                                            : "`plan`",
		        row->limits);
	}
}
