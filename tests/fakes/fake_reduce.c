/*
 * Reductions of tests: sums of anything, and nothing else but users' operations.
 */
#include "reduce/reduce.h"

coll_status coll_reduce_bind(struct coll_reduction *r, coll_dtype type, coll_op op, int nranks, enum coll_isa isa)
{
	if (op != COLL_SUM && op != (coll_op)COLL_OP_USER)
		return COLL_ERR_ARGUMENT;
	*r = (struct coll_reduction){.type = type, .op = op, .isa = isa, .divisor = (uint64_t)nranks};
	return COLL_OK;
}
