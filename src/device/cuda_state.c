/*
 * What each member of the cuda row begins and ends with: the context of the calling thread, which is left as it
 * was, and the text of an error. Nothing is kept of the caller's context, since it may change between two calls.
 */
#include "device/cuda_state.h"

#include <assert.h>
#include <stdio.h>

enum { NESTED_MAX = 4 };

/* The devices whose context this thread has bound, the last one on top. */
static _Thread_local struct {
	int depth;
	struct {
		const struct coll_cuda_device *c;
		int users;
		bool pushed;
	} at[NESTED_MAX];
} bound;

CUresult coll_cuda_enter(struct coll_cuda_device *c)
{
	CUcontext current = NULL;
	CUresult result;
	bool pushed = false;

	if (bound.depth > 0 && bound.at[bound.depth - 1].c == c) {
		bound.at[bound.depth - 1].users++;
		return CUDA_SUCCESS;
	}
	assert(bound.depth < NESTED_MAX);
	result = c->cu->cuCtxGetCurrent(&current);
	if (result == CUDA_SUCCESS && current != c->context) {
		result = c->cu->cuCtxPushCurrent(c->context);
		pushed = true;
	}
	if (result != CUDA_SUCCESS)
		return result;
	bound.at[bound.depth].c = c;
	bound.at[bound.depth].users = 1;
	bound.at[bound.depth].pushed = pushed;
	bound.depth++;
	return CUDA_SUCCESS;
}

void coll_cuda_leave(struct coll_cuda_device *c)
{
	CUcontext popped;

	assert(bound.depth > 0);
	assert(bound.at[bound.depth - 1].c == c);
	if (--bound.at[bound.depth - 1].users > 0)
		return;
	bound.depth--;
	if (bound.at[bound.depth].pushed)
		c->cu->cuCtxPopCurrent(&popped);
}

CUresult coll_cuda_launch(struct coll_cuda_device *c, CUstream s, struct coll_kernel_launch *l)
{
	return c->cu->cuLaunchKernel(c->kernel[l->kernel], l->blocks, 1, 1, l->threads, 1, 1, 0, s, &(void *){&l->args},
	                             NULL);
}

coll_status coll_cuda_report(struct coll_cuda_device *c, const char *call, CUresult result)
{
	const coll_status st = result == CUDA_ERROR_OUT_OF_MEMORY ? COLL_ERR_MEMORY : COLL_ERR_SYSTEM;
	char text[160];

	if (result == CUDA_SUCCESS)
		return COLL_OK;
	coll_cuda_error_text(c->cu, result, text);
	pthread_mutex_lock(&c->base.err_lock);
	coll_error_clear(&c->base.err);
	coll_error_set(&c->base.err, st, "[COLL-4301] %s on %s: %s", call, c->base.name, text);
	pthread_mutex_unlock(&c->base.err_lock);
	return st;
}
