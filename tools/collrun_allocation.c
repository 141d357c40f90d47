/*
 * The hosts that a scheduler gave this process, by its variables and files. The first of this table that is there
 * counts:
 *
 *   Slurm        SLURM_JOB_NODELIST "n[1-3,7],m", SLURM_TASKS_PER_NODE "2(x3),1"; in a step its SLURM_STEP_NODELIST
 *   LSF          LSB_DJOB_HOSTFILE (a line a slot), LSB_MCPU_HOSTS "a 2 b 1", LSB_HOSTS "a a b"
 *   Grid Engine  PE_HOSTFILE (lines "a 2 queue cores")
 *   PBS          PBS_NODEFILE (a line a slot)
 *
 * What does not have its scheduler's form is refused by name: a job on half of its hosts helps nobody.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "collrun_options.h"

enum { NAME_MAX_BYTES = 256 };

/* ---- Slurm -------------------------------------------------------------- */

/* Hosts of a list in order. */
struct names {
	char **name;
	int count;
};

static void names_free(struct names *n)
{
	for (int i = 0; i < n->count; i++)
		free(n->name[i]);
	free(n->name);
}

static bool names_add(struct names *n, const char *name)
{
	if (!*name || n->count >= RANKS_MAX)
		return false;
	n->name = must(realloc(n->name, (size_t)(n->count + 1) * sizeof(*n->name)));
	n->name[n->count++] = must(strdup(name));
	return true;
}

static size_t digits(const char *s)
{
	return strspn(s, "0123456789");
}

static bool expand(struct names *n, const char *head, const char *rest);

/* One of "1-3,007" between brackets; the rest follows each number. Zeros in front are kept. */
static bool expand_range(struct names *n, const char *head, const char *range, size_t range_bytes, const char *rest)
{
	const size_t width = digits(range);
	const char *second = range + width + 1;
	char text[NAME_MAX_BYTES];
	long from, to;

	if (width == 0 || width > 9 || (width < range_bytes && range[width] != '-'))
		return false;
	from = to = strtol(range, NULL, 10);
	if (width < range_bytes) {
		const size_t more = digits(second);

		if (more == 0 || more > 9 || width + 1 + more != range_bytes)
			return false;
		to = strtol(second, NULL, 10);
	}
	if (to < from || to - from >= RANKS_MAX)
		return false;
	for (long i = from; i <= to; i++) {
		if (snprintf(text, sizeof(text), "%s%0*ld", head, (int)width, i) >= (int)sizeof(text) ||
		    !expand(n, text, rest))
			return false;
	}
	return true;
}

/* What has been read of a name, and what is left of it: "rack", "[0-1]node[1,3]". */
static bool expand(struct names *n, const char *head, const char *rest)
{
	const char *open = strchr(rest, '['), *close = open ? strchr(open, ']') : NULL;
	char text[NAME_MAX_BYTES];

	if (snprintf(text, sizeof(text), "%s%.*s", head, open ? (int)(open - rest) : NAME_MAX_BYTES, rest) >=
	            (int)sizeof(text) ||
	    strchr(text, ']'))
		return false;
	if (!open)
		return names_add(n, text);
	if (!close)
		return false;
	for (const char *p = open + 1; p <= close;) {
		const size_t bytes = strcspn(p, ",]");

		if (!expand_range(n, text, p, bytes, close + 1))
			return false;
		p += bytes + 1;
	}
	return true;
}

/* Commas outside of brackets part the names. */
static bool node_list(struct names *n, const char *list)
{
	char *copy = must(strdup(list)), *begin = copy;
	int depth = 0;
	bool ok = true, more = true;

	for (char *p = copy; more && ok; p++) {
		depth += (*p == '[') - (*p == ']');
		more = *p != 0;
		if ((*p == ',' && depth == 0) || !more) {
			*p = 0;
			ok = depth == 0 && *begin && strcspn(begin, " \t=/") == strlen(begin) && expand(n, "", begin);
			begin = p + 1;
		}
		ok = ok && depth >= 0 && depth <= 1;
	}
	free(copy);
	return ok;
}

/* "2(x3),1": the number of each host, count of them. */
static bool numbers_of_nodes(const char *text, int *number, int count)
{
	int at = 0;

	for (const char *p = text;;) {
		char *end;
		const long value = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : 0;
		long times = 1;

		if (value < 1 || value > RANKS_MAX)
			return false;
		p = end;
		if (p[0] == '(' && p[1] == 'x' && isdigit((unsigned char)p[2])) {
			times = strtol(p + 2, &end, 10);
			p = end + 1;
			if (*end != ')')
				return false;
		}
		if (times < 1 || times > count - at)
			return false;
		while (times-- > 0)
			number[at++] = (int)value;
		if (*p == 0)
			return at == count;
		if (*p++ != ',')
			return false;
	}
}

static int slurm(struct options *o, const char *name, const char *list)
{
	static const char *const per_node[] = {"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"};
	struct names n = {0};
	int *slots, rc = -1;

	if (!node_list(&n, list)) {
		names_free(&n);
		return options_refuse("%s=%.300s: this is no list of hosts like n[1-3,7],m", name, list);
	}
	slots = must(calloc((size_t)n.count, sizeof(*slots)));
	for (int i = 0; i < n.count; i++)
		slots[i] = 1;
	for (int i = 0; i < 2; i++) {
		const char *numbers = getenv(per_node[i]);

		if (!numbers || !*numbers)
			continue;
		if (!numbers_of_nodes(numbers, slots, n.count))
			rc = options_refuse("%s=%.200s: expected numbers like 2(x3),1 for the %d hosts of %s=%.200s",
			                    per_node[i], numbers, n.count, name, list);
		break;
	}
	for (int i = 0; i < n.count && rc < 0; i++)
		rc = hosts_add(o, n.name[i], slots[i]);
	free(slots);
	names_free(&n);
	return rc;
}

/* ---- Lists and files ---------------------------------------------------- */

/* "a 2 b 1" */
static int pairs(struct options *o, const char *name, const char *list)
{
	char *copy = must(strdup(list)), *save = NULL;
	int rc = -1, slots;

	for (char *host = strtok_r(copy, " \t", &save); host && rc < 0; host = strtok_r(NULL, " \t", &save)) {
		const char *number = strtok_r(NULL, " \t", &save);

		rc = number && coll_number_parse(number, 1, RANKS_MAX, &slots)
		             ? hosts_add(o, host, slots)
		             : options_refuse("%s=%.300s: expected a number of slots behind host %.200s", name, list,
		                              host);
	}
	free(copy);
	return rc;
}

/* "a a b" */
static int words(struct options *o, const char *name, const char *list)
{
	char *copy = must(strdup(list)), *save = NULL;
	int rc = -1;

	(void)name;
	for (char *host = strtok_r(copy, " \t", &save); host && rc < 0; host = strtok_r(NULL, " \t", &save))
		rc = hosts_add(o, host, 1);
	free(copy);
	return rc;
}

/* A line of a file: a host; with_slots: a number behind it, and more that is not ours. */
static int add_line(struct options *o, char *line, const char *name, const char *path, int number, bool with_slots)
{
	char *save = NULL, *host = strtok_r(line, " \t\r\n", &save);
	const char *slots = host ? strtok_r(NULL, " \t\r\n", &save) : NULL;
	int count = 1;

	if (!host)
		return -1;
	if (with_slots && (!slots || !coll_number_parse(slots, 1, RANKS_MAX, &count)))
		return options_refuse("%s=%s, line %d: expected a number of slots behind host %.200s", name, path,
		                      number, host);
	if (!with_slots && slots)
		return options_refuse("%s=%s, line %d: \"%.200s\" behind host %.200s: expected one host a line", name,
		                      path, number, slots, host);
	return hosts_add(o, host, count);
}

static int file(struct options *o, const char *name, const char *path, bool with_slots)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	int rc = -1;

	if (!f)
		return options_refuse("%s=%s: %s", name, path, strerror(errno));
	errno = 0;
	for (int n = 1; rc < 0 && getline(&line, &cap, f) > 0; n++)
		rc = add_line(o, line, name, path, n, with_slots);
	if (rc < 0 && !feof(f))
		rc = options_refuse("%s=%s: %s", name, path, strerror(errno));
	free(line);
	fclose(f);
	return rc;
}

static int file_of_hosts(struct options *o, const char *name, const char *path)
{
	return file(o, name, path, false);
}

static int file_with_slots(struct options *o, const char *name, const char *path)
{
	return file(o, name, path, true);
}

/* ---- All of them -------------------------------------------------------- */

/* srun gives what it starts the numbers of its step, but not salloc's shell, though it is a step, too. */
static bool numbers_are_of_step(void)
{
	const char *step = getenv("SLURM_STEP_TASKS_PER_NODE"), *numbers = getenv("SLURM_TASKS_PER_NODE");

	return step && numbers && strcmp(step, numbers) == 0;
}

int allocation_read(struct options *o)
{
	static const struct {
		const char *name;
		int (*read)(struct options *o, const char *name, const char *value);
	} sources[] = {
	        {"SLURM_STEP_NODELIST", slurm},       {"SLURM_JOB_NODELIST", slurm},   {"SLURM_NODELIST", slurm},
	        {"LSB_DJOB_HOSTFILE", file_of_hosts}, {"LSB_MCPU_HOSTS", pairs},       {"LSB_HOSTS", words},
	        {"PE_HOSTFILE", file_with_slots},     {"PBS_NODEFILE", file_of_hosts},
	};

	for (size_t i = numbers_are_of_step() ? 0 : 1; i < sizeof(sources) / sizeof(sources[0]); i++) {
		const char *value = getenv(sources[i].name);
		int rc;

		if (!value || !*value)
			continue;
		rc = sources[i].read(o, sources[i].name, value);
		if (rc < 0 && o->host_count == 0)
			rc = options_refuse("%s=%.300s: it names no host", sources[i].name, value);
		o->allocation = sources[i].name;
		return rc;
	}
	return -1;
}
