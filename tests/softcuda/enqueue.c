/*
 * Copies, fills and memory operations: what is checked when they are enqueued. What only shows
 * when they run (memory that has gone) is a fault of the context.
 */
#include "tests/softcuda/soft.h"

#include <stdlib.h>
#include <string.h>

#define STREAM(handle, s)                                          \
	do {                                                       \
		CUresult found = soft_stream(ctx, (handle), &(s)); \
		if (found)                                         \
			return soft_leave(found);                  \
	} while (0)

/* ---- copies ---- */

enum side { ANY, DEVICE, HOST };

/* What one end of a copy is. raw: host memory that the driver does not know. Returns false: no such memory. */
static bool end_of_copy(CUcontext ctx, enum side side, uintptr_t *address, size_t len, bool *raw)
{
	struct soft_block *b = soft_block_at(*address);

	*raw = false;
	if (!b && !soft_address_holds(*address) && side != DEVICE) {
		b = soft_host_block_at(*address);
		if (b) /* registered under another device address */
			*address -= (uintptr_t)b->delta;
	}
	if (!b && (soft_address_holds(*address) || side == DEVICE))
		return soft_planted(RULE_copy_range);
	if (b && b->kind == SOFT_REGISTERED && !soft_may_access(b, ctx)) {
		*address += (uintptr_t)b->delta;
		b = NULL; /* pinned for another context only */
	}
	if (!b) {
		*raw = true;
		return true;
	}
	if (side == HOST && soft_address_holds(*address) && !b->aliased)
		return false;
	return soft_touch(ctx, *address, len) != NULL || soft_planted(RULE_copy_range);
}

static CUresult copy(CUcontext ctx, CUstream handle, enum side to, uintptr_t dst, enum side from, uintptr_t src,
                     size_t len, bool synchronous)
{
	struct soft_work work = {.kind = OP_COPY, .copy = {.dst = dst, .src = src, .len = len}};
	struct soft_op *op = NULL;
	CUresult result;
	CUstream s;

	STREAM(handle, s);
	if (synchronous) {
		result = soft_capture_unsafe();
		if (result)
			return soft_leave(result);
	}
	if (!len)
		return soft_leave(CUDA_SUCCESS);
	if (!end_of_copy(s->ctx, to, &work.copy.dst, len, &work.copy.raw_dst) ||
	    !end_of_copy(s->ctx, from, &work.copy.src, len, &work.copy.raw_src))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if ((work.copy.raw_dst || work.copy.raw_src) && !soft_planted(RULE_pageable_copy))
		synchronous = true;
	if (soft_planted(RULE_registered_copy))
		synchronous = true;
	result = soft_enqueue(s, &work, &op);
	if (op) { /* none: it was captured */
		if (synchronous) {
			soft_wait(op, "a copy of memory that is not registered, or a synchronous one,");
			result = s->ctx->error;
		}
		soft_op_unref(op);
	}
	return soft_leave(result);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream stream)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpyAsync, ctx);
	return copy(ctx, stream, ANY, dst, ANY, src, len, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t len, CUstream stream)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpyHtoDAsync, ctx);
	return copy(ctx, stream, DEVICE, dst, HOST, (uintptr_t)src, len, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t len, CUstream stream)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpyDtoHAsync, ctx);
	return copy(ctx, stream, HOST, (uintptr_t)dst, DEVICE, src, len, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t len, CUstream stream)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpyDtoDAsync, ctx);
	return copy(ctx, stream, DEVICE, dst, DEVICE, src, len, false);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t len)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpy, ctx);
	return copy(ctx, NULL, ANY, dst, ANY, src, len, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t len)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpyHtoD, ctx);
	return copy(ctx, NULL, DEVICE, dst, HOST, (uintptr_t)src, len, true);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t len)
{
	CUcontext ctx;

	ENTER_CTX(cuMemcpyDtoH, ctx);
	return copy(ctx, NULL, HOST, (uintptr_t)dst, DEVICE, src, len, true);
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t len, CUstream handle)
{
	struct soft_work work = {.kind = OP_SET, .set = {dst, len, value}};
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuMemsetD8Async, ctx);
	STREAM(handle, s);
	if (len && !soft_touch(s->ctx, dst, len))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	return soft_leave(len ? soft_enqueue(s, &work, NULL) : CUDA_SUCCESS);
}

/* ---- memory operations ---- */

static CUresult check_word(CUcontext ctx, CUdeviceptr address, size_t len)
{
	const struct soft_block *b = soft_block_at((uintptr_t)address);

	if (address % len && !soft_planted(RULE_memop_aligned))
		return CUDA_ERROR_INVALID_VALUE;
	if (soft_planted(RULE_memop_memory))
		return CUDA_SUCCESS;
	if (!b || b->kind == SOFT_MANAGED || !soft_touch(ctx, (uintptr_t)address, len))
		return CUDA_ERROR_INVALID_VALUE;
	if (b->kind == SOFT_REGISTERED && !(b->flags & CU_MEMHOSTREGISTER_DEVICEMAP))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult check_memop(CUcontext ctx, const CUstreamBatchMemOpParams *op)
{
	switch (op->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		if (op->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH)
			return CUDA_ERROR_NOT_SUPPORTED; /* CAN_FLUSH_REMOTE_WRITES is 0 */
		if (op->waitValue.flags > CU_STREAM_WAIT_VALUE_NOR)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		if (op->writeValue.flags)
			return op->writeValue.flags == CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
			               ? CUDA_ERROR_NOT_SUPPORTED
			               : CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_ERROR_NOT_SUPPORTED;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return check_word(ctx, op->waitValue.address,
	                  op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
	                                  op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32
	                          ? 4
	                          : 8);
}

static CUresult memops(CUcontext ctx, CUstream handle, unsigned count, const CUstreamBatchMemOpParams *ops)
{
	struct soft_work work = {.kind = OP_MEMOP, .memop = {.count = count}};
	CUstream s;

	STREAM(handle, s);
	if (soft.no_memops)
		return soft_leave(CUDA_ERROR_NOT_SUPPORTED);
	for (unsigned i = 0; i < count; i++) {
		CUresult result = check_memop(s->ctx, &ops[i]);

		if (result)
			return soft_leave(result);
	}
	work.memop.ops = malloc(count * sizeof(*ops));
	if (!work.memop.ops)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	memcpy(work.memop.ops, ops, count * sizeof(*ops));
	return soft_leave(soft_enqueue(s, &work, NULL));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags)
{
	const CUstreamBatchMemOpParams op = {
	        .waitValue = {
	                .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = addr, .value = value, .flags = flags}};
	CUcontext ctx;

	ENTER_CTX(cuStreamWaitValue32, ctx);
	return memops(ctx, stream, 1, &op);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned flags)
{
	const CUstreamBatchMemOpParams op = {
	        .writeValue = {
	                .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = addr, .value = value, .flags = flags}};
	CUcontext ctx;

	ENTER_CTX(cuStreamWriteValue32, ctx);
	return memops(ctx, stream, 1, &op);
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags)
{
	CUcontext ctx;

	ENTER_CTX(cuStreamBatchMemOp, ctx);
	if (!count || !ops || flags || (count > 255 && !soft_planted(RULE_memop_batch)))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	return memops(ctx, stream, count, ops);
}
