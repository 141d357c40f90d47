/*
 * The beginning and the end of a call: see begin.h.
 */
#include "progress/begin.h"

#include "engine/run.h"
#include "mapped/call.h"
#include "progress/wait.h"
#include "select/bind.h"
#include "watch/pair_counts.h"

void coll_begin_collective(struct coll_comm *comm, const struct coll_call *call, const struct coll_call *shown,
                           uint8_t flags, const struct coll_intra_op *intra, uint32_t signature, struct coll_job *job,
                           struct coll_record *record)
{
	/* A direct call has nothing to do with channels. */
	job->intra = intra && (coll_mapped_is(comm, intra) || !coll_call_by_plan(comm, call)) ? intra : NULL;
	if (!intra)
		coll_call_by_plan(comm, call);
	job->signature = signature;
	coll_call_record(comm, shown, job, record);
	record->flags |= flags;
	job->signature ^= coll_call_salt(comm, call, record);
	/* Release: written after the call run, see handed_in. */
	atomic_store_explicit(&comm->handed_in, job->sequence, memory_order_release);
	if (call->pairwise)
		coll_pair_counts_note(&comm->pair_counts, call, job->sequence, comm->rank, comm->size);
}

struct coll_entry *coll_begin_entry(struct coll_comm *comm, const struct coll_call *call,
                                    const struct coll_record *record, uint32_t signature, uint8_t way, uint16_t stream)
{
	return coll_recorder_begin(&comm->recorder, record->sequence,
	                           coll_entry_what(signature, record->kind, record->type, record->op, way, stream != 0),
	                           call->count, call->root, stream);
}

struct coll_entry *coll_begin_pair_entry(struct coll_comm *comm, const struct coll_pair *pair, int half,
                                         uint64_t sequence, uint16_t stream)
{
	return coll_recorder_begin(&comm->recorder, sequence,
	                           coll_entry_what(0, COLL_KIND_SEND_RECV, (uint8_t)pair->type, (uint8_t)half,
	                                           COLL_WAY_SEND_RECV, stream != 0),
	                           half ? pair->recv_count : pair->send_count, coll_pair_peer(pair, half), stream);
}

struct coll_entry *coll_begin_tag_entry(struct coll_comm *comm, const struct coll_record *record, uint16_t stream)
{
	/* They have no number. */
	return coll_recorder_begin(&comm->recorder, 0,
	                           coll_entry_what(record->signature, record->kind, record->type, record->op,
	                                           COLL_WAY_SEND_RECV, stream != 0),
	                           record->count, record->root, stream);
}

coll_status coll_finish_inline(struct coll_comm *comm, const struct coll_wait *wait, struct coll_record *record,
                               bool small)
{
	/* An error is sticky: the wait returns it again. */
	const bool soon = small && coll_comm_wait_eagerly(comm, wait) == COLL_OK;
	const coll_status st = soon ? COLL_OK : coll_comm_wait(comm, wait);

	coll_record_retire(&comm->record, record);
	for (int i = 0; i < wait->nruns; i++) {
		coll_recorder_way(wait->entries[i], coll_run_way(wait->runs[i]));
		if (soon)
			coll_recorder_end_quick(wait->entries[i]);
		else
			coll_recorder_end(&comm->recorder, wait->entries[i], st);
	}
	return st;
}
