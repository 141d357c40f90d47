/*
 * Send and receive between two ranks: two one-step plans on channels of their own. Messages are
 * numbered per pair, so they never disturb the order of collectives.
 */
#include "call/pair.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "call/begin.h"
#include "call/exchange.h"
#include "call/issue.h"
#include "call/wait.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/range.h"
#include "engine/run.h"
#include "select/bind_pair.h"

/* From here on the peer expects the message with this number. The call cannot be withdrawn. */
static coll_status start(struct coll_comm *comm, const struct coll_pair *p, int half, const struct coll_plan *plan,
                         struct coll_wait *wait)
{
	const int peer = coll_pair_peer(p, half);
	struct coll_job job;
	coll_status st;

	coll_pair_job(comm, p, half, plan, &job);
	job.sequence = coll_pair_number(comm, half, peer);
	wait->entries[wait->nruns] = coll_begin_pair_entry(comm, p, half, job.sequence, 0);
	wait->runs[wait->nruns++] = comm->pair_run[half];
	st = coll_run_start(comm->pair_run[half], &comm->pairs.fabric, &job);
	if (st != COLL_OK)
		return coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	return COLL_OK;
}

static coll_status inline_pair(struct coll_comm *comm, const struct coll_pair *p)
{
	struct coll_record record;
	struct coll_wait wait = {.record = &record};
	const struct coll_plan *plans[2] = {NULL, NULL};
	coll_status st = COLL_OK;

	coll_error_clear(&comm->box);
	comm->prepared_for = NULL; /* the record now describes another call */
	for (int half = 0; half < 2 && st == COLL_OK; half++)
		if (coll_pair_peer(p, half) >= 0)
			st = coll_pair_plan(comm, half, coll_pair_peer(p, half), &plans[half]);
	coll_pair_record(comm, p, &record);
	coll_record_publish(&comm->record, &record);
	for (int half = 0; half < 2 && st == COLL_OK; half++)
		if (plans[half])
			st = start(comm, p, half, plans[half], &wait);
	if (st == COLL_OK) {
		st = coll_finish_inline(comm, &wait, &record, false);
	} else {
		coll_record_retire(&comm->record, &record);
		coll_recorder_end(&comm->recorder, wait.entries[0], st);
		coll_recorder_end(&comm->recorder, wait.entries[1], st);
	}
	coll_plan_cache_release(comm->plans, plans[0]);
	coll_plan_cache_release(comm->plans, plans[1]);
	return st;
}

coll_status coll_comm_pair(struct coll_comm *comm, const struct coll_pair *p)
{
	struct coll_request *r;
	coll_status st;

	if (p->stream || comm->stage || coll_comm_busy(comm)) {
		st = coll_exchange_make(comm, p, &r);
		return st == COLL_OK ? coll_request_dispatch(r, p->stream) : st;
	}
	if (comm->failed)
		return comm->failed;
	if (!coll_pair_self(comm, p))
		return inline_pair(comm, p);
	if (p->send_count > 0) /* if the count is 0, either buffer may be NULL */
		memmove(p->recv, p->send, p->send_count * coll_dtype_size(p->type));
	return COLL_OK;
}
