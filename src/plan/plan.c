/*
 * Small things of plan.h: names, and the end of a plan's life.
 */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "plan/step.h"

static const char *const kind_names[] = {
        "all_reduce", "reduce",  "broadcast", "all_gather", "reduce_scatter", "all_to_all",
        "gather",     "scatter", "scan",      "barrier",    "exclusive_scan", "send_recv",
};
static_assert(sizeof(kind_names) / sizeof(kind_names[0]) == COLL_KIND_COUNT, "a name for every kind");
static_assert(COLL_KIND_EXCLUSIVE_SCAN == 10, "names stand in the order of the enum");

const char *coll_plan_kind_name(enum coll_kind kind)
{
	return (unsigned)kind < COLL_KIND_COUNT ? kind_names[kind] : NULL;
}

int coll_plan_kind_from_name(const char *name)
{
	for (int i = 0; name && i < COLL_KIND_COUNT; i++)
		if (strcmp(kind_names[i], name) == 0)
			return i;
	return -1;
}

static const char *const op_names[] = {
        NULL,     "send", "recv",           "recv_reduce",      "copy",
        "reduce", "wait", "recv_copy_send", "recv_reduce_send", "recv_reduce_copy_send",
};
static_assert(sizeof(op_names) / sizeof(op_names[0]) == COLL_STEP_OP_COUNT, "a name for every op");

const char *coll_step_op_name(uint8_t op)
{
	return op < COLL_STEP_OP_COUNT ? op_names[op] : NULL;
}

void coll_plan_free(struct coll_plan *plan)
{
	free(plan);
}
