/*
 * hook: the rules and their text. See hook.h for the language.
 */
#ifndef COLL_TRANSPORTS_HOOK_RULES_H
#define COLL_TRANSPORTS_HOOK_RULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum hook_kind { HOOK_DELAY, HOOK_FLIP, HOOK_HEAD, HOOK_DROP, HOOK_CLOSE, HOOK_KILL, HOOK_KINDS };
enum { HOOK_RULES_MAX = 16 };

struct hook_rule {
	enum hook_kind kind;
	int rank; /* -1: all */
	char transport[16];
	uint64_t frame;
	uint64_t every; /* 0: once */
	uint64_t us;
	bool has_byte;
	uint64_t byte;
	uint64_t mask;
	uint64_t seed;
	atomic_bool spent;
};

struct hook_rules {
	int count;
	struct hook_rule rule[HOOK_RULES_MAX];
};

/* Rules for other ranks and transports are checked, then left out. */
coll_status coll_hook_parse(const char *spec, int rank, const char *transport, struct hook_rules *rules,
                            struct coll_error_box *err);
/* Whether the rule is for this frame; a rule that strikes once is spent by it. */
bool coll_hook_strikes(struct hook_rule *r, uint64_t number);
/* Whether it may still strike at this frame or a later one. */
bool coll_hook_due(const struct hook_rule *r, uint64_t number);

#endif
