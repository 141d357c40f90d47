/*
 * COLL_ALGO, read. Inside tune/ only.
 */
#ifndef COLL_SELECT_FORCED_H
#define COLL_SELECT_FORCED_H

#include "select/select.h"

/*
 * The row that text forces for a kind; *algo is NULL when it forces none. text is
 * a list of items with commas between: `name` forces that row for every
 * collective that has it, `collective:name` for one (and beats a bare name). The name
 * "auto" forces no row: it is for what is not made by a plan, see select/bind.c.
 * COLL_ERR_CONFIG, and why, when any item is malformed or unknown, whatever kind
 * is asked for.
 */
coll_status coll_select_forced(const char *text, enum coll_kind kind, const struct coll_algo **algo, char *why,
                               size_t why_bytes);

/* Whether COLL_ALGO can be read, and names what there is: COLL_ERR_CONFIG and why. */
coll_status coll_select_check_forced(const char *text, char *why, size_t why_bytes);

#endif
