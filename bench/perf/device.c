/*
 * Copies between host buffers and device buffers of the library, by the CUDA driver itself, as any program would make
 * them. The driver is loaded when it is needed: these programs link nothing of CUDA.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "perf.h"

/* From the driver's public interface. */
enum { POINTER_CONTEXT = 1, POINTER_ORDINAL = 9 };
static struct {
	int (*pointer_attribute)(void *value, int attribute, uint64_t ptr);
	int (*set_context)(void *context);
	int (*device_context)(void **context, int ordinal);
	int (*to_device)(uint64_t dst, const void *src, size_t len_bytes, void *stream);
	int (*to_host)(void *dst, uint64_t src, size_t len_bytes, void *stream);
	int (*synchronize)(void *stream);
	int (*pci_address)(char *text, int len_bytes, int ordinal);
	int (*name)(char *text, int len_bytes, int ordinal);
	bool whole;
} cuda;

static void load(void)
{
	const char *name = getenv("COLL_CUDA_LIBRARY");
	void *handle;

	handle = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return;
	*(void **)&cuda.pointer_attribute = dlsym(handle, "cuPointerGetAttribute");
	*(void **)&cuda.device_context = dlsym(handle, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda.set_context = dlsym(handle, "cuCtxSetCurrent");
	*(void **)&cuda.to_device = dlsym(handle, "cuMemcpyHtoDAsync_v2");
	*(void **)&cuda.to_host = dlsym(handle, "cuMemcpyDtoHAsync_v2");
	*(void **)&cuda.synchronize = dlsym(handle, "cuStreamSynchronize");
	*(void **)&cuda.pci_address = dlsym(handle, "cuDeviceGetPCIBusId");
	*(void **)&cuda.name = dlsym(handle, "cuDeviceGetName");
	cuda.whole = cuda.pointer_attribute && cuda.set_context && cuda.device_context && cuda.to_device &&
	             cuda.to_host && cuda.synchronize && cuda.pci_address && cuda.name;
}

static bool loaded(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	return cuda.whole;
}

/* The context of the memory becomes that of this thread. */
static bool enter(const void *device)
{
	const uint64_t at = (uint64_t)(uintptr_t)device;
	void *context = NULL;
	int ordinal = 0;

	if (!loaded() || cuda.pointer_attribute(&context, POINTER_CONTEXT, at) != 0)
		return false;
	/* Memory that can be mapped by others belongs to no context. */
	if (!context &&
	    (cuda.pointer_attribute(&ordinal, POINTER_ORDINAL, at) != 0 || cuda.device_context(&context, ordinal) != 0))
		return false;
	return cuda.set_context(context) == 0;
}

coll_status perf_device_write(void *device, const void *host, size_t len_bytes)
{
	if (len_bytes == 0)
		return COLL_OK;
	if (!enter(device) || cuda.to_device((uint64_t)(uintptr_t)device, host, len_bytes, NULL) != 0 ||
	    cuda.synchronize(NULL) != 0)
		return COLL_ERR_SYSTEM;
	return COLL_OK;
}

coll_status perf_device_read(void *host, const void *device, size_t len_bytes)
{
	if (len_bytes == 0)
		return COLL_OK;
	if (!enter(device) || cuda.to_host(host, (uint64_t)(uintptr_t)device, len_bytes, NULL) != 0 ||
	    cuda.synchronize(NULL) != 0)
		return COLL_ERR_SYSTEM;
	return COLL_OK;
}

bool perf_device_gpu(const void *device, struct perf_gpu *gpu)
{
	char address[16];

	return loaded() && cuda.pointer_attribute(&gpu->ordinal, POINTER_ORDINAL, (uint64_t)(uintptr_t)device) == 0 &&
	       cuda.name(gpu->name, sizeof(gpu->name), gpu->ordinal) == 0 &&
	       cuda.pci_address(address, sizeof(address), gpu->ordinal) == 0 &&
	       sscanf(address, "%x:%x:%x", &gpu->domain, &gpu->bus, &gpu->slot) == 3;
}
