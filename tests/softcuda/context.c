/*
 * Contexts: the primary one of each device, counted, and those that cuCtxCreate makes; the stack
 * of current contexts of each thread; peer access; the sticky error.
 */
#include "tests/softcuda/soft.h"

#include <stdlib.h>

enum { STACK_MAX = 32 };
static __thread CUcontext stack[STACK_MAX];
static __thread int stack_count;

CUcontext soft_current(void)
{
	return stack_count ? stack[stack_count - 1] : NULL;
}

bool soft_context_lives(CUcontext ctx)
{
	for (CUcontext c = soft.contexts; c; c = c->next)
		if (c == ctx)
			return !c->dead;
	return false;
}

void soft_fault(CUcontext ctx, CUresult error)
{
	CUresult none = CUDA_SUCCESS;

	pthread_mutex_lock(&soft.lock);
	atomic_compare_exchange_strong(&ctx->error, &none, error);
	soft_changed();
	pthread_mutex_unlock(&soft.lock);
}

static CUcontext context_new(CUdevice dev, unsigned flags, bool primary)
{
	CUcontext ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->device = dev;
	ctx->flags = flags;
	ctx->primary = primary;
	if (soft_planted(RULE_other_context) && soft.contexts)
		ctx->error = soft.contexts->error;
	ctx->next = soft.contexts;
	soft.contexts = ctx;
	return ctx;
}

static void context_end(CUcontext ctx)
{
	soft_drain(ctx, false, "the end of a context");
	if (!soft_planted(RULE_context_end))
		soft_blocks_end(ctx);
	soft_streams_end(ctx);
	ctx->dead = true;
	for (CUcontext c = soft.contexts; c; c = c->next)
		for (int i = 0; i < SOFT_DEVICES_MAX; i++)
			if (c->peers[i] == ctx)
				c->peers[i] = NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
	struct soft_device *d = &soft.device[dev < 0 ? 0 : dev % SOFT_DEVICES_MAX];

	ENTER(cuDevicePrimaryCtxRetain);
	if (dev < 0 || dev >= soft.devices)
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!ctx)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!d->primary)
		d->primary = context_new(dev, CU_CTX_MAP_HOST, true);
	if (!d->primary)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	d->primary_refs++;
	*ctx = d->primary;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	ENTER(cuDevicePrimaryCtxRelease);
	if (dev < 0 || dev >= soft.devices)
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!soft.device[dev].primary)
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (--soft.device[dev].primary_refs == 0) {
		context_end(soft.device[dev].primary);
		soft.device[dev].primary = NULL;
	}
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned *flags, int *active)
{
	ENTER(cuDevicePrimaryCtxGetState);
	if (dev < 0 || dev >= soft.devices)
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!flags || !active)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*active = soft.device[dev].primary != NULL;
	*flags = *active ? soft.device[dev].primary->flags : 0;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice dev)
{
	ENTER(cuCtxCreate);
	if (dev < 0 || dev >= soft.devices)
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!ctx || flags > CU_CTX_FLAGS_MASK || stack_count == STACK_MAX)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*ctx = context_new(dev, flags, false);
	if (!*ctx)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	stack[stack_count++] = *ctx;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	ENTER(cuCtxDestroy);
	if (!soft_context_lives(ctx) || ctx->primary)
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	context_end(ctx);
	if (soft_current() == ctx)
		stack_count--;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	ENTER_THREAD(cuCtxSetCurrent);
	if (ctx && !soft_context_lives(ctx))
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (stack_count)
		stack_count--;
	if (ctx)
		stack[stack_count++] = ctx;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *ctx)
{
	ENTER_THREAD(cuCtxGetCurrent);
	if (!ctx)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*ctx = soft_current();
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	ENTER_THREAD(cuCtxPushCurrent);
	if (!soft_context_lives(ctx) || stack_count == STACK_MAX)
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	stack[stack_count++] = ctx;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx)
{
	ENTER_THREAD(cuCtxPopCurrent);
	if (!stack_count)
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	stack_count--;
	if (ctx)
		*ctx = stack[stack_count];
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext ctx;

	ENTER_CTX(cuCtxGetDevice, ctx);
	if (!device)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*device = ctx->device;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
	CUcontext ctx;
	CUresult result;

	ENTER_CTX(cuCtxSynchronize, ctx);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	soft_drain(ctx, false, "cuCtxSynchronize");
	return soft_leave(ctx->error);
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	CUcontext ctx;

	ENTER_CTX(cuCtxEnablePeerAccess, ctx);
	if (flags)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!soft_context_lives(peer) || peer == ctx)
		return soft_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (soft_setting("SOFTCUDA_NO_PEER", 0) && peer->device != ctx->device)
		return soft_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	for (int i = 0; i < SOFT_DEVICES_MAX; i++)
		if (ctx->peers[i] == peer)
			return soft_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	for (int i = 0; i < SOFT_DEVICES_MAX; i++) {
		if (!ctx->peers[i]) {
			ctx->peers[i] = peer;
			return soft_leave(CUDA_SUCCESS);
		}
	}
	return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
}
