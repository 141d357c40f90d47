/*
 * Lowering.
 */
#ifndef COLL_PLAN_LOWER_H
#define COLL_PLAN_LOWER_H

#include "plan/plan.h"

/* Fuse adjacent RECV/RECV_REDUCE + SEND of the same run on the same lane into
 * one-pass steps; drops a store that nothing reads (and that is not part of the
 * result). Never changes what travels or any rounding. */
coll_status coll_plan_lower(const struct coll_plan *logical, struct coll_plan **lowered);

#endif
