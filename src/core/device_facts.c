/*
 * The facts of direct calls in words. Owns nothing.
 */
#include "core/device_facts.h"

#include <stdio.h>

#include "core/comm.h"

bool coll_device_facts_describe(const struct coll_comm *comm, char *buf, size_t len_bytes)
{
	const struct coll_device_facts *facts = comm->direct;
	const char *why = "not all ranks have a device";
	char calls[128] = "";

	if (facts)
		why = facts->about;
	else if (!comm->ctx->settings.device_direct)
		why = "COLL_DEVICE_DIRECT=0";
	else if (comm->rank_map.hosts > 1)
		why = "the ranks are on several hosts";
	else if (comm->size < 2 || comm->size > COLL_MAPPED_RANKS_MAX)
		why = "direct takes 2 to 8 ranks";
	if (facts && facts->on)
		facts->describe(facts, calls, sizeof(calls));
	snprintf(buf, len_bytes, "%s%s", why, calls);
	return facts && facts->on;
}
