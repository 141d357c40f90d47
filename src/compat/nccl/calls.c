/*
 * Collectives, messages and their operations: the arguments are checked as NCCL does, and the call is made or noted
 * (group.h).
 */
#include <string.h>

#include "compat/nccl/config.h"
#include "compat/nccl/error.h"
#include "compat/nccl/group.h"

static const coll_dtype types[ncclNumTypes] = {
        [ncclInt8] = COLL_I8,       [ncclUint8] = COLL_U8,          [ncclInt32] = COLL_I32,
        [ncclUint32] = COLL_U32,    [ncclInt64] = COLL_I64,         [ncclUint64] = COLL_U64,
        [ncclFloat16] = COLL_F16,   [ncclFloat32] = COLL_F32,       [ncclFloat64] = COLL_F64,
        [ncclBfloat16] = COLL_BF16, [ncclFloat8e4m3] = COLL_F8E4M3, [ncclFloat8e5m2] = COLL_F8E5M2,
};
static const coll_op ops[ncclNumOps] = {
        [ncclSum] = COLL_SUM, [ncclProd] = COLL_PROD, [ncclMax] = COLL_MAX, [ncclMin] = COLL_MIN, [ncclAvg] = COLL_AVG};

/* ---- Operations ---- */

/* The value names the communicator, so that the operation of another one is refused. */
enum { SERIALS = 1 << 24 };

static ncclRedOp_t value_of(const struct ncclComm *comm, int i)
{
	return (ncclRedOp_t)(ncclNumOps + i + NCCL_OPS_MAX * (int)(comm->serial % SERIALS));
}

static struct nccl_op *made_op(ncclComm_t comm, int op)
{
	const int i = (op - ncclNumOps) % NCCL_OPS_MAX;

	if (op < ncclNumOps || (unsigned)((op - ncclNumOps) / NCCL_OPS_MAX) != comm->serial % SERIALS ||
	    !comm->ops[i].used)
		return NULL;
	return &comm->ops[i];
}

/* The library's operations are equal on all ranks if each rank makes them in the same order. So the first one for any
 * type makes those for all. The factor does not matter: another one is read at each call. */
static coll_status make_library_ops(ncclComm_t comm, int type)
{
	static const double one = 1;
	coll_status st = COLL_OK;

	for (int t = ncclFloat16; t < ncclNumTypes && st == COLL_OK; t++)
		if (!comm->premul[t])
			st = coll_op_create_premul_sum(&comm->premul[t], comm->comm, &one, types[t]);
	/* Is refused. */
	if (st == COLL_OK && !comm->premul[type])
		st = coll_op_create_premul_sum(&comm->premul[type], comm->comm, &one, types[type]);
	return st;
}

static ncclResult_t create_op(ncclRedOp_t *op, void *scalar, int type, int residence, ncclComm_t comm)
{
	static const char *const function = "ncclRedOpCreatePreMulSum";
	struct nccl_op *o = NULL;
	coll_status st;

	if (!op || !scalar)
		return nccl_fail(ncclInvalidArgument, "%s: the pointer for the %s is NULL", function,
		                 op ? "scalar" : "operation");
	if (type < 0 || type >= ncclNumTypes)
		return nccl_fail(ncclInvalidArgument, "%s: type %d is unknown", function, type);
	if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
		return nccl_fail(ncclInvalidArgument, "%s: residence %d is unknown", function, residence);
	for (int i = 0; i < NCCL_OPS_MAX && !o; i++)
		o = comm->ops[i].used ? NULL : &comm->ops[i];
	if (!o)
		return nccl_fail(ncclInvalidUsage, "%s: %d operations exist, and more are not possible", function,
		                 NCCL_OPS_MAX);
	st = make_library_ops(comm, type);
	if (st != COLL_OK)
		return nccl_from(st, comm->comm, function);
	*o = (struct nccl_op){.used = true, .type = (ncclDataType_t)type};
	if (residence == ncclScalarDevice)
		o->scalar = scalar;
	else
		memcpy(o->factor, scalar, coll_dtype_size(types[type]));
	*op = value_of(comm, (int)(o - comm->ops));
	return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclRedOpCreatePreMulSum,
              (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm))
{
	ncclResult_t r = nccl_enter(comm, "ncclRedOpCreatePreMulSum");

	if (r != ncclSuccess)
		return r;
	r = create_op(op, scalar, (int)type, (int)residence, comm);
	nccl_leave(comm);
	return r;
}

NCCL_FUNCTION(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
	static const char *const function = "ncclRedOpDestroy";
	ncclResult_t r;
	struct nccl_op *o;

	if ((int)op >= 0 && op < ncclNumOps)
		return nccl_fail(ncclInvalidArgument, "%s: operation %d is built in", function, (int)op);
	r = nccl_enter(comm, function);
	if (r != ncclSuccess)
		return r;
	o = made_op(comm, (int)op);
	if (o) {
		o->used = false;
	} else {
		r = nccl_fail(ncclInvalidArgument, "%s: operation %d is unknown to this communicator", function,
		              (int)op);
	}
	nccl_leave(comm);
	return r;
}

/* ---- Checks ---- */

static ncclResult_t check_op(struct nccl_call *c, int type, int op)
{
	const struct nccl_op *o;

	if (op >= 0 && op < ncclNumOps) {
		c->op = ops[op];
		return ncclSuccess;
	}
	o = made_op(c->comm, op);
	if (!o)
		return nccl_fail(ncclInvalidArgument, "%s: operation %d is unknown to this communicator", c->function,
		                 op);
	if ((int)o->type != type)
		return nccl_fail(ncclInvalidArgument, "%s: operation %d was made for type %d, not %d", c->function, op,
		                 (int)o->type, type);
	c->op = c->comm->premul[type];
	c->scaled = true;
	memcpy(c->factor, o->factor, sizeof(c->factor));
	c->scalar = o->scalar;
	return ncclSuccess;
}

static bool needs_in(const struct nccl_call *c)
{
	const bool root = c->root == c->comm->rank;

	return c->kind == NCCL_BROADCAST || c->kind == NCCL_SCATTER ? root : c->kind != NCCL_RECV;
}

static bool needs_out(const struct nccl_call *c)
{
	const bool root = c->root == c->comm->rank;

	return c->kind == NCCL_REDUCE || c->kind == NCCL_GATHER ? root : c->kind != NCCL_SEND;
}

static ncclResult_t check(struct nccl_call *c, int type, int op)
{
	const bool reduces = c->kind == NCCL_ALL_REDUCE || c->kind == NCCL_REDUCE || c->kind == NCCL_REDUCE_SCATTER;
	const bool peer = c->kind == NCCL_SEND || c->kind == NCCL_RECV;

	if (c->comm->finalized)
		return nccl_fail(ncclInvalidArgument, "%s: the communicator was finalized", c->function);
	if (c->comm->suspended)
		return nccl_fail(ncclInvalidUsage, "%s: the communicator is suspended", c->function);
	if (c->root < 0 || c->root >= c->comm->size)
		return nccl_fail(ncclInvalidArgument, "%s: %s %d is not among the %d ranks", c->function,
		                 peer ? "peer" : "root", c->root, c->comm->size);
	if (type < 0 || type >= ncclNumTypes)
		return nccl_fail(ncclInvalidArgument, "%s: type %d is unknown", c->function, type);
	c->type = types[type];
	if (c->count > 0 && ((needs_in(c) && !c->in) || (needs_out(c) && !c->out)))
		return nccl_fail(ncclInvalidArgument, "%s: a buffer of %zu elements is NULL", c->function, c->count);
	return reduces ? check_op(c, type, op) : ncclSuccess;
}

static ncclResult_t call(struct nccl_call c, int type, int op, const ncclCollConfig_t *config)
{
	ncclResult_t r = nccl_check_call_config(config, c.function);

	if (r == ncclSuccess)
		r = nccl_enter(c.comm, c.function);
	if (r != ncclSuccess)
		return nccl_refuse(r);
	r = check(&c, type, op);
	nccl_leave(c.comm);
	return r == ncclSuccess ? nccl_call(&c) : nccl_refuse(r);
}

#define CALL(of, in_, out_, root_)                                                                                \
	(struct nccl_call)                                                                                        \
	{                                                                                                         \
		.function = __func__ + 1, .kind = (of), .comm = comm, .in = (in_), .out = (out_), .count = count, \
		.root = (root_), .stream = stream                                                                 \
	}

/* ---- Interface ---- */

NCCL_FUNCTION(ncclResult_t, ncclAllReduce,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream))
{
	return call(CALL(NCCL_ALL_REDUCE, in, out, 0), (int)type, (int)op, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclAllReduceConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_ALL_REDUCE, in, out, 0), (int)type, (int)op, config);
}

NCCL_FUNCTION(ncclResult_t, ncclReduce,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
               cudaStream_t stream))
{
	return call(CALL(NCCL_REDUCE, in, out, root), (int)type, (int)op, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclReduceConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_REDUCE, in, out, root), (int)type, (int)op, config);
}

NCCL_FUNCTION(ncclResult_t, ncclBroadcast,
              (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream))
{
	return call(CALL(NCCL_BROADCAST, in, out, root), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclBroadcastConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_BROADCAST, in, out, root), (int)type, 0, config);
}

NCCL_FUNCTION(ncclResult_t, ncclAllGather,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))
{
	return call(CALL(NCCL_ALL_GATHER, in, out, 0), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclAllGatherConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_ALL_GATHER, in, out, 0), (int)type, 0, config);
}

NCCL_FUNCTION(ncclResult_t, ncclReduceScatter,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream))
{
	return call(CALL(NCCL_REDUCE_SCATTER, in, out, 0), (int)type, (int)op, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclReduceScatterConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_REDUCE_SCATTER, in, out, 0), (int)type, (int)op, config);
}

NCCL_FUNCTION(ncclResult_t, ncclAlltoAll,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream))
{
	return call(CALL(NCCL_ALL_TO_ALL, in, out, 0), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclAlltoAllConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream,
               const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_ALL_TO_ALL, in, out, 0), (int)type, 0, config);
}

NCCL_FUNCTION(ncclResult_t, ncclGather,
              (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream))
{
	return call(CALL(NCCL_GATHER, in, out, root), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclGatherConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_GATHER, in, out, root), (int)type, 0, config);
}

NCCL_FUNCTION(ncclResult_t, ncclScatter,
              (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream))
{
	return call(CALL(NCCL_SCATTER, in, out, root), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclScatterConfig,
              (const void *in, void *out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
               cudaStream_t stream, const ncclCollConfig_t *config))
{
	return call(CALL(NCCL_SCATTER, in, out, root), (int)type, 0, config);
}

NCCL_FUNCTION(ncclResult_t, ncclBcast,
              (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream))
{
	return call(CALL(NCCL_BROADCAST, buffer, buffer, root), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclSend,
              (const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))
{
	return call(CALL(NCCL_SEND, in, NULL, peer), (int)type, 0, NULL);
}

NCCL_FUNCTION(ncclResult_t, ncclRecv,
              (void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream))
{
	return call(CALL(NCCL_RECV, NULL, out, peer), (int)type, 0, NULL);
}
