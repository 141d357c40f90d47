/*
 * The beginning and the end of a call: see begin.h.
 */
#include "call/begin.h"

#include "base/hash.h"
#include "call/wait.h"
#include "core/dead.h"
#include "engine/run.h"
#include "inflight/drive.h"
#include "watch/pair_counts.h"

void coll_begin_record(const struct coll_comm *comm, const struct coll_call *c, const struct coll_job *job,
                       struct coll_record *record)
{
	*record = (struct coll_record){.comm = comm->id,
	                               .sequence = job->sequence,
	                               .count = c->count,
	                               .signature = job->signature,
	                               .active = 1,
	                               .kind = coll_call_kind(c),
	                               .type = (uint8_t)c->type,
	                               .op = (uint8_t)c->op,
	                               .flags = c->pairwise ? COLL_RECORD_PAIRWISE
	                                        : c->ragged ? COLL_RECORD_RAGGED
	                                                    : 0,
	                               .root = c->root,
	                               .waits_for = -1};
}

/* Calls in a row that are the same have the same salt: then it does not matter which of them took the short way through
 * prepare_again(). A rank may end a call that does not synchronise without noticing that others made a different one.
 * So such a call salts the signatures of all calls after it, and whatever frame is exchanged next shows the difference.
 */
uint32_t coll_begin_salt(struct coll_comm *comm, const struct coll_call *c, const struct coll_record *record)
{
	struct coll_salt *k = &comm->salt;
	const unsigned n = atomic_load_explicit(&comm->call_runs, memory_order_relaxed);

	if (n > 0 && record->signature == k->last)
		return k->now;
	coll_record_publish(&comm->call_run[n % COLL_CALL_RUNS], record);
	/* Release: who sees the number sees the record, or a newer one in its place. */
	atomic_store_explicit(&comm->call_runs, n + 1, memory_order_release);
	k->last = record->signature;
	k->now = k->next;
	if (!coll_call_synchronises(c))
		k->next = (uint32_t)coll_mix64(coll_mix64(record->sequence) ^ (uint64_t)k->now << 32 ^ k->last);
	return k->now;
}

/* Whether no frame that nobody expects may be on the channels: a fact of the table of ways, which depends on the calls
 * before. A call whose lengths only the two ends know may leave such a frame, and it is found where the next one is
 * expected on its channel. Calls over shared memory expect none. So the first call after such a one in which all hear
 * from all is made by its plan. Calls like the last one need not ask: after such a one nothing is prepared. */
static bool is_matched(const struct coll_comm *comm)
{
	return !comm->salt.by_plan;
}

static void note_matched(struct coll_comm *comm, const struct coll_call *c, bool by_plan)
{
	if (c->pairwise)
		comm->salt.by_plan = true;
	else if (by_plan && coll_call_synchronises(c))
		comm->salt.by_plan = false;
}

void coll_begin_collective(struct coll_comm *comm, const struct coll_call *call, const struct coll_call *shown,
                           uint8_t flags, const struct coll_intra_op *intra, uint32_t signature, struct coll_job *job,
                           struct coll_record *record)
{
	job->intra = intra && intra->matched && !is_matched(comm) ? NULL : intra;
	note_matched(comm, call, !job->intra);
	job->signature = signature;
	coll_begin_record(comm, shown, job, record);
	record->flags |= flags;
	job->signature ^= coll_begin_salt(comm, call, record);
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

void coll_end_inline(struct coll_comm *comm, const struct coll_wait *wait, struct coll_record *record, coll_status st)
{
	if (st != COLL_OK)
		coll_comm_death_reported(comm);
	coll_record_retire(&comm->record, record);
	for (int i = 0; i < wait->nruns; i++) {
		coll_recorder_way(wait->entries[i], coll_run_way(wait->runs[i]));
		coll_recorder_end(&comm->recorder, wait->entries[i], st);
	}
}

coll_status coll_finish_inline(struct coll_comm *comm, const struct coll_wait *wait, struct coll_record *record,
                               bool small)
{
	/* An error is sticky: the wait returns it again. */
	const bool soon = small && coll_comm_wait_eagerly(comm, wait) == COLL_OK;
	const coll_status st = soon ? COLL_OK : coll_comm_wait(comm, wait);

	if (!soon) {
		coll_end_inline(comm, wait, record, st);
		return st == COLL_OK ? st : coll_comm_keep(comm, st);
	}
	coll_record_retire(&comm->record, record);
	for (int i = 0; i < wait->nruns; i++) {
		coll_recorder_way(wait->entries[i], coll_run_way(wait->runs[i]));
		coll_recorder_end_quick(wait->entries[i]);
	}
	return st;
}
