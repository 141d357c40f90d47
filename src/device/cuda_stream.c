/*
 * Streams of CUDA devices. Every copy into memory that a failed call must not write is a guarded kernel, since
 * a copy of the driver cannot be called back. Copies into pinned memory may be the driver's.
 *
 * A grid of several blocks would need a counter in device memory to store the word behind all of them, and one counter
 * per launch that may still wait in some stream. So the word is stored by a grid of one block, or by an
 * operation of its own behind the copies; the order of the stream does the rest.
 */
#include "device/cuda_stream.h"

#include <stdio.h>

#include "base/planted.h"
#include "device/cuda_capture.h"
#include "device/cuda_state.h"

enum {
	ONE_BLOCK_BYTES = 32 << 10,   /* the last piece of a gather: the block that copies it stores the word */
	COPY_ENGINE_BYTES = 64 << 10, /* a longer piece to pinned memory is copied by the driver */
};

coll_status coll_cuda_stream_create(struct coll_device *d, coll_device_stream *s)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUstream made = NULL;
	coll_status st = COLL_CUDA_CALL(c, _relaxed, cuStreamCreate, &made, CU_STREAM_NON_BLOCKING);

	if (st == COLL_OK)
		*s = made;
	return st;
}

coll_status coll_cuda_stream_destroy(struct coll_device *d, coll_device_stream s)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, _relaxed, cuStreamDestroy, s);
}

/* The device of another context. */
static CUresult device_of(const struct coll_cuda_device *c, CUcontext context, CUdevice *number)
{
	CUcontext popped;
	CUresult result = c->cu->cuCtxPushCurrent(context);

	if (result == CUDA_SUCCESS) {
		result = c->cu->cuCtxGetDevice(number);
		c->cu->cuCtxPopCurrent(&popped);
	}
	return result;
}

static coll_status check(struct coll_cuda_device *c, CUstream s, struct coll_device_capture *capture, const char **why)
{
	static _Thread_local char text[64];
	CUcontext context = NULL;
	CUdevice number = -1;
	CUresult result = c->cu->cuStreamGetCtx(s, &context);

	if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_INVALID_VALUE) {
		*why = "no stream";
		return COLL_ERR_ARGUMENT;
	}
	/* The legacy stream answers so while a stream that it would join is captured. */
	if (result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT && result != CUDA_SUCCESS)
		return coll_cuda_report(c, "cuStreamGetCtx", result);
	if (result == CUDA_SUCCESS && context != c->context) {
		result = device_of(c, context, &number);
		if (result != CUDA_SUCCESS)
			return coll_cuda_report(c, "cuCtxGetDevice", result);
		snprintf(text, sizeof(text), "a stream of %scuda:%d", number == c->number ? "another context of " : "",
		         number);
		*why = text;
		return COLL_ERR_ARGUMENT;
	}
	return coll_cuda_capture_of(c, s, capture, why);
}

coll_status coll_cuda_stream_check(struct coll_device *d, coll_device_stream s, struct coll_device_capture *capture,
                                   const char **why)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUresult result = coll_cuda_enter(c);
	coll_status st;

	if (result != CUDA_SUCCESS)
		return coll_cuda_report(c, "cuCtxPushCurrent", result);
	*capture = (struct coll_device_capture){0};
	st = check(c, s, capture, why);
	coll_cuda_leave(c);
	return st;
}

coll_status coll_cuda_fault(struct coll_device *d)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUresult result = coll_cuda_enter_relaxed(c);

	if (result == CUDA_SUCCESS) {
		result = c->cu->cuStreamQuery(c->stream);
		coll_cuda_leave_relaxed(c);
	}
	return result == CUDA_ERROR_NOT_READY ? COLL_OK : coll_cuda_report(c, "cuStreamQuery", result);
}

/* guard 0: always. */
static CUresult copy(struct coll_cuda_device *c, CUstream s, const struct coll_device_piece *p, uint64_t guard)
{
	struct coll_kernel_launch l;

	coll_kernels_copy(&l, p->dst, p->src, p->len_bytes, guard, COLL_KERNEL_PCIE_BLOCKS);
	if (guard)
		coll_kernels_few_blocks(&l);
	return coll_cuda_launch(c, s, &l);
}

/* One block copies the piece (NULL: nothing) and stores the word. */
static CUresult copy_and_store(struct coll_cuda_device *c, CUstream s, const struct coll_device_piece *p, uint64_t word,
                               uint32_t value)
{
	const struct coll_device_piece none = {0};
	struct coll_kernel_launch l;

	p = p ? p : &none;
	coll_kernels_gather(&l, p->dst, p->src, p->len_bytes, 0, word, value, 1);
	return coll_cuda_launch(c, s, &l);
}

static CUresult gather(struct coll_cuda_device *c, CUstream s, const struct coll_device_piece *pieces, int npieces,
                       uint64_t word, uint32_t value)
{
	const struct coll_device_piece *last = NULL;
	CUresult result = CUDA_SUCCESS;

	if (planted(PAGEABLE_COPY) && npieces > 0)
		c->cu->cuMemcpyAsync((CUdeviceptr)(uintptr_t) & (char){0}, pieces[0].src, 1, s);
	if (planted(LATE_STREAM)) {
		CUstream made = NULL;

		c->cu->cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
	}
	if (word && npieces > 0 && pieces[npieces - 1].len_bytes <= ONE_BLOCK_BYTES)
		last = &pieces[--npieces];
	for (int i = 0; i < npieces && result == CUDA_SUCCESS; i++) {
		const struct coll_device_piece *p = &pieces[i];

		if (p->len_bytes > COPY_ENGINE_BYTES && c->cu->cuStreamWriteValue32)
			result = c->cu->cuMemcpyAsync(p->dst, p->src, p->len_bytes, s);
		else if (p->len_bytes > 0)
			result = copy(c, s, p, 0);
	}
	if (result != CUDA_SUCCESS || !word)
		return result;
	/* The driver's write comes with a fence of the system; a kernel's store is a release. */
	if (!last && c->cu->cuStreamWriteValue32)
		return c->cu->cuStreamWriteValue32(s, word, value, CU_STREAM_WRITE_VALUE_DEFAULT);
	return copy_and_store(c, s, last, word, value);
}

coll_status coll_cuda_gather(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                             int npieces, uint64_t word, uint32_t value)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_BOUND(c, , "enqueueing a gather", gather(c, s, pieces, npieces, word, value));
}

coll_status coll_cuda_scatter(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                              int npieces, uint64_t guard, uint64_t word, uint32_t value)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUresult result = coll_cuda_enter(c);

	if (result == CUDA_SUCCESS) {
		for (int i = 0; i < npieces && result == CUDA_SUCCESS; i++)
			if (pieces[i].len_bytes > 0)
				result = copy(c, s, &pieces[i], guard);
		if (result == CUDA_SUCCESS && word)
			result = gather(c, s, NULL, 0, word, value);
		coll_cuda_leave(c);
	}
	return coll_cuda_report(c, "enqueueing a scatter", result);
}

coll_status coll_cuda_listed(struct coll_device *d, coll_device_stream s, uint64_t at, size_t len_max, uint64_t guard,
                             uint64_t word, uint32_t value)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	struct coll_kernel_launch l;
	CUresult result = coll_cuda_enter(c);

	if (result == CUDA_SUCCESS) {
		coll_kernels_listed(&l, at, len_max, guard, COLL_KERNEL_PCIE_BLOCKS);
		coll_kernels_few_blocks(&l);
		result = coll_cuda_launch(c, s, &l);
		if (result == CUDA_SUCCESS)
			result = gather(c, s, NULL, 0, word, value);
		coll_cuda_leave(c);
	}
	return coll_cuda_report(c, "enqueueing a turn", result);
}

coll_status coll_cuda_wait(struct coll_device *d, coll_device_stream s, uint64_t word, uint32_t value)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, , cuStreamWaitValue32, s, word, value, CU_STREAM_WAIT_VALUE_GEQ);
}

coll_status coll_cuda_order(struct coll_device *d, coll_device_stream earlier, coll_device_stream later)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	const char *call = "cuEventRecord";
	CUresult result = coll_cuda_enter(c);

	if (result == CUDA_SUCCESS) {
		/* The wait takes the event as it is now, so it may be recorded anew behind it. */
		pthread_mutex_lock(&c->order_lock);
		result = c->cu->cuEventRecord(c->event, earlier);
		if (result == CUDA_SUCCESS) {
			call = "cuStreamWaitEvent";
			result = c->cu->cuStreamWaitEvent(later, c->event, CU_EVENT_WAIT_DEFAULT);
		}
		pthread_mutex_unlock(&c->order_lock);
		coll_cuda_leave(c);
	}
	return coll_cuda_report(c, call, result);
}
