/*
 * Functions that exist so that programs can be linked and loaded, and that refuse by name: the interface of kernels to
 * NCCL (device communicators, windows, teams), one-sided signals, growing, parameters, encryption. None reads its
 * arguments.
 */
#include "compat/nccl/error.h"

#define REFUSED(name)                                                                                               \
	NCCL_FUNCTION(ncclResult_t, name, (void))                                                                   \
	{                                                                                                           \
		return nccl_fail(ncclInvalidUsage, "%s: this function of NCCL is not supported by libcoll", #name); \
	}

REFUSED(ncclCommGetUniqueId)
REFUSED(ncclCommGrow)
REFUSED(ncclCommQueryProperties)
REFUSED(ncclCommRevoke)
REFUSED(ncclDevCommCreate)
REFUSED(ncclDevCommDestroy)
REFUSED(ncclGetCftDeviceLeInfo)
REFUSED(ncclGetLsaDevicePointer)
REFUSED(ncclGetLsaMultimemDevicePointer)
REFUSED(ncclGetMultimemDeviceLeInfo)
REFUSED(ncclGetMultimemDevicePointer)
REFUSED(ncclGetPeerDeviceLeInfo)
REFUSED(ncclGetPeerDevicePointer)
REFUSED(ncclGinBarrierCreateRequirement)
REFUSED(ncclGinInboxA2ACreateRequirement)
REFUSED(ncclGinOutboxCreateRequirement)
REFUSED(ncclLLA2ACreateRequirement)
REFUSED(ncclLsaBarrierCreateRequirement)
REFUSED(ncclParamBind)
REFUSED(ncclParamGet)
REFUSED(ncclParamGetAllParameterKeys)
REFUSED(ncclParamGetI16)
REFUSED(ncclParamGetI32)
REFUSED(ncclParamGetI64)
REFUSED(ncclParamGetI8)
REFUSED(ncclParamGetParameter)
REFUSED(ncclParamGetStr)
REFUSED(ncclParamGetU16)
REFUSED(ncclParamGetU32)
REFUSED(ncclParamGetU64)
REFUSED(ncclParamGetU8)
REFUSED(ncclPutSignal)
REFUSED(ncclSetEncryption)
REFUSED(ncclSignal)
REFUSED(ncclWaitSignal)
REFUSED(ncclWinGetUserPtr)

/* These return no code: an empty team, no rank, no slots, and the sentence. */
#define NO_TEAM(name)                                                                                        \
	NCCL_FUNCTION(ncclTeam_t, name, (void))                                                              \
	{                                                                                                    \
		nccl_fail(ncclInvalidUsage, "%s: this function of NCCL is not supported by libcoll", #name); \
		return (ncclTeam_t){0, 0, 0};                                                                \
	}

#define NO_NUMBER(name)                                                                                      \
	NCCL_FUNCTION(int, name, (void))                                                                     \
	{                                                                                                    \
		nccl_fail(ncclInvalidUsage, "%s: this function of NCCL is not supported by libcoll", #name); \
		return -1;                                                                                   \
	}

NO_TEAM(ncclTeamCft)
NO_TEAM(ncclTeamCftMultimem)
NO_TEAM(ncclTeamLsa)
NO_TEAM(ncclTeamRail)
NO_TEAM(ncclTeamWorld)
NO_NUMBER(ncclLLA2ACalcSlots)
NO_NUMBER(ncclTeamRankToLsa)
NO_NUMBER(ncclTeamRankToWorld)

/* Logging of NCCL, which there is none of: COLL_DEBUG is read at creation. */
NCCL_FUNCTION(void, ncclResetDebugInit, (void))
{
}
NCCL_FUNCTION(void, ncclParamDumpAll, (void))
{
}

/* Exported by NCCL without a second name. */
__attribute__((visibility("default"))) void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void)
{
}
