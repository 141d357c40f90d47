/*
 * Memory of CUDA devices. What a range is, the driver says; it says "unknown" of plain host memory as well as of device
 * memory that was freed. The kernel of the system tells these two apart, without an access by this thread.
 */
#include "device/cuda_memory.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cuda_capture.h"
#include "device/cuda_kernels.h"
#include "device/cuda_state.h"

enum { PAGE = 4096, FOREIGN_MAX = 16 };

struct facts {
	CUcontext context;
	unsigned type, managed;
	int ordinal;
	CUdeviceptr base;
	size_t len_bytes;
	unsigned long long id;
};

/* Faults are constants, so that they outlive whoever asked. */
static const char *foreign(int ordinal)
{
	static const char *const names[FOREIGN_MAX] = {
	        "memory of cuda:0",  "memory of cuda:1",  "memory of cuda:2",  "memory of cuda:3",
	        "memory of cuda:4",  "memory of cuda:5",  "memory of cuda:6",  "memory of cuda:7",
	        "memory of cuda:8",  "memory of cuda:9",  "memory of cuda:10", "memory of cuda:11",
	        "memory of cuda:12", "memory of cuda:13", "memory of cuda:14", "memory of cuda:15"};

	return ordinal >= 0 && ordinal < FOREIGN_MAX ? names[ordinal] : "memory of another device";
}

/*
 * Whether the host may read the byte. The system call copies the set of signals before it looks at `how`, which is
 * none: so it fails, with EFAULT if the address cannot be read, and changes nothing.
 */
static bool host_readable(uintptr_t at)
{
	const uintptr_t word = at & ~(uintptr_t)7;

	return syscall(SYS_rt_sigprocmask, ~0, (const void *)word, NULL, (size_t)8) == 0 || errno != EFAULT;
}

static CUresult ask(struct coll_cuda_device *c, uintptr_t at, struct facts *f)
{
	CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
	                               CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
	                               CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
	                               CU_POINTER_ATTRIBUTE_BUFFER_ID};
	void *values[] = {&f->context, &f->type, &f->managed, &f->ordinal, &f->base, &f->len_bytes, &f->id};

	*f = (struct facts){.ordinal = -1};
	return c->cu->cuPointerGetAttributes(sizeof(names) / sizeof(names[0]), names, values, (CUdeviceptr)at);
}

/* What is wrong with the byte, or NULL. */
static const char *fault_of(const struct coll_cuda_device *c, const struct facts *f, uintptr_t at)
{
	if (f->managed)
		return "managed memory";
	switch (f->type) {
	case 0: return host_readable(at) ? NULL : "freed, or no memory of this process";
	case CU_MEMORYTYPE_HOST: return NULL;
	case CU_MEMORYTYPE_DEVICE:
		if (f->ordinal != c->number)
			return foreign(f->ordinal);
		/* Memory of a pool or of a mapping belongs to no context. */
		return f->context && f->context != c->context ? "memory of another context of the device" : NULL;
	default: return "memory of a kind that is not served";
	}
}

static bool on_device(const struct facts *f)
{
	return f->type == CU_MEMORYTYPE_DEVICE;
}

/* Outside the allocation. Mappings that lie side by side are several to some drivers. */
static bool is_outside(const struct facts *f, uintptr_t last)
{
	return f->base && f->len_bytes && last - (uintptr_t)f->base >= f->len_bytes;
}

/* The last byte is asked for where it may be something else: outside the allocation, or on another page of memory of
 * which the driver has no record, or of mapped memory: that belongs to no context, and its range may be what was
 * reserved, mapped or not. */
static bool ends_elsewhere(const struct facts *f, uintptr_t at, uintptr_t last)
{
	const bool recorded = f->base && f->len_bytes && f->context;

	return is_outside(f, last) || (!recorded && at / PAGE != last / PAGE);
}

bool coll_cuda_identify(struct coll_device *d, const void *ptr, size_t len_bytes, struct coll_device_range *range)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	const uintptr_t at = (uintptr_t)ptr, last = at + (len_bytes ? len_bytes - 1 : 0);
	struct facts f, end;
	bool elsewhere = false, outside = false;
	CUresult result = coll_cuda_enter(c);

	if (result == CUDA_SUCCESS) {
		result = ask(c, at, &f);
		if (result == CUDA_SUCCESS && (elsewhere = ends_elsewhere(&f, at, last)))
			result = ask(c, last, &end);
		coll_cuda_leave(c);
	}
	if (coll_cuda_report(c, "cuPointerGetAttributes", result) != COLL_OK)
		return false;
	outside = is_outside(&f, last);
	*range = (struct coll_device_range){.kind = on_device(&f) ? COLL_DEVICE_CUDA : COLL_DEVICE_HOST,
	                                    .ordinal = on_device(&f) ? f.ordinal : -1,
	                                    .fault = fault_of(c, &f, at),
	                                    .base = outside ? 0 : (uintptr_t)f.base,
	                                    .len_bytes = outside ? 0 : f.len_bytes,
	                                    .id = f.id};
	if (elsewhere && !range->fault)
		range->fault = on_device(&f) != on_device(&end)
		                       ? "host memory and device memory, or longer than it was allocated"
		                       : fault_of(c, &end, last);
	return true;
}

/* A capture in this thread, or a global one of another, is left alone: such calls would end it. */
coll_status coll_cuda_alloc(struct coll_device *d, size_t len_bytes, void **ptr)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUdeviceptr at = 0;
	coll_status st = COLL_CUDA_CALL(c, _relaxed, cuMemAlloc, &at, len_bytes);

	if (st == COLL_OK)
		*ptr = (void *)(uintptr_t)at;
	return st;
}

coll_status coll_cuda_free(struct coll_device *d, void *ptr)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, _relaxed, cuMemFree, (CUdeviceptr)(uintptr_t)ptr);
}

/* Freeing memory waits until all streams of the context are empty, in a relaxed thread also beside a capture. A
 * synchronisation of the context would end the capture. */
coll_status coll_cuda_settle(struct coll_device *d)
{
	void *block = NULL;
	coll_status st = coll_cuda_alloc(d, 1, &block);

	return st == COLL_OK ? coll_cuda_free(d, block) : st;
}

coll_status coll_cuda_pin(struct coll_device *d, void *host, size_t len_bytes, uint64_t *address)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	const char *call = "cuMemHostRegister";
	CUdeviceptr at = 0;
	CUresult result = coll_cuda_enter_relaxed(c);
	coll_status st;

	if (result == CUDA_SUCCESS) {
		result = c->cu->cuMemHostRegister(host, len_bytes,
		                                  CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
		if (result == CUDA_SUCCESS) {
			call = "cuMemHostGetDevicePointer";
			result = c->cu->cuMemHostGetDevicePointer(&at, host, 0);
			if (result != CUDA_SUCCESS)
				c->cu->cuMemHostUnregister(host);
		}
		coll_cuda_leave_relaxed(c);
	}
	st = coll_cuda_report(c, call, result);
	if (st == COLL_OK)
		*address = (uint64_t)at;
	return st;
}

coll_status coll_cuda_unpin(struct coll_device *d, void *host)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, _relaxed, cuMemHostUnregister, host);
}

coll_status coll_cuda_clear(struct coll_device *d, const uint64_t *words, int nwords)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	struct coll_kernel_launch l;
	CUresult result = coll_cuda_enter_relaxed(c);

	if (result == CUDA_SUCCESS) {
		for (int i = 0; i < nwords && result == CUDA_SUCCESS; i++) {
			coll_kernels_gather(&l, 0, 0, 0, 0, words[i], 0, 1);
			result = coll_cuda_launch(c, c->stream, &l);
		}
		if (result == CUDA_SUCCESS)
			result = coll_cuda_drain(c);
		coll_cuda_leave_relaxed(c);
	}
	return coll_cuda_report(c, "clearing words of the device", result);
}
