/*
 * The CUDA driver beside the library (driver.h), through the library's own table of its functions.
 */
#include "compat/nccl/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/config.h"
#include "base/delay.h"
#include "base/limits.h"
#include "compat/nccl/error.h"
#include "device/cuda.h"

enum { DEVICES_MAX = 64 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct coll_settings settings;
static const struct coll_cuda *cuda; /* NULL: not to be used */
static struct coll_error_box why;    /* an error: the program uses the driver, the library cannot */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUcontext primary[DEVICES_MAX]; /* lock; retained for good, as the CUDA runtime does */

/* A process that has loaded the driver uses its memory; taking that for host memory would crash. */
static bool is_loaded(void)
{
	void *file = dlopen(settings.cuda_library[0] ? settings.cuda_library : "libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);

	if (file)
		dlclose(file);
	return file != NULL;
}

static void load(void)
{
	const char *device = getenv("COLL_DEVICE");
	bool used;

	coll_error_clear(&why);
	if ((device && strcmp(device, "host") == 0) || coll_settings_load(&settings, NULL, NULL, &why) != COLL_OK)
		return;
	used = is_loaded();
	if (coll_cuda_load(settings.cuda_library, &cuda, &why) == COLL_OK)
		return;
	cuda = NULL;
	if (!used)
		coll_error_clear(&why);
}

static ncclResult_t failed(CUresult result, const char *function, const char *call)
{
	char text[160];

	return nccl_fail(ncclUnhandledCudaError, "%s: %s: %s", function, call,
	                 coll_cuda_error_text(cuda, result, text));
}

/* The device of the current context; false: there is none. */
static bool current(int *ordinal)
{
	CUcontext context = NULL;
	CUdevice device;

	if (cuda->cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
	    cuda->cuCtxGetDevice(&device) != CUDA_SUCCESS)
		return false;
	*ordinal = (int)device;
	return true;
}

ncclResult_t nccl_driver_device(int *ordinal, const char *function)
{
	pthread_once(&once, load);
	*ordinal = -1;
	if (!cuda && why.status != COLL_OK)
		return nccl_fail(nccl_code(why.status), "%s: %s", function, why.message);
	if (cuda && !current(ordinal))
		*ordinal = 0;
	return ncclSuccess;
}

/* Make a context of the device current, unless one is. */
static ncclResult_t enter(int ordinal, bool *pushed, const char *function)
{
	CUresult result = CUDA_SUCCESS;
	int now;

	*pushed = false;
	if (current(&now) && now == ordinal)
		return ncclSuccess;
	if (ordinal < 0 || ordinal >= DEVICES_MAX)
		return nccl_fail(ncclInvalidArgument, "%s: there is no device %d", function, ordinal);
	pthread_mutex_lock(&lock);
	if (!primary[ordinal])
		result = cuda->cuDevicePrimaryCtxRetain(&primary[ordinal], ordinal);
	pthread_mutex_unlock(&lock);
	if (result != CUDA_SUCCESS)
		return failed(result, function, "cuDevicePrimaryCtxRetain");
	result = cuda->cuCtxPushCurrent(primary[ordinal]);
	if (result != CUDA_SUCCESS)
		return failed(result, function, "cuCtxPushCurrent");
	*pushed = true;
	return ncclSuccess;
}

static void leave(bool pushed)
{
	CUcontext context;

	if (pushed)
		cuda->cuCtxPopCurrent(&context);
}

/* ---- Memory ---- */

/* The library's object of a device, kept for good; NULL: the library cannot use it. */
static struct coll_device *opened(int ordinal)
{
	static struct coll_device *devices[DEVICES_MAX]; /* lock */
	struct coll_error_box err;
	struct coll_device *d;

	pthread_mutex_lock(&lock);
	if (ordinal < DEVICES_MAX && !devices[ordinal])
		coll_cuda_open(cuda, ordinal, &devices[ordinal], &err);
	d = ordinal < DEVICES_MAX ? devices[ordinal] : NULL;
	pthread_mutex_unlock(&lock);
	return d;
}

/* Memory that other processes can map, which long calls then read in place. */
static bool alloc_shared(struct nccl_memory *m, size_t len_bytes)
{
	struct coll_device *d = len_bytes < COLL_MAPPED_LONG_MIN ? NULL : opened(m->ordinal);

	if (!d || d->table->region_create(d, len_bytes, &m->region) != COLL_OK)
		return false;
	if (m->region.fd >= 0)
		close(m->region.fd);
	m->region.fd = -1;
	m->ptr = (void *)(uintptr_t)m->region.export.address;
	return true;
}

ncclResult_t nccl_driver_alloc(struct nccl_memory *m, size_t len_bytes, const char *function)
{
	CUdeviceptr p = 0;
	CUresult result;
	ncclResult_t r;
	bool pushed;

	if (m->ordinal < 0) {
		if (posix_memalign(&m->ptr, 4096, len_bytes) == 0)
			return ncclSuccess;
		return nccl_fail(ncclSystemError, "%s: no memory for %zu bytes", function, len_bytes);
	}
	if (alloc_shared(m, len_bytes))
		return ncclSuccess;
	r = enter(m->ordinal, &pushed, function);
	if (r != ncclSuccess)
		return r;
	result = cuda->cuMemAlloc(&p, len_bytes);
	leave(pushed);
	if (result != CUDA_SUCCESS)
		return failed(result, function, "cuMemAlloc");
	m->ptr = (void *)(uintptr_t)p;
	return ncclSuccess;
}

ncclResult_t nccl_driver_free(struct nccl_memory *m, const char *function)
{
	struct coll_device *d;
	CUresult result;
	ncclResult_t r;
	bool pushed;

	if (m->ordinal < 0) {
		free(m->ptr);
		return ncclSuccess;
	}
	if (m->region.len_bytes) {
		d = opened(m->ordinal);
		d->table->settle(d); /* unmapping does not wait for the device, as cuMemFree() does */
		d->table->region_destroy(d, &m->region);
		return ncclSuccess;
	}
	r = enter(m->ordinal, &pushed, function);
	if (r != ncclSuccess)
		return r;
	result = cuda->cuMemFree((CUdeviceptr)(uintptr_t)m->ptr);
	leave(pushed);
	return result == CUDA_SUCCESS ? ncclSuccess : failed(result, function, "cuMemFree");
}

/* ---- Streams ---- */

ncclResult_t nccl_driver_captured(int ordinal, cudaStream_t stream, bool *captured, const char *function)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUresult result;
	ncclResult_t r;
	bool pushed;

	*captured = false;
	if (ordinal < 0)
		return ncclSuccess;
	r = enter(ordinal, &pushed, function);
	if (r != ncclSuccess)
		return r;
	result = cuda->cuStreamIsCapturing((CUstream)stream, &status);
	leave(pushed);
	*captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return result == CUDA_SUCCESS ? ncclSuccess : failed(result, function, "cuStreamIsCapturing");
}

ncclResult_t nccl_driver_read(int ordinal, void *to, const void *from, size_t len_bytes, cudaStream_t stream,
                              const char *function)
{
	CUresult result;
	ncclResult_t r;
	bool pushed;

	if (ordinal < 0) {
		memcpy(to, from, len_bytes);
		return ncclSuccess;
	}
	r = enter(ordinal, &pushed, function);
	if (r != ncclSuccess)
		return r;
	result = cuda->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, len_bytes,
	                             (CUstream)stream);
	if (result == CUDA_SUCCESS)
		while ((result = cuda->cuStreamQuery((CUstream)stream)) == CUDA_ERROR_NOT_READY)
			nanosleep(&(struct timespec){.tv_nsec = COLL_DELAY_NS(NCCL_LOOK)}, NULL);
	leave(pushed);
	return result == CUDA_SUCCESS ? ncclSuccess : failed(result, function, "cuMemcpyAsync");
}
