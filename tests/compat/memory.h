/*
 * Memory and streams of a test rank: of a device of the stand-in driver, or of the host where COLL_CUDA_LIBRARY is not
 * set.
 */
#ifndef TESTS_COMPAT_MEMORY_H
#define TESTS_COMPAT_MEMORY_H

#include <stdbool.h>
#include <string.h>

#include "compat/nccl/abi.h"
#include "tests/cuda/driver.h"

/* Before there are threads. Processes that are forked later have the driver's file and nothing of it in use. */
static inline void find_driver(void)
{
	driver_path = getenv("COLL_CUDA_LIBRARY");
	if (driver_path && *driver_path)
		driver_symbol("cuInit");
}

static inline bool on_device(void)
{
	return driver_path && *driver_path;
}

static inline int devices(void)
{
	const char *text = getenv("SOFTCUDA_DEVICES");

	return text ? atoi(text) : 1;
}

/* cudaSetDevice() */
static inline void use_device(int device)
{
	CUcontext context = NULL;

	if (!on_device())
		return;
	DRIVER(cuInit)(0);
	if (DRIVER(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS ||
	    DRIVER(cuCtxSetCurrent)(context) != CUDA_SUCCESS)
		abort();
}

static inline cudaStream_t make_stream(void)
{
	CUstream s = NULL;

	if (on_device() && DRIVER(cuStreamCreate)(&s, 1) != CUDA_SUCCESS)
		abort();
	return (cudaStream_t)s;
}

static inline void free_stream(cudaStream_t s)
{
	if (s)
		DRIVER(cuStreamDestroy_v2)((CUstream)s);
}

static inline void write_to(void *to, const void *host, size_t len_bytes, cudaStream_t s)
{
	if (len_bytes == 0)
		return;
	if (!on_device())
		memcpy(to, host, len_bytes);
	else if (DRIVER(cuMemcpyHtoDAsync_v2)((CUdeviceptr)(uintptr_t)to, host, len_bytes, (CUstream)s) != CUDA_SUCCESS)
		abort();
}

/*
 * Behind all work of the stream. It waits before it copies: the driver may copy to pageable memory by means that all
 * threads share, and hold them while the stream waits for another thread's rank.
 */
static inline void read_from(void *host, const void *from, size_t len_bytes, cudaStream_t s)
{
	if (len_bytes == 0)
		return;
	if (!on_device()) {
		memcpy(host, from, len_bytes);
		return;
	}
	if (DRIVER(cuStreamSynchronize)((CUstream)s) != CUDA_SUCCESS ||
	    DRIVER(cuMemcpyDtoHAsync_v2)(host, (CUdeviceptr)(uintptr_t)from, len_bytes, (CUstream)s) != CUDA_SUCCESS ||
	    DRIVER(cuStreamSynchronize)((CUstream)s) != CUDA_SUCCESS)
		abort();
}

static inline bool wait_stream(cudaStream_t s)
{
	return !on_device() || DRIVER(cuStreamSynchronize)((CUstream)s) == CUDA_SUCCESS;
}

#endif
