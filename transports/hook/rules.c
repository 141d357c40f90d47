/*
 * hook: parsing rules, and when they strike. Pure but for the mark that a rule is
 * spent.
 */
#include "transports/hook/rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[HOOK_KINDS] = {"delay", "flip", "head", "drop", "close", "kill"};

static coll_status set_number(struct hook_rule *r, const char *key, const char *value, struct coll_error_box *err)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(value, &end, 0);
	if (*value < '0' || *value > '9' || *end || errno)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: %s=%s is not a number", key, value);
	if (strcmp(key, "rank") == 0)
		r->rank = (int)n;
	else if (strcmp(key, "frame") == 0)
		r->frame = n;
	else if (strcmp(key, "every") == 0)
		r->every = n;
	else if (strcmp(key, "us") == 0)
		r->us = n;
	else if (strcmp(key, "seed") == 0)
		r->seed = n;
	else if (strcmp(key, "mask") == 0 && (n & 255))
		r->mask = n & 255;
	else if (strcmp(key, "byte") == 0) {
		r->byte = n;
		r->has_byte = true;
	} else {
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: cannot use %s=%s", key, value);
	}
	return COLL_OK;
}

/* One key=value, cut out of the rule's text. */
static coll_status set_key(struct hook_rule *r, char *text, struct coll_error_box *err)
{
	char *value = strchr(text, '=');

	if (!value)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: '%s' is not key=value", text);
	*value++ = 0;
	if (strcmp(text, "transport") != 0)
		return set_number(r, text, value, err);
	if (!*value || strlen(value) >= sizeof(r->transport))
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: no transport is called '%s'",
		                      value);
	strcpy(r->transport, value);
	return COLL_OK;
}

static coll_status parse_rule(struct hook_rule *r, char *text, struct coll_error_box *err)
{
	char *keys = strchr(text, ':'), *save = NULL;
	int kind = 0;

	if (keys)
		*keys++ = 0;
	while (kind < HOOK_KINDS && strcmp(text, kind_names[kind]) != 0)
		kind++;
	if (kind == HOOK_KINDS)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: there is no fault '%s'", text);
	r->kind = (enum hook_kind)kind;
	r->rank = -1;
	r->transport[0] = 0;
	r->frame = r->us = r->byte = r->seed = 0;
	r->every = kind == HOOK_DELAY;
	r->has_byte = false;
	r->mask = 255;
	atomic_init(&r->spent, false);
	for (char *key = keys ? strtok_r(keys, ",", &save) : NULL; key; key = strtok_r(NULL, ",", &save)) {
		coll_status status = set_key(r, key, err);

		if (status != COLL_OK)
			return status;
	}
	if (kind == HOOK_DELAY && r->us == 0)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: delay needs us=N");
	return COLL_OK;
}

coll_status coll_hook_parse(const char *spec, int rank, const char *transport, struct hook_rules *rules,
                            struct coll_error_box *err)
{
	char *text = strdup(spec), *save = NULL;
	coll_status status = text ? COLL_OK : COLL_ERR_MEMORY;

	rules->count = 0;
	for (char *rule = text ? strtok_r(text, "; ", &save) : NULL; rule && status == COLL_OK;
	     rule = strtok_r(NULL, "; ", &save)) {
		struct hook_rule *r = &rules->rule[rules->count];

		if (rules->count == HOOK_RULES_MAX) {
			status = coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1107] COLL_HOOK: more than %d rules",
			                        HOOK_RULES_MAX);
			break;
		}
		status = parse_rule(r, rule, err);
		rules->count +=
		        (r->rank < 0 || r->rank == rank) && (!r->transport[0] || strcmp(r->transport, transport) == 0);
	}
	free(text);
	return status;
}

bool coll_hook_strikes(struct hook_rule *r, uint64_t number)
{
	if (number < r->frame)
		return false;
	if (r->every)
		return (number - r->frame) % r->every == 0;
	return !atomic_exchange(&r->spent, true);
}

bool coll_hook_due(const struct hook_rule *r, uint64_t number)
{
	return r->every || !atomic_load(&r->spent);
}
