/*
 * The last call: a barrier, so that no process closes a communicator while a peer still reads from it. A block that its
 * receiver did not expect may lie on a channel on which no other frame has come, and nobody has noticed. So where there
 * were calls whose lengths only two ranks know, it adds up what all have sent and expected. Does not wait.
 */
#include "comm/last_call.h"

#include <stdio.h>

#include "call/blocking.h"
#include "core/error.h"
#include "watch/pair_counts.h"

coll_status coll_last_call_begin(struct coll_comm *comm, struct coll_last_call *last)
{
	struct coll_call call = {.kind = COLL_KIND_BARRIER,
	                         .record_kind = COLL_RECORD_DESTROY,
	                         .in = last->in,
	                         .out = last->out,
	                         .count = 1,
	                         .type = COLL_U8};

	/* Agreed: all ranks have made the same calls, or that differs. Groups have a barrier of their own. */
	last->compares = coll_pair_counts_any(&comm->pair_counts) && !comm->stage && !comm->group_op;
	if (last->compares) {
		coll_pair_counts_sums(&comm->pair_counts, last->in);
		call.kind = COLL_KIND_ALL_REDUCE;
		call.count = COLL_PAIR_SUMS;
		call.type = COLL_U64;
		call.op = COLL_SUM;
	}
	return coll_comm_begin(comm, &call);
}

void coll_last_call_compare(struct coll_comm *comm, const struct coll_last_call *last)
{
	char text[200];
	int culprit;

	if (!last->compares || comm->ended || !coll_pair_counts_verdict(comm, last->out, &culprit, text, sizeof(text)))
		return;
	snprintf(comm->box.kind, sizeof(comm->box.kind), "comm_destroy");
	coll_comm_fail(comm, COLL_ERR_MISMATCH, culprit, text, "");
}
