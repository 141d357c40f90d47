/*
 * Configuration structures (config.h). What they choose in NCCL (channels, clusters, networks) has no counterpart here,
 * so a valid value is accepted and has no effect. A member that a shorter structure lacks counts as unset.
 */
#include "compat/nccl/config.h"

#include <stdbool.h>
#include <string.h>

#include "compat/nccl/error.h"

/* Each number: the version from which NCCL reads it (a structure of an older one may have padding there; 0: any), at
 * least, at most. */
struct range {
	const char *name;
	size_t offset;
	unsigned since;
	int least, most;
};

#define OF(member, since, least, most)                                      \
	{                                                                   \
#member, offsetof(ncclConfig_t, member), since, least, most \
	}
static const struct range ranges[] = {
        OF(blocking, 0, 0, 1),
        OF(cgaClusterSize, 21700, 0, 8),
        OF(minCTAs, 21700, 1, INT_MAX),
        OF(maxCTAs, 21700, 1, INT_MAX),
        OF(splitShare, 0, 0, 1),
        OF(trafficClass, 22500, 0, INT_MAX),
        OF(collnetEnable, 22700, 0, 1),
        OF(CTAPolicy, 22700, 0, 3),
        OF(shrinkShare, 22700, 0, 1),
        OF(nvlsCTAs, 22700, 1, INT_MAX),
        OF(nChannelsPerNetPeer, 22800, 1, INT_MAX),
        OF(nvlinkCentricSched, 22800, 0, 1),
        OF(graphUsageMode, 22900, 0, 2),
        OF(numRmaCtx, 22900, 1, INT_MAX),
        OF(maxP2pPeers, 23000, 1, INT_MAX),
        OF(graphStreamOrdering, 23005, 0, 1),
        OF(launchOrderImplicit, 0, 0, 1),
        OF(numRmaSig, 0, 1, INT_MAX),
        OF(rmaEagerInit, 0, 0, 1),
        OF(hostCftMode, 0, 1, 3),
        OF(nvlsHostMode, 0, 0, INT_MAX),
};

/* Copy what a structure of any version has, behind its first members. */
static ncclResult_t take(void *whole, size_t whole_bytes, const void *given, size_t least_bytes, unsigned magic,
                         const char *what, const char *function)
{
	struct {
		size_t size;
		unsigned magic, version;
	} head;

	memcpy(&head, given, sizeof(head));
	if (head.magic != magic)
		return nccl_fail(ncclInvalidArgument,
		                 "%s: %s has magic 0x%x instead of 0x%x: it was not set by its initializer", function,
		                 what, head.magic, magic);
	if (head.size < least_bytes)
		return nccl_fail(ncclInvalidArgument, "%s: %s has size %zu, and the shortest known one %zu", function,
		                 what, head.size, least_bytes);
	memcpy(whole, given, head.size < whole_bytes ? head.size : whole_bytes);
	return ncclSuccess;
}

ncclResult_t nccl_check_config(const ncclConfig_t *given, const char *function)
{
	ncclConfig_t c;
	ncclResult_t r;

	if (!given)
		return ncclSuccess;
	memset(&c, 0, sizeof(c));
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		memcpy((char *)&c + ranges[i].offset, &(int){NCCL_CONFIG_UNDEF_INT}, sizeof(int));
	r = take(&c, sizeof(c), given, offsetof(ncclConfig_t, cgaClusterSize), NCCL_API_MAGIC, "ncclConfig_t",
	         function);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]) && r == ncclSuccess; i++) {
		int value;

		memcpy(&value, (const char *)&c + ranges[i].offset, sizeof(value));
		if (c.version < ranges[i].since)
			value = NCCL_CONFIG_UNDEF_INT;
		if (value != NCCL_CONFIG_UNDEF_INT && (value < ranges[i].least || value > ranges[i].most))
			r = nccl_fail(ncclInvalidArgument, "%s: ncclConfig_t.%s is %d, which is no value of it",
			              function, ranges[i].name, value);
	}
	if (r == ncclSuccess && c.minCTAs != NCCL_CONFIG_UNDEF_INT && c.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
	    c.minCTAs > c.maxCTAs)
		r = nccl_fail(ncclInvalidArgument, "%s: ncclConfig_t.minCTAs is %d and maxCTAs %d", function, c.minCTAs,
		              c.maxCTAs);
	return r;
}

ncclResult_t nccl_check_call_config(const ncclCollConfig_t *given, const char *function)
{
	ncclCollConfig_t c = {.forceAlgSelection = 1};
	ncclResult_t r;

	if (!given)
		return ncclSuccess;
	r = take(&c, sizeof(c), given, offsetof(ncclCollConfig_t, ext) + sizeof(c.ext), NCCL_API_MAGIC,
	         "ncclCollConfig_t", function);
	if (r != ncclSuccess)
		return r;
	if (c.launchCompletionEvent)
		return nccl_fail(ncclInvalidUsage, "%s: ncclCollConfig_t.launchCompletionEvent is not supported",
		                 function);
	if (c.algSelection && *c.algSelection && c.forceAlgSelection)
		return nccl_fail(
		        ncclInvalidUsage,
		        "%s: ncclCollConfig_t.algSelection \"%s\" is not supported: COLL_ALGO chooses algorithms",
		        function, c.algSelection);
	return ncclSuccess;
}
