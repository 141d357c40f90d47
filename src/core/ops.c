/*
 * User-defined operations: a small table per communicator. The values are equal on all ranks that
 * create the operations in the same order.
 */
#include "core/ops.h"

#include <stdlib.h>
#include <string.h>

#include "core/comm.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/memory.h"
#include "reduce/element.h"
#include "reduce/reduce.h"

/* Read the one element that scale points to. A double holds every value of every float type exactly. */
static double read_scale(const void *scale, coll_dtype type)
{
	float f;
	double d;
	uint16_t h;
	uint8_t b;

	switch (type) {
	case COLL_F64: memcpy(&d, scale, sizeof(d)); return d;
	case COLL_F32: memcpy(&f, scale, sizeof(f)); return (double)f;
	case COLL_F16: memcpy(&h, scale, sizeof(h)); return (double)f16_to_f32(h);
	case COLL_BF16: memcpy(&h, scale, sizeof(h)); return (double)bf16_to_f32(h);
	case COLL_F8E4M3: memcpy(&b, scale, sizeof(b)); return (double)f8e4m3_to_f32(b);
	default: memcpy(&b, scale, sizeof(b)); return (double)f8e5m2_to_f32(b);
	}
}

static coll_status add(coll_op *op, coll_comm *comm, const struct coll_op_entry *entry)
{
	if (!comm->ops)
		comm->ops = calloc(COLL_OPS_MAX, sizeof(*comm->ops));
	if (!comm->ops)
		return coll_comm_refuse(comm, "op_create", COLL_ERR_MEMORY, "no memory for operations");
	for (int i = 0; i < COLL_OPS_MAX; i++)
		if (!comm->ops[i].used) {
			comm->ops[i] = *entry;
			comm->ops[i].used = true;
			*op = (coll_op)(COLL_OP_FIRST + i);
			return COLL_OK;
		}
	return coll_comm_refuse(comm, "op_create", COLL_ERR_MEMORY, "more than %d operations", COLL_OPS_MAX);
}

/* NULL: there is no such operation. */
static struct coll_op_entry *entry_of(const struct coll_comm *comm, coll_op op)
{
	if (!comm->ops || op < COLL_OP_FIRST || op >= COLL_OP_FIRST + COLL_OPS_MAX)
		return NULL;
	return comm->ops[op - COLL_OP_FIRST].used ? &comm->ops[op - COLL_OP_FIRST] : NULL;
}

coll_status coll_op_create(coll_op *op, coll_comm *comm, coll_user_fn fn, void *arg, int commutative)
{
	struct coll_op_entry e = {.code = COLL_OP_USER, .fn = fn, .arg = arg, .commutative = commutative != 0};

	if (coll_entry_no_comm(comm, "op_create"))
		return COLL_ERR_ARGUMENT;
	if (!op || !fn)
		return coll_comm_refuse(comm, "op_create", COLL_ERR_ARGUMENT, "op or fn is NULL");
	return add(op, comm, &e);
}

coll_status coll_op_create_premul_sum(coll_op *op, coll_comm *comm, const void *scale, coll_dtype type)
{
	struct coll_op_entry e = {.code = COLL_OP_PREMUL_SUM, .commutative = true, .type = type};
	coll_status st;

	if (coll_entry_no_comm(comm, "op_create"))
		return COLL_ERR_ARGUMENT;
	if (!op || !scale)
		return coll_comm_refuse(comm, "op_create", COLL_ERR_ARGUMENT, "op or scale is NULL");
	if (!coll_reduce_supports(type, COLL_OP_PREMUL_SUM))
		return coll_comm_refuse(comm, "op_create", COLL_ERR_ARGUMENT, "a premultiplied sum needs a float type");
	st = coll_comm_serves(comm, "op_create", "scale", scale, coll_dtype_size(type));
	if (st != COLL_OK)
		return st;
	e.scale = read_scale(scale, type);
	return add(op, comm, &e);
}

coll_status coll_op_rescale(coll_op op, coll_comm *comm, const void *scale)
{
	struct coll_op_entry *e = entry_of(comm, op);

	if (!e || e->code != COLL_OP_PREMUL_SUM)
		return coll_comm_refuse(comm, "op_create", COLL_ERR_ARGUMENT,
		                        "not a premultiplied sum of this communicator");
	e->scale = read_scale(scale, e->type);
	return COLL_OK;
}

coll_status coll_op_destroy(coll_op *op, coll_comm *comm)
{
	struct coll_op_entry *e;

	if (coll_entry_no_comm(comm, "op_destroy"))
		return COLL_ERR_ARGUMENT;
	if (!op)
		return coll_comm_refuse(comm, "op_destroy", COLL_ERR_ARGUMENT, "op is NULL");
	e = entry_of(comm, *op);
	if (!e)
		return coll_comm_refuse(comm, "op_destroy", COLL_ERR_ARGUMENT, "not an operation of this communicator");
	e->used = false;
	*op = COLL_SUM;
	return COLL_OK;
}
