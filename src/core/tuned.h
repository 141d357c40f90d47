/*
 * What a table of measured links says of the hosts of a job: found at creation from the text that rank 0 read
 * (comm/tuned.h), the same on all ranks, and read-only. One allocation.
 */
#ifndef COLL_CORE_TUNED_H
#define COLL_CORE_TUNED_H

#include "context/context.h"

struct coll_tuned_host {
	uint32_t mbps; /* the lower of both directions */
	uint32_t site, site_mbps;
};

struct coll_tuned {
	uint32_t hop_ns;             /* see topology/measured.h */
	bool sites;                  /* the hosts are in more than one */
	struct coll_tuned_host of[]; /* by the context's number of the host */
};

/* NULL: nothing is known. */
static inline const struct coll_tuned_host *coll_tuned_host(const struct coll_context *ctx, int process)
{
	return ctx->tuned ? &ctx->tuned->of[ctx->host_of[process]] : NULL;
}

#endif
