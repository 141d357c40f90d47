/*
 * The CUDA driver, found at run time.
 *
 * Nothing of this library links libcuda. It is loaded when the first device is asked for, once per process, and
 * stays. Types and names of its functions: cuda_abi.h.
 */
#ifndef COLL_DEVICE_CUDA_LOAD_H
#define COLL_DEVICE_CUDA_LOAD_H

#include "base/error.h"
#include "device/cuda_abi.h"

enum { COLL_CUDA_VERSION_MIN = 11070 }; /* it brought the stream memory operations that need no option of the driver */

/*
 * The functions that the library calls. NEED(name): the driver is refused without it. MAY(name, ability): the pointer
 * is NULL if the driver lacks it, and the ability is off.
 */
#define COLL_CUDA_FUNCTIONS(NEED, MAY)             \
	NEED(cuInit)                               \
	NEED(cuDriverGetVersion)                   \
	NEED(cuGetErrorName)                       \
	NEED(cuGetErrorString)                     \
	NEED(cuDeviceGet)                          \
	NEED(cuDeviceGetCount)                     \
	NEED(cuDeviceGetName)                      \
	NEED(cuDeviceGetAttribute)                 \
	NEED(cuDevicePrimaryCtxRetain)             \
	NEED(cuDevicePrimaryCtxRelease)            \
	NEED(cuCtxGetCurrent)                      \
	NEED(cuCtxPushCurrent)                     \
	NEED(cuCtxPopCurrent)                      \
	NEED(cuCtxGetDevice)                       \
	NEED(cuMemAlloc)                           \
	NEED(cuMemFree)                            \
	NEED(cuMemHostRegister)                    \
	NEED(cuMemHostUnregister)                  \
	NEED(cuMemHostGetDevicePointer)            \
	NEED(cuPointerGetAttributes)               \
	NEED(cuMemcpyAsync)                        \
	NEED(cuStreamCreate)                       \
	NEED(cuStreamDestroy)                      \
	NEED(cuStreamQuery)                        \
	NEED(cuStreamWaitEvent)                    \
	NEED(cuStreamIsCapturing)                  \
	NEED(cuThreadExchangeStreamCaptureMode)    \
	MAY(cuStreamGetCaptureInfo, "capture")     \
	MAY(cuEventRecordWithFlags, "capture")     \
	MAY(cuUserObjectCreate, "capture")         \
	MAY(cuUserObjectRelease, "capture")        \
	MAY(cuGraphRetainUserObject, "capture")    \
	NEED(cuStreamGetCtx)                       \
	NEED(cuStreamWaitValue32)                  \
	MAY(cuStreamWriteValue32, "copy_engine")   \
	MAY(cuStreamBatchMemOp, "batch")           \
	MAY(cuDeviceCanAccessPeer, "peer")         \
	MAY(cuCtxEnablePeerAccess, "peer")         \
	MAY(cuMemGetAllocationGranularity, "vmm")  \
	MAY(cuMemCreate, "vmm")                    \
	MAY(cuMemRelease, "vmm")                   \
	MAY(cuMemAddressReserve, "vmm")            \
	MAY(cuMemAddressFree, "vmm")               \
	MAY(cuMemMap, "vmm")                       \
	MAY(cuMemUnmap, "vmm")                     \
	MAY(cuMemSetAccess, "vmm")                 \
	MAY(cuMemExportToShareableHandle, "vmm")   \
	MAY(cuMemRetainAllocationHandle, "vmm")    \
	MAY(cuMemImportFromShareableHandle, "vmm") \
	MAY(cuIpcGetMemHandle, "ipc")              \
	MAY(cuIpcOpenMemHandle, "ipc")             \
	MAY(cuIpcCloseMemHandle, "ipc")            \
	NEED(cuEventCreate)                        \
	NEED(cuEventDestroy)                       \
	NEED(cuEventRecord)                        \
	NEED(cuModuleLoadData)                     \
	NEED(cuModuleUnload)                       \
	NEED(cuModuleGetFunction)                  \
	NEED(cuLaunchKernel)

/* The type of each function of cuda_abi.h by its name: cuInit_type. */
#define COLL_CUDA_TYPE(name, symbol, version, parameters) typedef symbol##_fn name##_type;
CUDA_ABI_FUNCTIONS(COLL_CUDA_TYPE)

struct coll_cuda {
#define COLL_CUDA_NEED(name)         name##_type name;
#define COLL_CUDA_MAY(name, ability) name##_type name;
	COLL_CUDA_FUNCTIONS(COLL_CUDA_NEED, COLL_CUDA_MAY)
#undef COLL_CUDA_NEED
#undef COLL_CUDA_MAY
	int version;    /* of the driver: 1000 * major + 10 * minor */
	char file[256]; /* that was loaded */
	char lacks[64]; /* abilities that are off, by name; "" */
};

/* Load the driver and initialise it. library: the file, "" for libcuda.so.1. A process has one driver: a later call may
 * name no other file. CONFIG: err names the file and the reason; the next call tries again. */
coll_status coll_cuda_load(const char *library, const struct coll_cuda **cuda, struct coll_error_box *err);

/* "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)". */
const char *coll_cuda_error_text(const struct coll_cuda *cuda, CUresult result, char text[160]);

#endif
