/*
 * A user's own use of the CUDA driver: see cuda_user.h.
 */
#include "cuda_user.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { POINTER_CONTEXT = 1, POINTER_ORDINAL = 9, NON_BLOCKING = 1, GLOBAL = 0, THREAD_LOCAL = 1 };

static struct {
	int (*pointer_attribute)(void *value, int attribute, uint64_t ptr);
	int (*set_context)(void *context);
	int (*device_context)(void **context, int ordinal);
	int (*to_device)(uint64_t dst, const void *src, size_t len_bytes, void *stream);
	int (*to_host)(void *dst, uint64_t src, size_t len_bytes, void *stream);
	int (*synchronize)(void *stream);
	int (*create)(void **stream, unsigned flags);
	int (*alloc)(uint64_t *device, size_t len_bytes);
	int (*query)(void *stream);
	int (*destroy)(void *stream);
	int (*begin)(void *stream, int mode);
	int (*end)(void *stream, void **graph);
	int (*instantiate)(void **exec, void *graph, unsigned long long flags);
	int (*graph_destroy)(void *graph);
	int (*launch)(void *exec, void *stream);
	int (*exec_destroy)(void *exec);
	int (*event_create)(void **event, unsigned flags);
	int (*event_destroy)(void *event);
	int (*event_record)(void *event, void *stream);
	int (*wait_event)(void *stream, void *event, unsigned flags);
} cuda;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	const char *name = getenv("COLL_CUDA_LIBRARY");
	void *handle = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return;
	*(void **)&cuda.pointer_attribute = dlsym(handle, "cuPointerGetAttribute");
	*(void **)&cuda.device_context = dlsym(handle, "cuDevicePrimaryCtxRetain");
	*(void **)&cuda.set_context = dlsym(handle, "cuCtxSetCurrent");
	*(void **)&cuda.to_device = dlsym(handle, "cuMemcpyHtoDAsync_v2");
	*(void **)&cuda.to_host = dlsym(handle, "cuMemcpyDtoHAsync_v2");
	*(void **)&cuda.synchronize = dlsym(handle, "cuStreamSynchronize");
	*(void **)&cuda.create = dlsym(handle, "cuStreamCreate");
	*(void **)&cuda.alloc = dlsym(handle, "cuMemAlloc_v2");
	*(void **)&cuda.query = dlsym(handle, "cuStreamQuery");
	*(void **)&cuda.begin = dlsym(handle, "cuStreamBeginCapture_v2");
	*(void **)&cuda.end = dlsym(handle, "cuStreamEndCapture");
	*(void **)&cuda.instantiate = dlsym(handle, "cuGraphInstantiateWithFlags");
	*(void **)&cuda.graph_destroy = dlsym(handle, "cuGraphDestroy");
	*(void **)&cuda.launch = dlsym(handle, "cuGraphLaunch");
	*(void **)&cuda.exec_destroy = dlsym(handle, "cuGraphExecDestroy");
	*(void **)&cuda.event_create = dlsym(handle, "cuEventCreate");
	*(void **)&cuda.event_destroy = dlsym(handle, "cuEventDestroy_v2");
	*(void **)&cuda.event_record = dlsym(handle, "cuEventRecord");
	*(void **)&cuda.wait_event = dlsym(handle, "cuStreamWaitEvent");
	*(void **)&cuda.destroy = dlsym(handle, "cuStreamDestroy_v2");
}

/* The context of the memory becomes that of this thread. */
bool cuda_user_enter(const void *device)
{
	const uint64_t at = (uint64_t)(uintptr_t)device;
	void *context = NULL;
	int ordinal = 0;

	pthread_once(&once, load);
	if (!cuda.destroy || cuda.pointer_attribute(&context, POINTER_CONTEXT, at) != 0)
		return false;
	/* Mapped memory belongs to no context. It is retained for good: a few times too often. */
	if (!context &&
	    (cuda.pointer_attribute(&ordinal, POINTER_ORDINAL, at) != 0 || cuda.device_context(&context, ordinal) != 0))
		return false;
	return cuda.set_context(context) == 0;
}

bool cuda_user_write(void *device, const void *host, size_t len_bytes)
{
	return len_bytes == 0 ||
	       (cuda_user_enter(device) && cuda.to_device((uint64_t)(uintptr_t)device, host, len_bytes, NULL) == 0 &&
	        cuda.synchronize(NULL) == 0);
}

bool cuda_user_read(void *host, const void *device, size_t len_bytes)
{
	return len_bytes == 0 ||
	       (cuda_user_enter(device) && cuda.to_host(host, (uint64_t)(uintptr_t)device, len_bytes, NULL) == 0 &&
	        cuda.synchronize(NULL) == 0);
}

bool cuda_user_stream(const void *device, void **stream)
{
	return cuda_user_enter(device) && cuda.create(stream, NON_BLOCKING) == 0;
}

void *cuda_user_alloc(const void *device, size_t len_bytes)
{
	uint64_t at = 0;

	return cuda_user_enter(device) && cuda.alloc(&at, len_bytes) == 0 ? (void *)(uintptr_t)at : NULL;
}

int cuda_user_query(void *stream)
{
	return cuda.query(stream);
}

void cuda_user_stream_destroy(void *stream)
{
	cuda.destroy(stream);
}

bool cuda_user_synchronize(void *stream)
{
	return cuda.synchronize(stream) == 0;
}

static int mode = GLOBAL;

void cuda_user_threads(void)
{
	mode = THREAD_LOCAL;
}

bool cuda_user_capture(void *stream)
{
	return cuda.begin(stream, mode) == 0;
}

bool cuda_user_captured(void *stream, void **exec, int n)
{
	void *graph = NULL;
	bool done = cuda.end(stream, &graph) == 0;

	for (int i = 0; i < n && done; i++)
		done = cuda.instantiate(&exec[i], graph, 0) == 0;
	return done && cuda.graph_destroy(graph) == 0;
}

bool cuda_user_launch(void *exec, void *stream)
{
	return cuda.launch(exec, stream) == 0;
}

void cuda_user_exec_destroy(void *exec)
{
	cuda.exec_destroy(exec);
}

bool cuda_user_abandon(void *stream)
{
	void *graph = NULL;

	return cuda.end(stream, &graph) == 0 && cuda.graph_destroy(graph) == 0;
}

bool cuda_user_order(void *earlier, void *later)
{
	void *event = NULL;
	const bool done = cuda.event_create(&event, 2) == 0 && cuda.event_record(event, earlier) == 0 &&
	                  cuda.wait_event(later, event, 0) == 0;

	if (event)
		cuda.event_destroy(event);
	return done;
}
