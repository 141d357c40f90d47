/*
 * Text to plan, the converse of print.c.
 */
#ifndef COLL_PLAN_PARSE_H
#define COLL_PLAN_PARSE_H

#include "plan/plan.h"

/* On error *line is the number (from 1) of the offending line. */
coll_status coll_plan_parse(const char *text, struct coll_plan **plan, int *line);

#endif
