/*
 * A plan as text.
 */
#ifndef COLL_TOOLS_PRINT_H
#define COLL_TOOLS_PRINT_H

#include "plan/plan.h"

/* Returns the length the text needs (without the NUL), like snprintf. */
size_t coll_plan_print(const struct coll_plan *plan, char *buf, size_t len_bytes);

#endif
