/*
 * libnccl.so.2 and the functions that it refuses: each gives ncclInvalidUsage (or an empty team, or -1), and
 * ncclGetLastError() names it. With those that work they are the functions of NCCL.
 *
 * usage: nccl_refused EXPORTS     the list of NCCL's names
 */
#include <dlfcn.h>

#include "tests/compat/functions.h"
#include "tests/plain.h"

enum kind { REFUSES, NO_TEAM, NO_NUMBER, SILENT, WORKS };

static const struct {
	enum kind kind;
	const char *names[64]; /* up to NULL */
} functions[] = {
        {REFUSES,
         {"ncclCommGetUniqueId",
          "ncclCommGrow",
          "ncclCommQueryProperties",
          "ncclCommRevoke",
          "ncclDevCommCreate",
          "ncclDevCommDestroy",
          "ncclGetCftDeviceLeInfo",
          "ncclGetLsaDevicePointer",
          "ncclGetLsaMultimemDevicePointer",
          "ncclGetMultimemDeviceLeInfo",
          "ncclGetMultimemDevicePointer",
          "ncclGetPeerDeviceLeInfo",
          "ncclGetPeerDevicePointer",
          "ncclGinBarrierCreateRequirement",
          "ncclGinInboxA2ACreateRequirement",
          "ncclGinOutboxCreateRequirement",
          "ncclLLA2ACreateRequirement",
          "ncclLsaBarrierCreateRequirement",
          "ncclParamBind",
          "ncclParamGet",
          "ncclParamGetAllParameterKeys",
          "ncclParamGetI16",
          "ncclParamGetI32",
          "ncclParamGetI64",
          "ncclParamGetI8",
          "ncclParamGetParameter",
          "ncclParamGetStr",
          "ncclParamGetU16",
          "ncclParamGetU32",
          "ncclParamGetU64",
          "ncclParamGetU8",
          "ncclPutSignal",
          "ncclSetEncryption",
          "ncclSignal",
          "ncclWaitSignal",
          "ncclWinGetUserPtr"}},
        {NO_TEAM, {"ncclTeamCft", "ncclTeamCftMultimem", "ncclTeamLsa", "ncclTeamRail", "ncclTeamWorld"}},
        {NO_NUMBER, {"ncclLLA2ACalcSlots", "ncclTeamRankToLsa", "ncclTeamRankToWorld"}},
        {SILENT, {"ncclParamDumpAll", "ncclResetDebugInit", "ncclResetDebugInitInternal"}},
        {WORKS,
         {"ncclAllGather",
          "ncclAllGatherConfig",
          "ncclAllReduce",
          "ncclAllReduceConfig",
          "ncclAlltoAll",
          "ncclAlltoAllConfig",
          "ncclBcast",
          "ncclBroadcast",
          "ncclBroadcastConfig",
          "ncclCommAbort",
          "ncclCommCount",
          "ncclCommCuDevice",
          "ncclCommDeregister",
          "ncclCommDestroy",
          "ncclCommFinalize",
          "ncclCommGetAsyncError",
          "ncclCommInitAll",
          "ncclCommInitRank",
          "ncclCommInitRankConfig",
          "ncclCommInitRankScalable",
          "ncclCommMemStats",
          "ncclCommRegister",
          "ncclCommResume",
          "ncclCommShrink",
          "ncclCommSplit",
          "ncclCommSuspend",
          "ncclCommUserRank",
          "ncclCommWindowDeregister",
          "ncclCommWindowRegister",
          "ncclGather",
          "ncclGatherConfig",
          "ncclGetErrorString",
          "ncclGetLastError",
          "ncclGetUniqueId",
          "ncclGetVersion",
          "ncclGroupEnd",
          "ncclGroupSimulateEnd",
          "ncclGroupStart",
          "ncclMemAlloc",
          "ncclMemFree",
          "ncclRecv",
          "ncclRedOpCreatePreMulSum",
          "ncclRedOpDestroy",
          "ncclReduce",
          "ncclReduceConfig",
          "ncclReduceScatter",
          "ncclReduceScatterConfig",
          "ncclScatter",
          "ncclScatterConfig",
          "ncclSend"}},
};

enum { KINDS = sizeof(functions) / sizeof(functions[0]) };

static const char *exports; /* the file's path */

static void *address(const char *name)
{
	void *p = dlsym(RTLD_DEFAULT, name);

	CHECK(p, "%s is not exported", name);
	return p;
}

/* The sentence of another function before, so that it must be a new one. */
static void forget(void)
{
	ncclGetUniqueId(NULL);
	CHECK(strncmp(ncclGetLastError(NULL), "ncclGetUniqueId:", 16) == 0, "%s", ncclGetLastError(NULL));
}

static bool is_named(const char *name)
{
	const char *text = ncclGetLastError(NULL);
	const size_t len = strlen(name);

	return strncmp(text, name, len) == 0 && text[len] == ':' && strstr(text, "not supported");
}

/* No refusing function reads its arguments. */
static void call(enum kind kind, const char *symbol, const char *name)
{
	void *p = address(symbol);
	ncclResult_t (*refuses)(void);
	ncclTeam_t (*team_of)(void), team;
	int (*number_of)(void);
	void (*silent)(void);

	if (!p)
		return;
	forget();
	if (kind == REFUSES) {
		memcpy(&refuses, &p, sizeof(p));
		CHECK(refuses() == ncclInvalidUsage, "%s", symbol);
	} else if (kind == NO_TEAM) {
		memcpy(&team_of, &p, sizeof(p));
		team = team_of();
		CHECK(team.nRanks == 0 && team.rank == 0 && team.stride == 0, "%s", symbol);
	} else if (kind == NO_NUMBER) {
		memcpy(&number_of, &p, sizeof(p));
		CHECK(number_of() == -1, "%s", symbol);
	} else {
		memcpy(&silent, &p, sizeof(p));
		silent();
	}
	CHECK(is_named(name) == (kind != SILENT), "%s: %s", symbol, ncclGetLastError(NULL));
}

TEST(nccl_refused, each_refuses_by_name)
{
	char twin[64];

	for (int k = 0; k < KINDS; k++)
		for (const char *const *name = functions[k].names; *name && functions[k].kind != WORKS; name++) {
			call(functions[k].kind, *name, *name);
			snprintf(twin, sizeof(twin), "p%s", *name);
			if (strcmp(*name, "ncclResetDebugInitInternal") != 0) /* the one without a twin */
				call(functions[k].kind, twin, *name);
		}
}

static int times_listed(const char *name)
{
	int times = 0;

	for (int k = 0; k < KINDS; k++)
		for (const char *const *at = functions[k].names; *at; at++)
			times += strcmp(*at, name) == 0;
	return times;
}

TEST(nccl_refused, the_lists_make_up_the_exported_names)
{
	FILE *f = fopen(exports, "r");
	int listed = 0, exported = 0;
	char name[128];

	REQUIRE(f, "%s cannot be read", exports);
	while (fscanf(f, "%127s", name) == 1)
		if (strncmp(name, "nccl", 4) == 0) {
			exported++;
			CHECK(times_listed(name) == 1, "%s is listed %d times", name, times_listed(name));
		}
	fclose(f);
	for (int k = 0; k < KINDS; k++)
		for (const char *const *at = functions[k].names; *at; at++) {
			listed++;
			address(*at);
		}
	CHECK(listed == exported && exported > 0, "%d are listed, %d exported", listed, exported);
}

PROGRAM(nccl_refused, "EXPORTS")
{
	exports = argv[1];
	return argc;
}
