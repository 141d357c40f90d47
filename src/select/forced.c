/*
 * COLL_ALGO, read: see forced.h. Pure.
 */
#include "select/forced.h"

#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 32 };

struct item {
	char kind[WORD_MAX]; /* "" when bare */
	char name[WORD_MAX];
};

/* No row of the table: what is chosen where nothing is forced, if there is such a thing. */
static const char automatic[] = "auto";
/* Its name before. */
static const char automatic_once[] = "native";

static bool word(const char *text, size_t len, char *out)
{
	if (len == 0 || len >= WORD_MAX)
		return false;
	memcpy(out, text, len);
	out[len] = '\0';
	return true;
}

/* The item at text, len long; false when malformed. */
static bool read_item(const char *text, size_t len, struct item *item)
{
	const char *colon = memchr(text, ':', len);
	size_t head = colon ? (size_t)(colon - text) : 0;

	*item = (struct item){.kind = ""};
	if (!colon)
		return word(text, len, item->name);
	return word(text, head, item->kind) && word(colon + 1, len - head - 1, item->name);
}

static bool known_anywhere(const char *name)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (strcmp(coll_algos[i].name, name) == 0)
			return true;
	return false;
}

static coll_status check_item(const struct item *item, char *why, size_t why_bytes)
{
	int kind = item->kind[0] ? coll_plan_kind_from_name(item->kind) : -1;

	if (strcmp(item->name, automatic) == 0 && (kind >= 0 || !item->kind[0]))
		return COLL_OK;

	if (strcmp(item->name, automatic_once) == 0) {
		snprintf(why, why_bytes, "COLL_ALGO: '%s' is now called '%s'", automatic_once, automatic);
		return COLL_ERR_CONFIG;
	}
	if (!item->kind[0]) {
		if (known_anywhere(item->name))
			return COLL_OK;
		snprintf(why, why_bytes, "COLL_ALGO: no collective has an algorithm '%s'", item->name);
	} else if (kind < 0) {
		snprintf(why, why_bytes, "COLL_ALGO: there is no collective '%s'", item->kind);
	} else {
		if (coll_algo_find((enum coll_kind)kind, item->name))
			return COLL_OK;
		snprintf(why, why_bytes, "COLL_ALGO: %s has no algorithm '%s'", item->kind, item->name);
	}
	return COLL_ERR_CONFIG;
}

coll_status coll_select_forced(const char *text, enum coll_kind kind, const struct coll_algo **algo, char *why,
                               size_t why_bytes)
{
	const struct coll_algo *bare = NULL, *named = NULL;
	bool is_named = false;

	for (const char *at = text, *end; *text; at = end + 1) {
		const struct coll_algo *found;
		size_t len = strcspn(at, ",");
		struct item item;
		coll_status status;

		end = at + len;
		if (!read_item(at, len, &item)) {
			snprintf(why, why_bytes, "COLL_ALGO: '%.*s' is neither name nor collective:name", (int)len, at);
			return COLL_ERR_CONFIG;
		}
		status = check_item(&item, why, why_bytes);
		if (status)
			return status;
		found = coll_algo_find(kind, item.name);
		if (!item.kind[0] && (found || strcmp(item.name, automatic) == 0))
			bare = found;
		else if (item.kind[0] && coll_plan_kind_from_name(item.kind) == (int)kind)
			named = found, is_named = true;
		if (!*end)
			break;
	}
	*algo = is_named ? named : bare;
	return COLL_OK;
}

coll_status coll_select_check_forced(const char *text, char *why, size_t why_bytes)
{
	const struct coll_algo *none;

	return coll_select_forced(text, COLL_KIND_BARRIER, &none, why, why_bytes); /* any kind: all items are read */
}
