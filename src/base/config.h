/*
 * Settings: one table (config_rows.h) filled from defaults, a file, the
 * environment and the caller, each value with its source. Code reads the struct.
 * tests/headers/facts.py lists the few files that call getenv() for something else.
 */
#ifndef COLL_BASE_CONFIG_H
#define COLL_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/nearest.h"
#include "coll/coll.h"

enum { COLL_TEXT_MAX = 256 };

#define COLL_MEMBER_INT(m)  int m;
#define COLL_MEMBER_SIZE(m) size_t m;
#define COLL_MEMBER_BOOL(m) bool m;
#define COLL_MEMBER_TEXT(m) char m[COLL_TEXT_MAX];
#define COLL_MEMBER_WORD(m) char m[COLL_TEXT_MAX]; /* of words, whose case does not matter: kept in lower case */

enum coll_setting_id {
#define ROW(kind, scope, member, name, def, help) COLL_SETTING_##member,
#include "base/config_rows.h"
#undef ROW
	COLL_SETTING_COUNT
};

struct coll_settings {
#define ROW(kind, scope, member, name, def, help) COLL_MEMBER_##kind(member)
#include "base/config_rows.h"
#undef ROW
	char text[COLL_SETTING_COUNT][COLL_TEXT_MAX]; /* as written */
	char source[COLL_SETTING_COUNT][80];          /* "default", "environment", "file PATH:3", "caller" */
};

struct coll_setting_row {
	const char *name;
	const char *def;
	const char *help;
	bool agreed;
};
extern const struct coll_setting_row coll_setting_rows[COLL_SETTING_COUNT];

/* Defaults, then those of coll_settings_defaults(), then COLL_CONFIG_FILE, then the environment, then cfg->settings
 * (cfg may be NULL). A malformed value or an unknown name in a file or in cfg->settings is COLL_ERR_CONFIG; an unknown
 * COLL_ variable in the environment is returned in *unknown (may be NULL), "" if none. */
coll_status coll_settings_load(struct coll_settings *s, const coll_config *cfg, char unknown[COLL_TEXT_MAX],
                               struct coll_error_box *err);

/* Other defaults than those of the rows, for all that is loaded from now on: "NAME=value" texts ended by NULL, which
 * stay valid. For a library around this one, once, before it creates anything. */
void coll_settings_defaults(const char *const *list, const char *source);

/* The setting that NAME or NAME=value may have meant. */
struct coll_guess coll_settings_guess(const char *pair);

/* Text of a setting by name, "" when unset; also finds COLL_* names that are not
 * rows when the environment had them. */
const char *coll_settings_text(const struct coll_settings *s, const char *name);

/* How long a host may be out of reach: COLL_UNREACHABLE_MS, and no longer than COLL_TIMEOUT_MS. */
static inline int coll_settings_unreachable_ms(const struct coll_settings *s)
{
	return s->unreachable_ms < s->timeout_ms ? s->unreachable_ms : s->timeout_ms;
}

/* A size with an optional suffix K, M, G; false: the text is none. */
bool coll_size_parse(const char *text, size_t *value);

/* The value of each AGREED row, in the order of rows, ended by 0. Numbers as they were understood, whichever way they
 * were written; of a long text the beginning, and 32 bits of the whole. */
enum { COLL_AGREED_MAX = 20, COLL_AGREED_BYTES = 32 };
struct coll_agreed {
	char value[COLL_AGREED_MAX][COLL_AGREED_BYTES];
};
void coll_settings_agreed(const struct coll_settings *s, struct coll_agreed *agreed);
/* Name of the first that differs, value[*at] of both; NULL if none does. */
const char *coll_settings_differing(const struct coll_agreed *a, const struct coll_agreed *b, int *at);

#endif
