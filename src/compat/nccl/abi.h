/*
 * The binary interface of NCCL 2.32 as programs call it: values, layouts and function types. They are facts of the
 * interface, written down here so that nothing of NCCL or CUDA is needed to build. The names are NCCL's, so that its
 * documentation can be searched for them. tests/compat compares layouts and values with nccl.h where one is installed.
 *
 * Owns no state and no code. A structure begins with its size; an older program passes a shorter one.
 */
#ifndef COLL_COMPAT_NCCL_ABI_H
#define COLL_COMPAT_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

enum { NCCL_UNIQUE_ID_BYTES = 128, NCCL_SPLIT_NOCOLOR = -1, NCCL_CONFIG_UNDEF_INT = INT_MIN };
typedef struct {
	char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,
	ncclInternalError = 3,
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,
	ncclRemoteError = 6,
	ncclInProgress = 7,
	ncclTimeout = 8,
	ncclNumResults = 9
} ncclResult_t;

typedef enum {
	ncclSum = 0,
	ncclProd = 1,
	ncclMax = 2,
	ncclMin = 3,
	ncclAvg = 4,
	ncclNumOps = 5,
	ncclMaxRedOp = INT_MAX
} ncclRedOp_t;

typedef enum {
	ncclInt8 = 0,
	ncclUint8 = 1,
	ncclInt32 = 2,
	ncclUint32 = 3,
	ncclInt64 = 4,
	ncclUint64 = 5,
	ncclFloat16 = 6,
	ncclFloat32 = 7,
	ncclFloat64 = 8,
	ncclBfloat16 = 9,
	ncclFloat8e4m3 = 10,
	ncclFloat8e5m2 = 11,
	ncclNumTypes = 12
} ncclDataType_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef enum {
	ncclStatGpuMemSuspend = 0,
	ncclStatGpuMemSuspended = 1,
	ncclStatGpuMemPersist = 2,
	ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

#define NCCL_API_MAGIC 0xcafebeefu
#define NCCL_SIM_MAGIC 0x74685283u
enum { NCCL_SHRINK_DEFAULT = 0, NCCL_SHRINK_ABORT = 1, NCCL_SUSPEND_MEM = 1, NCCL_WIN_FLAGS = 0x0f };

typedef struct {
	size_t size;
	unsigned magic, version;
	int blocking, cgaClusterSize, minCTAs, maxCTAs;
	const char *netName;
	int splitShare, trafficClass;
	const char *commName;
	int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched, graphUsageMode,
	        numRmaCtx, maxP2pPeers, graphStreamOrdering, launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode,
	        nvlsHostMode;
} ncclConfig_t;

/* Of one collective. */
typedef struct {
	size_t size;
	unsigned magic, version;
	void *ext;
	int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
	const char *algSelection;
	int forceAlgSelection, CTAPolicy;
	uint64_t userProfilerTag;
	cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

typedef struct {
	size_t size;
	unsigned magic, version;
	float estimatedTime;
} ncclSimInfo_t;

/* Of the device interface; here only what a refusal returns. */
typedef struct {
	int nRanks, rank, stride;
} ncclTeam_t;

/* Every function has a second name with p, so that a tool may put its own in front and call this one. */
#define NCCL_FUNCTION(type, name, parameters)                                                           \
	__attribute__((visibility("default"))) type p##name parameters;                                 \
	extern __attribute__((visibility("default"), weak, alias("p" #name))) __typeof__(p##name) name; \
	type p##name parameters

#endif
