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
#include "core/dead.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/range.h"
#include "engine/run.h"
#include "inflight/drive.h"
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

/* The rank of a half has died, and its channels are closed. Behind that the half has ended, well if it had before; the
 * other one goes on. True: one has not ended well. */
static bool lose_dead(struct coll_comm *comm, const struct coll_pair *p, const struct coll_wait *wait)
{
	bool lost = false;

	for (int i = 0; i < wait->nruns; i++) {
		if (!coll_comm_is_dead(comm, coll_pair_peer(p, wait->runs[i] == comm->pair_run[1])))
			continue;
		coll_run_cancel(wait->runs[i], COLL_ERR_PEER_DEAD);
		lost |= coll_run_poll(wait->runs[i], NULL) != COLL_OK;
	}
	return lost;
}

/* Leave out the halves that a death has ended. */
static void leave_out(struct coll_comm *comm, struct coll_wait *wait)
{
	int n = 0;

	for (int i = 0; i < wait->nruns; i++) {
		const coll_status st = coll_run_poll(wait->runs[i], NULL);

		if (st != COLL_OK && st != COLL_AGAIN) {
			coll_recorder_end(&comm->recorder, wait->entries[i], st);
			continue;
		}
		wait->entries[n] = wait->entries[i];
		wait->runs[n++] = wait->runs[i];
	}
	wait->nruns = n;
}

/* *lost: the rank of a half has died. */
static coll_status wait_for(struct coll_comm *comm, const struct coll_pair *p, struct coll_wait *wait, bool *lost)
{
	coll_status st;

	/* An error without an end: a member has died, perhaps none that this call needs. */
	while ((st = coll_comm_wait(comm, wait)) != COLL_OK && !comm->ended)
		if (lose_dead(comm, p, wait)) {
			*lost = true;
			leave_out(comm, wait);
		}
	return st;
}

static coll_status inline_pair(struct coll_comm *comm, const struct coll_pair *p)
{
	struct coll_record record;
	struct coll_wait wait = {.record = &record};
	const struct coll_plan *plans[2] = {NULL, NULL};
	coll_status st = COLL_OK;
	bool lost = false;

	coll_error_clear(&comm->box);
	comm->prepared_for = NULL; /* the record now describes another call */
	for (int half = 0; half < 2 && st == COLL_OK; half++)
		if (coll_comm_is_dead(comm, coll_pair_peer(p, half)))
			lost = true;
		else if (coll_pair_peer(p, half) >= 0)
			st = coll_pair_plan(comm, half, coll_pair_peer(p, half), &plans[half]);
	coll_pair_record(comm, p, &record);
	coll_record_publish(&comm->record, &record);
	for (int half = 0; half < 2 && st == COLL_OK; half++)
		if (plans[half])
			st = start(comm, p, half, plans[half], &wait);
	if (st == COLL_OK)
		st = wait_for(comm, p, &wait, &lost);
	coll_end_inline(comm, &wait, &record, st);
	coll_plan_cache_release(comm->plans, plans[0]);
	coll_plan_cache_release(comm->plans, plans[1]);
	return st == COLL_OK && lost ? COLL_ERR_PEER_DEAD : st;
}

/* The call has failed; if that is because a rank that it needs has died, say so. */
static coll_status name_dead(struct coll_comm *comm, const struct coll_pair *p, coll_status st)
{
	if (st != COLL_ERR_PEER_DEAD || !coll_comm_lives_on(comm))
		return st == COLL_OK ? st : coll_comm_keep(comm, st);
	return coll_comm_refuse_dead(comm, "send_recv", coll_comm_is_dead(comm, p->dest) ? p->dest : p->source);
}

coll_status coll_comm_pair(struct coll_comm *comm, const struct coll_pair *p)
{
	struct coll_request *r;
	coll_status st;

	if (p->stream || comm->stage || coll_comm_busy(comm)) {
		st = coll_exchange_make(comm, p, &r);
		return st == COLL_OK ? name_dead(comm, p, coll_request_dispatch(r, p->stream)) : st;
	}
	if (comm->ended)
		return coll_comm_keep(comm, comm->ended);
	if (!coll_pair_self(comm, p))
		return name_dead(comm, p, inline_pair(comm, p));
	if (p->send_count > 0) /* if the count is 0, either buffer may be NULL */
		memmove(p->recv, p->send, p->send_count * coll_dtype_size(p->type));
	return COLL_OK;
}
