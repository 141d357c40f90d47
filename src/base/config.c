/*
 * Settings: the table, its parsers, and where each value came from.
 */
#include "base/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/number.h"

enum row_kind { KIND_INT, KIND_SIZE, KIND_BOOL, KIND_TEXT, KIND_WORD };
enum { SCOPE_LOCAL = 0, SCOPE_AGREED = 1 };

const struct coll_setting_row coll_setting_rows[COLL_SETTING_COUNT] = {
#define ROW(kind, scope, member, name, def, help) {name, def, help, SCOPE_##scope},
#include "base/config_rows.h"
#undef ROW
};

static const struct {
	enum row_kind kind;
	size_t offset;
} slots[COLL_SETTING_COUNT] = {
#define ROW(kind, scope, member, name, def, help) {KIND_##kind, offsetof(struct coll_settings, member)},
#include "base/config_rows.h"
#undef ROW
};

static int find_row(const char *name, size_t len)
{
	for (int i = 0; i < COLL_SETTING_COUNT; i++)
		if (strlen(coll_setting_rows[i].name) == len && memcmp(coll_setting_rows[i].name, name, len) == 0)
			return i;
	return -1;
}

/* Settings that had another name once: a setting that has no effect any more must not be overlooked. */
static const struct {
	const char *old, *now;
} renamed[] = {{"COLL_NATIVE", "COLL_INTRA"}, {"COLL_NATIVE_BYTES", "COLL_INTRA_BYTES"}};

static coll_status check_renamed(const char *name, size_t len, const char *source, struct coll_error_box *err)
{
	for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
		if (strlen(renamed[i].old) == len && memcmp(renamed[i].old, name, len) == 0)
			return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1105] %s (%s) is now called %s",
			                      renamed[i].old, source, renamed[i].now);
	return COLL_OK;
}

bool coll_size_parse(const char *text, size_t *value)
{
	char *end;
	unsigned long long v;
	int shift = 0;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno)
		return false;
	switch (toupper((unsigned char)*end)) {
	case 'K': shift = 10, end++; break;
	case 'M': shift = 20, end++; break;
	case 'G': shift = 30, end++; break;
	default: break;
	}
	if (*end || v > (SIZE_MAX >> shift))
		return false;
	*value = (size_t)v << shift;
	return true;
}

static bool parse_bool(const char *text, bool *value)
{
	static const char *const yes[] = {"1", "on", "yes", "true"};
	static const char *const no[] = {"0", "off", "no", "false"};

	for (int i = 0; i < 4; i++) {
		if (strcasecmp(text, yes[i]) == 0)
			return *value = true, true;
		if (strcasecmp(text, no[i]) == 0)
			return *value = false, true;
	}
	return false;
}

static void to_lower(char *text)
{
	for (; *text; text++)
		*text = (char)tolower((unsigned char)*text);
}

static coll_status assign(struct coll_settings *s, int row, const char *text, const char *source,
                          struct coll_error_box *err)
{
	void *at = (char *)s + slots[row].offset;
	static const char *const wants[] = {"a whole number", "a size such as 64K", "0 or 1", "a shorter text",
	                                    "a shorter text"};
	bool ok = strlen(text) < COLL_TEXT_MAX;

	switch (slots[row].kind) {
	case KIND_INT: ok = ok && coll_number_parse(text, INT_MIN, INT_MAX, at); break;
	case KIND_SIZE: ok = ok && coll_size_parse(text, at); break;
	case KIND_BOOL: ok = ok && parse_bool(text, at); break;
	case KIND_TEXT:
	case KIND_WORD:
		if (ok)
			strcpy(at, text);
		break;
	}
	if (!ok)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s=%.80s (%s): expected %s",
		                      coll_setting_rows[row].name, text, source, wants[slots[row].kind]);
	strcpy(s->text[row], text);
	if (slots[row].kind == KIND_WORD) {
		to_lower(at);
		to_lower(s->text[row]);
	}
	snprintf(s->source[row], sizeof(s->source[row]), "%s", source);
	return COLL_OK;
}

struct coll_guess coll_settings_guess(const char *pair)
{
	const char *names[COLL_SETTING_COUNT];
	char name[64];

	for (int i = 0; i < COLL_SETTING_COUNT; i++)
		names[i] = coll_setting_rows[i].name;
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(pair, "="), pair);
	return coll_guess(name, names, COLL_SETTING_COUNT);
}

/* "NAME=value" */
static coll_status assign_pair(struct coll_settings *s, const char *pair, const char *source,
                               struct coll_error_box *err)
{
	const char *eq = strchr(pair, '=');
	int row = eq ? find_row(pair, (size_t)(eq - pair)) : -1;
	coll_status st = eq ? check_renamed(pair, (size_t)(eq - pair), source, err) : COLL_OK;

	if (st != COLL_OK)
		return st;
	if (row < 0)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1105] %.80s (%s): no such setting%s", pair, source,
		                      coll_settings_guess(pair).text);
	return assign(s, row, eq + 1, source, err);
}

static char *trim(char *text)
{
	char *end;

	while (isspace((unsigned char)*text))
		text++;
	for (end = text + strlen(text); end > text && isspace((unsigned char)end[-1]); end--)
		;
	*end = 0;
	return text;
}

/* "NAME = value" of a file, made "NAME=value" in place; "": a comment, or nothing. */
static char *tidy(char *line)
{
	char *pair = trim(line), *eq = strchr(pair, '='), *name_end = eq, *value;

	if (*pair == '#')
		return pair + strlen(pair);
	if (!eq)
		return pair;
	while (name_end > pair && isspace((unsigned char)name_end[-1]))
		name_end--;
	value = trim(eq + 1);
	*name_end = '=';
	memmove(name_end + 1, value, strlen(value) + 1);
	return pair;
}

static coll_status load_file(struct coll_settings *s, const char *path, struct coll_error_box *err)
{
	FILE *f = fopen(path, "re");
	char *line = NULL, source[80];
	size_t room = 0;
	coll_status st = COLL_OK;

	if (!f)
		return coll_error_set(err, COLL_ERR_CONFIG, "COLL_CONFIG_FILE=%s: %s", path, strerror(errno));
	errno = 0;
	for (int n = 1; st == COLL_OK && getline(&line, &room, f) >= 0; n++) {
		const char *pair = tidy(line);

		snprintf(source, sizeof(source), "file %.50s:%d", path, n);
		if (*pair)
			st = assign_pair(s, pair, source, err);
	}
	/* A directory can be opened, too. */
	if (st == COLL_OK && !feof(f))
		st = coll_error_set(err, COLL_ERR_CONFIG, "COLL_CONFIG_FILE=%s: %s", path, strerror(errno));
	free(line);
	fclose(f);
	return st;
}

/* Variables that are no settings: read above, and by the Python package. */
static bool is_read_elsewhere(const char *pair)
{
	return strncmp(pair, "COLL_CONFIG_FILE=", 17) == 0 || strncmp(pair, "COLL_TORCH_AS=", 14) == 0;
}

/* All of it: a rank with a wrong setting tells the others, for which it needs the rest. The first error counts. */
static coll_status load_environment(struct coll_settings *s, char *unknown, struct coll_error_box *err)
{
	coll_status first = COLL_OK;

	for (char **e = environ; e && *e; e++) {
		const char *eq = strchr(*e, '=');
		int row;
		coll_status st;

		if (!eq || strncmp(*e, "COLL_", 5) != 0 || is_read_elsewhere(*e))
			continue;
		row = find_row(*e, (size_t)(eq - *e));
		if (row < 0 && unknown)
			snprintf(unknown, COLL_TEXT_MAX, "%.*s", (int)(eq - *e), *e);
		st = check_renamed(*e, (size_t)(eq - *e), "environment", err);
		if (st == COLL_OK && row >= 0)
			st = assign(s, row, eq + 1, "environment", err);
		if (first == COLL_OK)
			first = st;
	}
	return first;
}

static const char *const *defaults;
static const char *defaults_source;

void coll_settings_defaults(const char *const *list, const char *source)
{
	defaults = list;
	defaults_source = source;
}

coll_status coll_settings_load(struct coll_settings *s, const coll_config *cfg, char unknown[COLL_TEXT_MAX],
                               struct coll_error_box *err)
{
	const char *path = getenv("COLL_CONFIG_FILE");
	coll_status st = COLL_OK, rest;

	memset(s, 0, sizeof(*s));
	if (unknown)
		*unknown = 0;
	for (int i = 0; i < COLL_SETTING_COUNT && st == COLL_OK; i++)
		st = assign(s, i, coll_setting_rows[i].def, "default", err);
	for (size_t i = 0; st == COLL_OK && defaults && defaults[i]; i++)
		st = assign_pair(s, defaults[i], defaults_source, err);
	if (st == COLL_OK && path && *path)
		st = load_file(s, path, err);
	rest = load_environment(s, unknown, err);
	st = st == COLL_OK ? rest : st;
	for (size_t i = 0; cfg && cfg->settings && cfg->settings[i]; i++) {
		rest = assign_pair(s, cfg->settings[i], "caller", err);
		st = st == COLL_OK ? rest : st;
	}
	return st;
}

const char *coll_settings_text(const struct coll_settings *s, const char *name)
{
	int row = find_row(name, strlen(name));
	const char *e;

	if (row >= 0)
		return s->text[row];
	e = strncmp(name, "COLL_", 5) == 0 ? getenv(name) : NULL;
	return e ? e : "";
}

/* As it was understood: equal for 64K and 65536, for on and 1. */
static void value_text(const struct coll_settings *s, int row, char text[COLL_TEXT_MAX])
{
	const void *at = (const char *)s + slots[row].offset;

	switch (slots[row].kind) {
	case KIND_INT: snprintf(text, COLL_TEXT_MAX, "%d", *(const int *)at); break;
	case KIND_SIZE: snprintf(text, COLL_TEXT_MAX, "%zu", *(const size_t *)at); break;
	case KIND_BOOL: snprintf(text, COLL_TEXT_MAX, "%d", *(const bool *)at); break;
	case KIND_TEXT:
	case KIND_WORD: snprintf(text, COLL_TEXT_MAX, "%s", (const char *)at); break;
	}
}

#define ROW(kind, scope, member, name, def, help) +SCOPE_##scope
_Static_assert(0
#include "base/config_rows.h"
                       <= COLL_AGREED_MAX,
               "room for all agreed settings");
#undef ROW

void coll_settings_agreed(const struct coll_settings *s, struct coll_agreed *agreed)
{
	enum { REST = sizeof("...01234567") - 1 };
	char text[COLL_TEXT_MAX];
	int n = 0;

	memset(agreed, 0, sizeof(*agreed));
	for (int i = 0; i < COLL_SETTING_COUNT; i++) {
		if (!coll_setting_rows[i].agreed)
			continue;
		value_text(s, i, text);
		if (strlen(text) >= COLL_AGREED_BYTES)
			snprintf(text + COLL_AGREED_BYTES - 1 - REST, REST + 1, "...%08x",
			         (unsigned)coll_hash_bytes(1, text, strlen(text)));
		memcpy(agreed->value[n++], text, strlen(text));
	}
}

const char *coll_settings_differing(const struct coll_agreed *a, const struct coll_agreed *b, int *at)
{
	int n = 0;

	for (int i = 0; i < COLL_SETTING_COUNT; i++) {
		if (!coll_setting_rows[i].agreed)
			continue;
		if (memcmp(a->value[n], b->value[n], COLL_AGREED_BYTES) != 0)
			return *at = n, coll_setting_rows[i].name;
		n++;
	}
	return NULL;
}
