/*
 * Which ways a call may go, and the condition of each, in words for humans: the same predicates
 * that zero_copy.c asks when the call is made. What a call went in the end is in its state.
 */
#include <stdio.h>
#include <string.h>

#include "intra/cma.h"
#include "intra/explain.h"
#include "intra/zero_copy.h"

/* What must be mapped for zero copy: see coll_intra_requires(). */
static const char *mapped(enum coll_kind kind)
{
	switch (kind) {
	case COLL_KIND_ALL_REDUCE: return "all buffers are mapped by every rank";
	case COLL_KIND_BROADCAST: return "the root's buffer is mapped by every rank";
	case COLL_KIND_ALL_TO_ALL: return "all inputs are mapped by every rank and not in place";
	default: return "all inputs are mapped by every rank";
	}
}

/* Plain buffers that the kernel may read: forced, or as trials find. */
static void explain_plain(const struct coll_intra *n, const struct coll_job *job, uint8_t way, char *buf,
                          size_t len_bytes)
{
	const char *name = coll_way_name(way);

	if (!coll_intra_cma_serves(n, job) || n->fabric.way == COLL_INTRA_CACHED ||
	    n->fabric.way == COLL_INTRA_STREAMED)
		snprintf(buf, len_bytes, "%s (plain buffers)", name);
	else if (n->fabric.way == COLL_INTRA_CMAED)
		snprintf(buf, len_bytes, "cma if every rank may read the others' memory, else %s (plain buffers)",
		         name);
	else
		snprintf(buf, len_bytes, "cma or %s, by trial (plain buffers)", name);
}

void coll_intra_explain(const struct coll_intra_op *intra, const struct coll_job *job, char *buf, size_t len_bytes,
                        const char **plan)
{
	const struct coll_intra *n = intra->arg;
	const uint8_t way = coll_intra_way(intra), plain = coll_intra_plain_way(n, job);
	char rest[160] = "";

	*plan = "no memory can be shared";
	if (way != COLL_WAY_ZERO_COPY) {
		snprintf(buf, len_bytes, "%s", coll_way_name(way));
		return;
	}
	if (intra->instead)
		snprintf(rest, sizeof(rest), "; else %s (plain buffers)",
		         coll_way_name(coll_intra_way(intra->instead)));
	else if (plain != COLL_WAY_UNKNOWN) {
		snprintf(rest, sizeof(rest), "; else ");
		explain_plain(n, job, plain, rest + strlen(rest), sizeof(rest) - strlen(rest));
	} else
		*plan = "plain buffers";
	snprintf(buf, len_bytes, "zero-copy if %s%s", mapped(job->plan->kind), rest);
}
