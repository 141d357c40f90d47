/*
 * The table of ways as docs/guide/ways.md shows it: see ways_table.h.
 */
#include "tools/common/ways_table.h"

#include <stdarg.h>
#include <string.h>

#include "core/way_name.h"
#include "select/ways.h"

struct cell {
	char text[160];
};

static __attribute__((format(printf, 2, 3))) void add(struct cell *c, const char *format, ...)
{
	const size_t at = strlen(c->text);
	va_list args;

	va_start(args, format);
	vsnprintf(c->text + at, sizeof(c->text) - at, format, args);
	va_end(args);
}

static struct cell kinds_of(const struct coll_ways_row *row)
{
	struct cell c = {""};

	if (row->kinds == (1u << COLL_KIND_COUNT) - 1)
		return (struct cell){"all"};
	for (int kind = 0; kind < COLL_KIND_COUNT; kind++)
		if (row->kinds >> kind & 1)
			add(&c, "%s%s", *c.text ? ", " : "", coll_plan_kind_name((enum coll_kind)kind));
	return c;
}

static struct cell ranks_of(const struct coll_ways_row *row)
{
	struct cell c = {"any"};

	if (row->ranks_min == row->ranks_max)
		snprintf(c.text, sizeof(c.text), "%d", row->ranks_min);
	else if (row->ranks_max != INT32_MAX)
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

	if (row->min > 1)
		add(&c, "from %s", bytes_of(row->min).text);
	if (row->max != SIZE_MAX)
		add(&c, "%s%sto %s", *c.text ? " " : "", of[row->unit], bytes_of(row->max).text);
	if (row->within)
		add(&c, "%s*", *c.text ? " " : "");
	else if (!*c.text)
		add(&c, "any");
	return c;
}

static struct cell names_of(uint32_t needs)
{
	struct cell c = {""};

	for (size_t i = 0; i < coll_ways_nconditions; i++)
		if (needs >> i & 1)
			add(&c, "%s%s", *c.text ? ", " : "", coll_ways_conditions[i]);
	return c;
}

/* What all rows over shared memory need is one word. */
static struct cell needs_of(const struct coll_ways_row *row)
{
	return row->needs == COLL_CALL_INTRANODE ? (struct cell){"intranode"} : names_of(row->needs);
}

static const char *instead_of(const struct coll_ways_row *row)
{
	if (row->by == COLL_BY_PLAN)
		return "";
	if (row->instead == COLL_INSTEAD_NOTHING)
		return "no plan is made";
	return row->instead == COLL_INSTEAD_NEXT ? "next row that serves" : "`plan`";
}

static void print_names(FILE *to)
{
	fprintf(to, "| way | what it does |\n|---|---|\n");
	for (unsigned way = COLL_WAY_UNKNOWN + 1; way < COLL_WAY_PLAN; way++)
		fprintf(to, "| `%s` | %s |\n", coll_way_name((uint8_t)way), coll_way_text((uint8_t)way));
	fprintf(to, "| `ring`, `circulant` ... | a plan, by the name of its algorithm: `plan` below |\n\n");
}

void coll_ways_table(FILE *to)
{
	static const char *const cores[] = {
	        [COLL_CORES_ANY] = "any", [COLL_CORES_EACH] = "one each", [COLL_CORES_SHARED] = "shared"};
	static const char *const buffers[] = {[COLL_BUFFERS_ANY] = "any",
	                                      [COLL_BUFFERS_MAPPED] = "mapped by every rank",
	                                      [COLL_BUFFERS_PLAIN] = "plain",
	                                      [COLL_BUFFERS_READABLE] =
	                                              "plain, and every rank may read the others' memory",
	                                      [COLL_BUFFERS_DEVICES] = "any"};

	print_names(to);
	fprintf(to, "`intranode`: %s.\n\n", names_of(COLL_CALL_INTRANODE).text);
	fprintf(to, "| way | collectives | ranks | cores | needs | buffers | bytes | instead | measured |\n"
	            "|---|---|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < coll_ways_count; i++) {
		const struct coll_ways_row *row = &coll_ways[i];

		fprintf(to, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s |\n",
		        row->by == COLL_BY_PLAN ? "plan" : coll_way_name(row->way), kinds_of(row).text,
		        ranks_of(row).text, cores[row->cores], needs_of(row).text, buffers[row->buffers],
		        sizes_of(row).text, instead_of(row), row->limits);
	}
}
