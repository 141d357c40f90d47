/*
 * The binary interface of the CUDA driver (libcuda.so.1), as far as this project calls it:
 * values, layouts and function types. They are facts of the interface, written down here so
 * that nothing of CUDA is needed to build. Names are those of NVIDIA's cuda.h, so that its
 * documentation can be searched for them.
 *
 * Owns no state and no code. The library resolves the functions at run time; the stand-in
 * driver (tests/softcuda) implements them. tests/softcuda/abi_check.c compares every value,
 * layout and type below with cuda.h where one is installed: a file that includes cuda.h first
 * gets the lists of this header only.
 */
#ifndef COLL_DEVICE_CUDA_ABI_H
#define COLL_DEVICE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define CUDA_ABI_RESULTS(V) \
	V(CUDA_SUCCESS, 0) V(CUDA_ERROR_INVALID_VALUE, 1) V(CUDA_ERROR_OUT_OF_MEMORY, 2) V(CUDA_ERROR_NOT_INITIALIZED, 3) \
	V(CUDA_ERROR_DEINITIALIZED, 4) V(CUDA_ERROR_STUB_LIBRARY, 34) V(CUDA_ERROR_DEVICE_UNAVAILABLE, 46) \
	V(CUDA_ERROR_NO_DEVICE, 100) V(CUDA_ERROR_INVALID_DEVICE, 101) V(CUDA_ERROR_INVALID_IMAGE, 200) \
	V(CUDA_ERROR_INVALID_CONTEXT, 201) V(CUDA_ERROR_MAP_FAILED, 205) V(CUDA_ERROR_UNMAP_FAILED, 206) \
	V(CUDA_ERROR_ALREADY_MAPPED, 208) V(CUDA_ERROR_NO_BINARY_FOR_GPU, 209) V(CUDA_ERROR_NOT_MAPPED, 211) \
	V(CUDA_ERROR_ECC_UNCORRECTABLE, 214) V(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217) V(CUDA_ERROR_INVALID_PTX, 218) \
	V(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221) V(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) \
	V(CUDA_ERROR_OPERATING_SYSTEM, 304) V(CUDA_ERROR_INVALID_HANDLE, 400) V(CUDA_ERROR_ILLEGAL_STATE, 401) \
	V(CUDA_ERROR_NOT_FOUND, 500) V(CUDA_ERROR_NOT_READY, 600) V(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
	V(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) V(CUDA_ERROR_LAUNCH_TIMEOUT, 702) \
	V(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704) V(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705) \
	V(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) V(CUDA_ERROR_ASSERT, 710) V(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
	V(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) V(CUDA_ERROR_MISALIGNED_ADDRESS, 716) V(CUDA_ERROR_LAUNCH_FAILED, 719) \
	V(CUDA_ERROR_NOT_PERMITTED, 800) V(CUDA_ERROR_NOT_SUPPORTED, 801) V(CUDA_ERROR_SYSTEM_NOT_READY, 802) \
	V(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) V(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) \
	V(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) V(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) \
	V(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902) V(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) \
	V(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904) V(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905) \
	V(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906) V(CUDA_ERROR_CAPTURED_EVENT, 907) \
	V(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908) V(CUDA_ERROR_UNKNOWN, 999)
#define CUDA_ABI_DEVICE_ATTRIBUTES(V) \
	V(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1) V(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 5) \
	V(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8) V(CU_DEVICE_ATTRIBUTE_WARP_SIZE, 10) \
	V(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) V(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 19) \
	V(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20) V(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 31) \
	V(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 33) V(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 34) \
	V(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39) V(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40) \
	V(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41) V(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 50) \
	V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
	V(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 83) V(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 86) \
	V(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 88) V(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 89) \
	V(CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 90) \
	V(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 91) V(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 98) \
	V(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 99) V(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102) \
	V(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103) \
	V(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 113) V(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115) \
	V(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 122) V(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 123) \
	V(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 124)
#define CUDA_ABI_POINTER_ATTRIBUTES(V) \
	V(CU_POINTER_ATTRIBUTE_CONTEXT, 1) V(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) V(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3) \
	V(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4) V(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6) V(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7) \
	V(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8) V(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9) \
	V(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10) V(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11) \
	V(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12) V(CU_POINTER_ATTRIBUTE_MAPPED, 13) \
	V(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14) V(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 15) \
	V(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 16) V(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)
#define CUDA_ABI_MEMORY_TYPES(V) \
	V(CU_MEMORYTYPE_HOST, 1) V(CU_MEMORYTYPE_DEVICE, 2) V(CU_MEMORYTYPE_ARRAY, 3) V(CU_MEMORYTYPE_UNIFIED, 4)
#define CUDA_ABI_FUNCTION_ATTRIBUTES(V) \
	V(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 0) V(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1) \
	V(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, 2) V(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3) V(CU_FUNC_ATTRIBUTE_NUM_REGS, 4) \
	V(CU_FUNC_ATTRIBUTE_PTX_VERSION, 5) V(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6) \
	V(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)
#define CUDA_ABI_BATCH_TYPES(V) \
	V(CU_STREAM_MEM_OP_WAIT_VALUE_32, 1) V(CU_STREAM_MEM_OP_WRITE_VALUE_32, 2) V(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 3) \
	V(CU_STREAM_MEM_OP_WAIT_VALUE_64, 4) V(CU_STREAM_MEM_OP_WRITE_VALUE_64, 5) V(CU_STREAM_MEM_OP_BARRIER, 6)
#define CUDA_ABI_LOCATION_TYPES(V) \
	V(CU_MEM_LOCATION_TYPE_INVALID, 0) V(CU_MEM_LOCATION_TYPE_DEVICE, 1) V(CU_MEM_LOCATION_TYPE_HOST, 2) \
	V(CU_MEM_LOCATION_TYPE_MAX, 0x7fffffff)
#define CUDA_ABI_ALLOCATION_TYPES(V) \
	V(CU_MEM_ALLOCATION_TYPE_INVALID, 0) V(CU_MEM_ALLOCATION_TYPE_PINNED, 1) V(CU_MEM_ALLOCATION_TYPE_MAX, 0x7fffffff)
#define CUDA_ABI_HANDLE_TYPES(V) \
	V(CU_MEM_HANDLE_TYPE_NONE, 0) V(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1) V(CU_MEM_HANDLE_TYPE_FABRIC, 8) \
	V(CU_MEM_HANDLE_TYPE_MAX, 0x7fffffff)
#define CUDA_ABI_ACCESS_FLAGS(V) \
	V(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0) V(CU_MEM_ACCESS_FLAGS_PROT_READ, 1) V(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3) \
	V(CU_MEM_ACCESS_FLAGS_PROT_MAX, 0x7fffffff)
#define CUDA_ABI_GRANULARITIES(V) \
	V(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0) V(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)
#define CUDA_ABI_RANGE_HANDLE_TYPES(V) \
	V(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1) V(CU_MEM_RANGE_HANDLE_TYPE_MAX, 0x7fffffff)
#define CUDA_ABI_CAPTURE_STATES(V) \
	V(CU_STREAM_CAPTURE_STATUS_NONE, 0) V(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1) V(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)
#define CUDA_ABI_CAPTURE_MODES(V) \
	V(CU_STREAM_CAPTURE_MODE_GLOBAL, 0) V(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1) V(CU_STREAM_CAPTURE_MODE_RELAXED, 2)
#define CUDA_ABI_QUERY_RESULTS(V) \
	V(CU_GET_PROC_ADDRESS_SUCCESS, 0) V(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1) \
	V(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)
/* Flags, which cuda.h passes as unsigned int. */
#define CUDA_ABI_FLAGS(V) \
	V(CU_STREAM_DEFAULT, 0) V(CU_STREAM_NON_BLOCKING, 1) \
	V(CU_EVENT_DEFAULT, 0) V(CU_EVENT_BLOCKING_SYNC, 1) V(CU_EVENT_DISABLE_TIMING, 2) V(CU_EVENT_INTERPROCESS, 4) \
	V(CU_EVENT_RECORD_DEFAULT, 0) V(CU_EVENT_RECORD_EXTERNAL, 1) V(CU_EVENT_WAIT_DEFAULT, 0) V(CU_EVENT_WAIT_EXTERNAL, 1) \
	V(CU_STREAM_WAIT_VALUE_GEQ, 0) V(CU_STREAM_WAIT_VALUE_EQ, 1) V(CU_STREAM_WAIT_VALUE_AND, 2) \
	V(CU_STREAM_WAIT_VALUE_NOR, 3) V(CU_STREAM_WAIT_VALUE_FLUSH, 1 << 30) \
	V(CU_STREAM_WRITE_VALUE_DEFAULT, 0) V(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, 1) \
	V(CU_STREAM_MEMORY_BARRIER_TYPE_SYS, 0) V(CU_STREAM_MEMORY_BARRIER_TYPE_GPU, 1) \
	V(CU_CTX_SCHED_AUTO, 0) V(CU_CTX_MAP_HOST, 8) V(CU_CTX_FLAGS_MASK, 0xff) V(CU_MEM_ATTACH_GLOBAL, 1) \
	V(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1) \
	V(CU_GET_PROC_ADDRESS_DEFAULT, 0) V(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1) \
	V(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, 2) \
	V(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, 1) V(CU_GRAPH_USER_OBJECT_MOVE, 1) \
	V(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, 1)
/* Macros in cuda.h. */
#define CUDA_ABI_MACROS(V) \
	V(CU_MEMHOSTALLOC_PORTABLE, 1) V(CU_MEMHOSTALLOC_DEVICEMAP, 2) V(CU_MEMHOSTALLOC_WRITECOMBINED, 4) \
	V(CU_MEMHOSTREGISTER_PORTABLE, 1) V(CU_MEMHOSTREGISTER_DEVICEMAP, 2) V(CU_MEMHOSTREGISTER_IOMEMORY, 4) \
	V(CU_MEMHOSTREGISTER_READ_ONLY, 8) V(CU_IPC_HANDLE_SIZE, 64)

#ifndef __cuda_cuda_h__
#define CUDA_ABI_ENUMERATOR(name, value) name = value,
typedef enum { CUDA_ABI_RESULTS(CUDA_ABI_ENUMERATOR) } CUresult;
typedef enum { CUDA_ABI_DEVICE_ATTRIBUTES(CUDA_ABI_ENUMERATOR) } CUdevice_attribute;
typedef enum { CUDA_ABI_POINTER_ATTRIBUTES(CUDA_ABI_ENUMERATOR) } CUpointer_attribute;
typedef enum { CUDA_ABI_MEMORY_TYPES(CUDA_ABI_ENUMERATOR) } CUmemorytype;
typedef enum { CUDA_ABI_FUNCTION_ATTRIBUTES(CUDA_ABI_ENUMERATOR) } CUfunction_attribute;
typedef enum { CUDA_ABI_BATCH_TYPES(CUDA_ABI_ENUMERATOR) } CUstreamBatchMemOpType;
typedef enum { CUDA_ABI_LOCATION_TYPES(CUDA_ABI_ENUMERATOR) } CUmemLocationType;
typedef enum { CUDA_ABI_ALLOCATION_TYPES(CUDA_ABI_ENUMERATOR) } CUmemAllocationType;
typedef enum { CUDA_ABI_HANDLE_TYPES(CUDA_ABI_ENUMERATOR) } CUmemAllocationHandleType;
typedef enum { CUDA_ABI_ACCESS_FLAGS(CUDA_ABI_ENUMERATOR) } CUmemAccess_flags;
typedef enum { CUDA_ABI_GRANULARITIES(CUDA_ABI_ENUMERATOR) } CUmemAllocationGranularity_flags;
typedef enum { CUDA_ABI_RANGE_HANDLE_TYPES(CUDA_ABI_ENUMERATOR) } CUmemRangeHandleType;
typedef enum { CUDA_ABI_CAPTURE_STATES(CUDA_ABI_ENUMERATOR) } CUstreamCaptureStatus;
typedef enum { CUDA_ABI_CAPTURE_MODES(CUDA_ABI_ENUMERATOR) } CUstreamCaptureMode;
typedef enum { CUDA_ABI_QUERY_RESULTS(CUDA_ABI_ENUMERATOR) } CUdriverProcAddressQueryResult;
enum { CUDA_ABI_FLAGS(CUDA_ABI_ENUMERATOR) };
enum { CUDA_ABI_MACROS(CUDA_ABI_ENUMERATOR) };
/* clang-format on */

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef unsigned long long CUdeviceptr;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUuserObject_st *CUuserObject;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef void (*CUhostFn)(void *userData);

/* Stream handles that need no creation: NULL and LEGACY are one stream. */
#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_DEVICE_INVALID    ((CUdevice)-2)

typedef struct {
	char bytes[16];
} CUuuid;

typedef struct {
	char reserved[CU_IPC_HANDLE_SIZE];
} CUipcMemHandle;

typedef struct {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef union {
	CUstreamBatchMemOpType operation;
	struct {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			cuuint32_t value;
			cuuint64_t value64;
		};
		unsigned int flags;
		CUdeviceptr alias; /* ignored since 8.0 */
	} waitValue;
	struct {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			cuuint32_t value;
			cuuint64_t value64;
		};
		unsigned int flags;
		CUdeviceptr alias;
	} writeValue;
	struct {
		CUstreamBatchMemOpType operation;
		unsigned int flags;
	} flushRemoteWrites;
	struct {
		CUstreamBatchMemOpType operation;
		unsigned int flags;
	} memoryBarrier;
	cuuint64_t pad[6];
} CUstreamBatchMemOpParams;
#endif

/* clang-format off */
#define CUDA_ABI_SIZES(V) \
	V(CUdeviceptr, 8) V(CUdevice, 4) V(CUmemGenericAllocationHandle, 8) V(CUresult, 4) V(CUuuid, 16) V(CUipcMemHandle, 64) \
	V(CUmemLocation, 8) V(CUmemAccessDesc, 12) V(CUmemAllocationProp, 32) V(CUstreamBatchMemOpParams, 48) \
	V(CUpointer_attribute, 4) V(CUmemorytype, 4)
#define CUDA_ABI_OFFSETS(V) \
	V(CUmemAccessDesc, flags, 8) V(CUmemAllocationProp, requestedHandleTypes, 4) V(CUmemAllocationProp, location, 8) \
	V(CUmemAllocationProp, win32HandleMetaData, 16) V(CUmemAllocationProp, allocFlags, 24) \
	V(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable, 25) V(CUmemAllocationProp, allocFlags.usage, 26) \
	V(CUstreamBatchMemOpParams, waitValue.address, 8) V(CUstreamBatchMemOpParams, waitValue.value, 16) \
	V(CUstreamBatchMemOpParams, waitValue.flags, 24) V(CUstreamBatchMemOpParams, waitValue.alias, 32) \
	V(CUstreamBatchMemOpParams, writeValue.address, 8) V(CUstreamBatchMemOpParams, writeValue.value, 16) \
	V(CUstreamBatchMemOpParams, writeValue.flags, 24) V(CUstreamBatchMemOpParams, writeValue.alias, 32) \
	V(CUstreamBatchMemOpParams, flushRemoteWrites.flags, 4) V(CUstreamBatchMemOpParams, memoryBarrier.flags, 4)

/*
 * The functions: F(name, symbol, version, parameters). name and version are what cuGetProcAddress is asked for; symbol is
 * the name of that variant in libcuda.so.1, for dlsym. version is the CUDA version (1000 * major + 10 * minor) that brought the
 * variant. Each returns CUresult.
 */
#define CUDA_ABI_FUNCTIONS(F) \
	F(cuInit, cuInit, 2000, (unsigned int Flags)) \
	F(cuDriverGetVersion, cuDriverGetVersion, 2020, (int *driverVersion)) \
	F(cuGetProcAddress, cuGetProcAddress_v2, 12000, \
		(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)) \
	F(cuGetErrorName, cuGetErrorName, 6000, (CUresult error, const char **pStr)) \
	F(cuGetErrorString, cuGetErrorString, 6000, (CUresult error, const char **pStr)) \
	F(cuDeviceGet, cuDeviceGet, 2000, (CUdevice *device, int ordinal)) \
	F(cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count)) \
	F(cuDeviceGetName, cuDeviceGetName, 2000, (char *name, int len, CUdevice dev)) \
	F(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, (CUuuid *uuid, CUdevice dev)) \
	F(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, (int *pi, CUdevice_attribute attrib, CUdevice dev)) \
	F(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *bytes, CUdevice dev)) \
	F(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, (char *pciBusId, int len, CUdevice dev)) \
	F(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, (int *canAccessPeer, CUdevice dev, CUdevice peerDev)) \
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, (CUcontext *pctx, CUdevice dev)) \
	F(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice dev)) \
	F(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, (CUdevice dev, unsigned int *flags, int *active)) \
	F(cuCtxCreate, cuCtxCreate_v2, 3020, (CUcontext *pctx, unsigned int flags, CUdevice dev)) \
	F(cuCtxDestroy, cuCtxDestroy_v2, 4000, (CUcontext ctx)) \
	F(cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext ctx)) \
	F(cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext *pctx)) \
	F(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (CUcontext ctx)) \
	F(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (CUcontext *pctx)) \
	F(cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice *device)) \
	F(cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
	F(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, (CUcontext peerContext, unsigned int Flags)) \
	F(cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free, size_t *total)) \
	F(cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr *dptr, size_t bytesize)) \
	F(cuMemAllocManaged, cuMemAllocManaged, 6000, (CUdeviceptr *dptr, size_t bytesize, unsigned int flags)) \
	F(cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr dptr)) \
	F(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, (CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)) \
	F(cuMemHostAlloc, cuMemHostAlloc, 2020, (void **pp, size_t bytesize, unsigned int Flags)) \
	F(cuMemFreeHost, cuMemFreeHost, 2000, (void *p)) \
	F(cuMemHostRegister, cuMemHostRegister_v2, 6050, (void *p, size_t bytesize, unsigned int Flags)) \
	F(cuMemHostUnregister, cuMemHostUnregister, 4000, (void *p)) \
	F(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, (CUdeviceptr *pdptr, void *p, unsigned int Flags)) \
	F(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *data, CUpointer_attribute attribute, CUdeviceptr ptr)) \
	F(cuPointerGetAttributes, cuPointerGetAttributes, 7000, \
		(unsigned int numAttributes, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr)) \
	F(cuMemcpy, cuMemcpy, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount)) \
	F(cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)) \
	F(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)) \
	F(cuMemcpyAsync, cuMemcpyAsync, 4000, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream)) \
	F(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, \
		(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream)) \
	F(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, \
		(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)) \
	F(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, \
		(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)) \
	F(cuMemsetD8Async, cuMemsetD8Async, 3020, (CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)) \
	F(cuMemCreate, cuMemCreate, 10020, \
		(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)) \
	F(cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle)) \
	F(cuMemAddressReserve, cuMemAddressReserve, 10020, \
		(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)) \
	F(cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr ptr, size_t size)) \
	F(cuMemMap, cuMemMap, 10020, \
		(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
	F(cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr ptr, size_t size)) \
	F(cuMemSetAccess, cuMemSetAccess, 10020, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)) \
	F(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, \
		(size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)) \
	F(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *shareableHandle, \
		CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType, unsigned long long flags)) \
	F(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, \
		(CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)) \
	F(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, (CUmemGenericAllocationHandle *handle, void *addr)) \
	F(cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020, \
		(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)) \
	F(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, \
		(void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType, unsigned long long flags)) \
	F(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (CUipcMemHandle *pHandle, CUdeviceptr dptr)) \
	F(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)) \
	F(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr dptr)) \
	F(cuStreamCreate, cuStreamCreate, 2000, (CUstream *phStream, unsigned int Flags)) \
	F(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, (CUstream *phStream, unsigned int flags, int priority)) \
	F(cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream hStream)) \
	F(cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream hStream)) \
	F(cuStreamQuery, cuStreamQuery, 2000, (CUstream hStream)) \
	F(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream hStream, CUcontext *pctx)) \
	F(cuStreamGetFlags, cuStreamGetFlags, 5050, (CUstream hStream, unsigned int *flags)) \
	F(cuStreamGetId, cuStreamGetId, 12000, (CUstream hStream, unsigned long long *streamId)) \
	F(cuStreamWaitEvent, cuStreamWaitEvent, 3020, (CUstream hStream, CUevent hEvent, unsigned int Flags)) \
	F(cuStreamIsCapturing, cuStreamIsCapturing, 10000, (CUstream hStream, CUstreamCaptureStatus *captureStatus)) \
	F(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, 11030, (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, \
		cuuint64_t *id_out, CUgraph *graph_out, const CUgraphNode **dependencies_out, size_t *numDependencies_out)) \
	F(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, (CUstream hStream, CUstreamCaptureMode mode)) \
	F(cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream hStream, CUgraph *phGraph)) \
	F(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode *mode)) \
	F(cuLaunchHostFunc, cuLaunchHostFunc, 10000, (CUstream hStream, CUhostFn fn, void *userData)) \
	F(cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070, \
		(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)) \
	F(cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070, \
		(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)) \
	F(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070, \
		(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)) \
	F(cuEventCreate, cuEventCreate, 2000, (CUevent *phEvent, unsigned int Flags)) \
	F(cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent hEvent)) \
	F(cuEventRecord, cuEventRecord, 2000, (CUevent hEvent, CUstream hStream)) \
	F(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, (CUevent hEvent, CUstream hStream, unsigned int flags)) \
	F(cuEventQuery, cuEventQuery, 2000, (CUevent hEvent)) \
	F(cuEventSynchronize, cuEventSynchronize, 2000, (CUevent hEvent)) \
	F(cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule *module, const void *image)) \
	F(cuModuleUnload, cuModuleUnload, 2000, (CUmodule hmod)) \
	F(cuModuleGetFunction, cuModuleGetFunction, 2000, (CUfunction *hfunc, CUmodule hmod, const char *name)) \
	F(cuFuncGetAttribute, cuFuncGetAttribute, 2020, (int *pi, CUfunction_attribute attrib, CUfunction hfunc)) \
	F(cuFuncSetAttribute, cuFuncSetAttribute, 9000, (CUfunction hfunc, CUfunction_attribute attrib, int value)) \
	F(cuLaunchKernel, cuLaunchKernel, 4000, \
		(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, \
		unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, \
		void **extra)) \
	F(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, \
		(int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize)) \
	F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, \
		(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)) \
	F(cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec hGraphExec, CUstream hStream)) \
	F(cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec hGraphExec)) \
	F(cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph hGraph)) \
	F(cuUserObjectCreate, cuUserObjectCreate, 11030, \
		(CUuserObject *object_out, void *ptr, CUhostFn destroy, unsigned int initialRefcount, unsigned int flags)) \
	F(cuUserObjectRelease, cuUserObjectRelease, 11030, (CUuserObject object, unsigned int count)) \
	F(cuGraphRetainUserObject, cuGraphRetainUserObject, 11030, \
		(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags)) \
	F(cuGraphReleaseUserObject, cuGraphReleaseUserObject, 11030, (CUgraph graph, CUuserObject object, unsigned int count))

#define CUDA_ABI_FUNCTION_TYPE(name, symbol, version, parameters) typedef CUresult (*symbol##_fn) parameters;
CUDA_ABI_FUNCTIONS(CUDA_ABI_FUNCTION_TYPE)
#define CUDA_ABI_SIZE_CHECK(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define CUDA_ABI_OFFSET_CHECK(type, member, offset) _Static_assert(offsetof(type, member) == (offset), #type "." #member);
CUDA_ABI_SIZES(CUDA_ABI_SIZE_CHECK)
CUDA_ABI_OFFSETS(CUDA_ABI_OFFSET_CHECK)
/* clang-format on */

#endif
